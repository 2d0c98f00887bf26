//! Topics that are created, grown and deleted: they exist as the replies said, and the shard with their rows
//! agrees with the catalog.

use std::collections::{BTreeMap, BTreeSet};

use base::TopicId;

use crate::verdict::{Invariant, Verdict};

#[derive(Debug, Default)]
pub struct Topics {
    by_name: BTreeMap<String, Topic>,
    /// Numbers of topics with a confirmed deletion.
    gone: BTreeSet<TopicId>,
}

/// Existence of a topic, as far as clients know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    There {
        topic: TopicId,
        partitions: u32,
        /// More than `partitions` while its growth is not confirmed.
        partitions_max: u32,
    },
    Gone,
    /// Its creation or deletion was requested without a reply.
    Unknown,
}

/// A topic at the begin of a life of the node.
#[derive(Clone, Debug)]
pub struct TopicAtStart {
    pub name: String,
    pub topic: TopicId,
    /// Partition count in the catalog.
    pub partitions: u32,
    /// Partition count in the shard.
    pub rows: u32,
}

impl Topics {
    pub fn set(&mut self, name: &str, topic: Topic) {
        self.by_name.insert(name.to_owned(), topic);
    }

    /// To be called before the request is sent.
    pub fn grow(&mut self, name: &str, to: u32) {
        if let Some(Topic::There { partitions_max, .. }) = self.by_name.get_mut(name) {
            *partitions_max = to;
        }
    }

    pub fn deleted(&mut self, name: &str, topic: TopicId) {
        self.set(name, Topic::Gone);
        self.gone.insert(topic);
    }

    pub fn gone(&self) -> Vec<TopicId> {
        self.gone.iter().copied().collect()
    }

    /// Checks all existing topics, and those of the deleted ones that the shard still has.
    pub fn check(&self, found: &[TopicAtStart], left: &[TopicId], verdict: &Verdict) {
        let violated = |what: String| verdict.violated(Invariant::Catalog, what);
        for it in found {
            if it.partitions != it.rows {
                violated(format!("the catalog and the shard do not agree: {it:?}"));
            }
        }
        if let Some(topic) = left.first() {
            violated(format!("the shard still has topic {topic}, which was deleted"));
        }
        for (name, topic) in &self.by_name {
            let there = found.iter().find(|it| it.name == *name);
            let wrong = match *topic {
                Topic::There { topic, partitions, partitions_max } => there.is_none_or(|it| {
                    it.topic != topic || !(partitions..=partitions_max).contains(&it.partitions)
                }),
                Topic::Gone => there.is_some(),
                Topic::Unknown => false,
            };
            if wrong {
                violated(format!("{name} is {topic:?}; found was {there:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    const THERE: Topic = Topic::There { topic: TopicId(1), partitions: 2, partitions_max: 3 };

    fn found(topic: u32, partitions: u32, rows: u32) -> Vec<TopicAtStart> {
        vec![TopicAtStart { name: "t".to_owned(), topic: TopicId(topic), partitions, rows }]
    }

    fn holds(topic: Topic, found: &[TopicAtStart], left: &[TopicId]) -> bool {
        let verdict = Verdict::new(Trace::default());
        let mut topics = Topics::default();
        topics.set("t", topic);
        topics.check(found, left, &verdict);
        verdict.first().is_none()
    }

    #[test]
    fn missing_resurrected_or_shrunk_topic_is_detected() {
        assert!(holds(THERE, &found(1, 2, 2), &[]) && holds(THERE, &found(1, 3, 3), &[]));
        assert!(!holds(THERE, &[], &[]) && !holds(THERE, &found(2, 2, 2), &[]));
        assert!(!holds(THERE, &found(1, 1, 1), &[]) && !holds(THERE, &found(1, 4, 4), &[]));
        assert!(holds(Topic::Gone, &[], &[]) && !holds(Topic::Gone, &found(1, 2, 2), &[]));
        assert!(holds(Topic::Unknown, &found(1, 2, 2), &[]) && holds(Topic::Unknown, &[], &[]));
    }

    #[test]
    fn shard_that_differs_from_the_catalog_is_detected() {
        assert!(!holds(Topic::Unknown, &found(1, 2, 1), &[]));
        assert!(!holds(Topic::Unknown, &found(1, 2, 3), &[]));
        assert!(!holds(Topic::Gone, &[], &[TopicId(1)]));
    }
}
