//! Topics that come and go.

use std::collections::BTreeMap;

use crate::verdict::{Invariant, Verdict};

#[derive(Debug, Default)]
pub struct Topics(BTreeMap<String, Topic>);

/// Whether a topic is there, as far as clients know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Topic {
    There,
    Gone,
    /// It was asked for, or to be deleted, and there was no answer.
    Unknown,
}

impl Topics {
    pub fn set(&mut self, name: &str, topic: Topic) {
        self.0.insert(name.to_owned(), topic);
    }

    pub fn check(&self, is_there: impl Fn(&str) -> bool, verdict: &Verdict) {
        for (name, topic) in &self.0 {
            let there = is_there(name);
            let wrong = match topic {
                Topic::There => !there,
                Topic::Gone => there,
                Topic::Unknown => false,
            };
            if wrong {
                let found = if there { "there" } else { "not there" };
                verdict.violated(Invariant::Catalog, format!("{name} is {found}; it is {topic:?}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn a_topic_that_is_gone_or_came_back_is_seen() {
        let judged = |topic, there| {
            let verdict = Verdict::new(Trace::default());
            let mut topics = Topics::default();
            topics.set("t", topic);
            topics.check(|_| there, &verdict);
            verdict.first().is_none()
        };
        assert!(judged(Topic::There, true) && judged(Topic::Gone, false));
        assert!(!judged(Topic::There, false) && !judged(Topic::Gone, true));
        assert!(judged(Topic::Unknown, true) && judged(Topic::Unknown, false));
    }
}
