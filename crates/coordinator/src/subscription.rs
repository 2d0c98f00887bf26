//! What members want to consume, and what of it exists.

use std::collections::{BTreeMap, BTreeSet};

use base::HashMap;
use bytes::Buf;
use regex::{Regex, RegexBuilder};
use thiserror::Error;
use tracing::debug;
use uuid::Uuid;

use crate::Text;
use base::limits::{SUBSCRIPTION_PATTERN_BYTES_MAX, SUBSCRIPTION_PATTERN_COMPILED_BYTES_MAX};

/// A topic as a group needs to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    pub id: Uuid,
    pub name: Text,
    pub partitions: u32,
}

/// Differs when the catalog does: what was looked up under an equal one is still so.
pub type CatalogStamp = (u32, usize, u64);

/// Which topics there are.
pub trait Catalog {
    fn stamp(&self) -> CatalogStamp;
    fn topic(&self, name: &str) -> Option<Topic>;
    /// For patterns.
    fn topics(&self) -> Vec<Topic>;
}

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PatternError {
    #[error("a pattern has at most {at_most} bytes, not {bytes}")]
    TooLong { bytes: usize, at_most: usize },
    #[error("{pattern:?} is not a regular expression in RE2's syntax: {reason}")]
    Syntax { pattern: String, reason: String },
}

/// A pattern that a name must match as a whole, as Kafka has it. The syntax is RE2's, which the
/// crate shares, and so is the promise that no pattern takes more than linear time.
fn compile_pattern(pattern: &str) -> Result<Regex, PatternError> {
    let (bytes, at_most) = (pattern.len(), SUBSCRIPTION_PATTERN_BYTES_MAX);
    if bytes > at_most {
        return Err(PatternError::TooLong { bytes, at_most });
    }
    let compile = |pattern: &str| {
        RegexBuilder::new(pattern).size_limit(SUBSCRIPTION_PATTERN_COMPILED_BYTES_MAX).build()
    };
    // By itself first: what does not stand alone must not stand because of the brackets.
    compile(pattern).and_then(|_| compile(&format!(r"\A(?:{pattern})\z"))).map_err(|error| {
        PatternError::Syntax { pattern: pattern.to_owned(), reason: error.to_string() }
    })
}

/// What one member wants.
#[derive(Clone, Debug, Default)]
pub struct Subscription {
    pub names: BTreeSet<Text>,
    pub pattern: Option<Text>,
    /// The topics of its names and its pattern that exist.
    pub(crate) topics: BTreeSet<Uuid>,
}

/// What the members of a group want together, and what of it exists.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// The topics of all subscriptions that exist, as of `stamp`.
    topics: BTreeMap<Uuid, Topic>,
    patterns: HashMap<Text, Pattern>,
    stamp: Option<CatalogStamp>,
}

/// Topics by a regular expression, which is matched when the catalog changes.
#[derive(Debug)]
struct Pattern {
    regex: Regex,
    topics: BTreeSet<Uuid>,
}

impl Subscriptions {
    pub(crate) fn topics(&self) -> &BTreeMap<Uuid, Topic> {
        &self.topics
    }

    /// Sets the topics as they were stored. The next heartbeat finds what has changed since then.
    pub(crate) fn restore(&mut self, topics: impl Iterator<Item = Topic>) {
        self.topics = topics.map(|topic| (topic.id, topic)).collect();
        self.stamp = None;
    }

    /// How many partitions each topic has.
    pub(crate) fn partitions(&self) -> BTreeMap<Uuid, u32> {
        self.topics.iter().map(|(&id, topic)| (id, topic.partitions)).collect()
    }

    /// An error if it is no pattern. One that a member has is known to be one.
    pub(crate) fn check_pattern(&self, pattern: &str) -> Result<(), PatternError> {
        if self.patterns.contains_key(pattern) {
            return Ok(());
        }
        compile_pattern(pattern).map(drop)
    }

    /// What members want has changed: it is looked up at the next heartbeat.
    pub(crate) fn look_again(&mut self) {
        self.stamp = None;
    }

    /// Looks up what the members want, if that or the catalog changed. True if the outcome differs.
    pub(crate) fn resolve<'a>(
        &mut self,
        has_changed: bool,
        catalog: &impl Catalog,
        members: impl Iterator<Item = &'a mut Subscription>,
    ) -> bool {
        // Asked before the topics: a change in between is seen at the next heartbeat.
        let stamp = catalog.stamp();
        if self.stamp == Some(stamp) && !has_changed {
            return false;
        }
        let members: Vec<_> = members.collect();
        let wanted = members.iter().filter_map(|member| member.pattern.clone()).collect();
        let mut topics = self.match_patterns(wanted, self.stamp != Some(stamp), catalog);
        self.stamp = Some(stamp);
        let mut ids: BTreeMap<Text, Option<Uuid>> = BTreeMap::new();
        let mut differs = false;
        for member in members {
            let mut wanted = BTreeSet::new();
            for name in &member.names {
                let id = *ids.entry(name.clone()).or_insert_with(|| {
                    let topic = catalog.topic(name)?;
                    let id = topic.id;
                    topics.insert(id, topic);
                    Some(id)
                });
                wanted.extend(id);
            }
            if let Some(pattern) = member.pattern.as_ref().and_then(|text| self.patterns.get(text))
            {
                wanted.extend(&pattern.topics);
            }
            differs |= member.topics != wanted;
            member.topics = wanted;
        }
        differs |= self.topics != topics;
        self.topics = topics;
        differs
    }

    /// Matches patterns against all topics: the new ones, or all if the catalog changed. Returns
    /// what they match.
    fn match_patterns(
        &mut self,
        wanted: BTreeSet<Text>,
        is_catalog_new: bool,
        catalog: &impl Catalog,
    ) -> BTreeMap<Uuid, Topic> {
        self.patterns.retain(|text, _| wanted.contains(text));
        if wanted.is_empty() {
            return BTreeMap::new();
        }
        debug!(patterns = wanted.len(), known = self.patterns.len(), is_catalog_new, "matching");
        let all = catalog.topics();
        for text in wanted {
            let is_new = !self.patterns.contains_key(&text);
            if is_new {
                // It was compiled before the member was taken in.
                let Ok(regex) = compile_pattern(&text) else { continue };
                self.patterns.insert(text.clone(), Pattern { regex, topics: BTreeSet::new() });
            }
            let Some(pattern) = self.patterns.get_mut(&text) else { continue };
            if is_new || is_catalog_new {
                let matching = all.iter().filter(|topic| pattern.regex.is_match(&topic.name));
                pattern.topics = matching.map(|topic| topic.id).collect();
            }
        }
        let matched: BTreeSet<_> =
            self.patterns.values().flat_map(|pattern| &pattern.topics).copied().collect();
        let of_patterns = all.into_iter().filter(|topic| matched.contains(&topic.id));
        of_patterns.map(|topic| (topic.id, topic)).collect()
    }
}

/// The topics that a consumer of the classic protocol names in its metadata, whose form the group
/// otherwise leaves to its members (Kafka's `ConsumerProtocolSubscription`: a version, then names).
/// `None` if it has another form.
pub(crate) fn topics_of_subscription(mut metadata: &[u8]) -> Option<Vec<String>> {
    let version = metadata.try_get_i16().ok()?;
    let count = usize::try_from(metadata.try_get_i32().ok()?).ok()?;
    // Each name takes a byte or more: no room is made for more names than there can be.
    if version < 0 || count > metadata.len() {
        return None;
    }
    let name = |_| {
        let len = usize::try_from(metadata.try_get_i16().ok()?).ok()?;
        let (name, rest) = metadata.split_at_checked(len)?;
        metadata = rest;
        std::str::from_utf8(name).ok().map(str::to_owned)
    };
    (0..count).map(name).collect()
}

#[cfg(test)]
pub(crate) use tests::Topics;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::text;

    /// Topics by name, with the stamp that a machine would have.
    #[derive(Default)]
    pub(crate) struct Topics {
        by_name: RefCell<BTreeMap<String, Topic>>,
        made: RefCell<u32>,
    }

    impl Topics {
        pub(crate) fn set(&self, name: &str, partitions: u32) -> Uuid {
            let mut by_name = self.by_name.borrow_mut();
            let topic = by_name.entry(name.to_owned()).or_insert_with(|| {
                *self.made.borrow_mut() += 1;
                let id = Uuid::from_u128(u128::from(*self.made.borrow()));
                Topic { id, name: text(name), partitions }
            });
            topic.partitions = topic.partitions.max(partitions);
            topic.id
        }

        pub(crate) fn delete(&self, name: &str) {
            self.by_name.borrow_mut().remove(name);
        }
    }

    impl Catalog for Topics {
        fn stamp(&self) -> CatalogStamp {
            let by_name = self.by_name.borrow();
            let partitions = by_name.values().map(|topic| u64::from(topic.partitions)).sum();
            (*self.made.borrow(), by_name.len(), partitions)
        }

        fn topic(&self, name: &str) -> Option<Topic> {
            self.by_name.borrow().get(name).cloned()
        }

        fn topics(&self) -> Vec<Topic> {
            self.by_name.borrow().values().cloned().collect()
        }
    }

    #[test]
    fn topics_are_read_from_a_consumers_metadata_and_from_nothing_else() {
        let metadata = [&[0, 1, 0, 0, 0, 2, 0, 1, b'a', 0, 2, b'b', b'c'][..], &[9; 20]].concat();
        assert_eq!(topics_of_subscription(&metadata), Some(vec!["a".into(), "bc".into()]));
        for len in 0..13 {
            assert_eq!(topics_of_subscription(&metadata[..len]), None, "{len}");
        }
        assert_eq!(topics_of_subscription(&[0, 0, 0x7f, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn a_pattern_matches_whole_names_only() {
        let matches = |pattern: &str, name| compile_pattern(pattern).unwrap().is_match(name);
        assert!(matches("orders-.*", "orders-eu"));
        assert!(!matches("orders", "orders-eu"));
        assert!(!matches("eu", "orders-eu"));
        assert!(matches("a|ab", "ab"));
        assert!(matches("(?i)A", "a"));
        assert!(matches("", ""));
    }

    #[test]
    fn what_is_no_pattern_or_too_costly_is_refused() {
        let too_long = "a".repeat(SUBSCRIPTION_PATTERN_BYTES_MAX + 1);
        for bad in ["(", "a)(b", "*", "[", r"\1", "(?=a)", "a{1000}{1000}", &too_long] {
            assert!(compile_pattern(bad).is_err(), "{bad}");
        }
    }
}
