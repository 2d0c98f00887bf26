//! Subscriptions of members, resolved to existing topics.

use std::collections::{BTreeMap, BTreeSet};

use base::HashMap;
use bytes::Buf;
use regex::{Regex, RegexBuilder};
use thiserror::Error;
use tracing::debug;
use uuid::Uuid;

use crate::Text;
use crate::limits::{SUBSCRIPTION_PATTERN_BYTES_MAX, SUBSCRIPTION_PATTERN_COMPILED_BYTES_MAX};

/// A topic as a group sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topic {
    pub id: Uuid,
    pub name: Text,
    pub partitions: u32,
}

/// Version of the catalog: look-ups under an equal stamp are still valid.
pub type CatalogStamp = (u32, usize, u64);

/// The existing topics.
pub trait Catalog {
    fn stamp(&self) -> CatalogStamp;
    fn topic(&self, name: &str) -> Option<Topic>;
    /// All topics, for patterns.
    fn topics(&self) -> Vec<Topic>;
}

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PatternError {
    #[error("a pattern has at most {at_most} bytes, not {bytes}")]
    TooLong { bytes: usize, at_most: usize },
    #[error("{pattern:?} is not a regular expression in RE2's syntax: {reason}")]
    Syntax { pattern: String, reason: String },
}

/// Compiles a pattern that must match a whole name, as in Kafka. The syntax is RE2's, which the crate shares, as
/// well as the guarantee of linear time.
fn compile_pattern(pattern: &str) -> Result<Regex, PatternError> {
    let (bytes, at_most) = (pattern.len(), SUBSCRIPTION_PATTERN_BYTES_MAX);
    if bytes > at_most {
        return Err(PatternError::TooLong { bytes, at_most });
    }
    let compile = |pattern: &str| {
        RegexBuilder::new(pattern).size_limit(SUBSCRIPTION_PATTERN_COMPILED_BYTES_MAX).build()
    };
    // The bare pattern first: it must be valid without the added group.
    compile(pattern).and_then(|_| compile(&format!(r"\A(?:{pattern})\z"))).map_err(|error| {
        PatternError::Syntax { pattern: pattern.to_owned(), reason: error.to_string() }
    })
}

/// The subscription of one member.
#[derive(Clone, Debug, Default)]
pub struct Subscription {
    pub names: BTreeSet<Text>,
    pub pattern: Option<Text>,
    /// Existing topics of its names and its pattern.
    pub(crate) topics: BTreeSet<Uuid>,
}

/// The subscriptions of a group's members, resolved to existing topics.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    /// Existing topics of all subscriptions, as of `stamp`.
    topics: BTreeMap<Uuid, Topic>,
    patterns: HashMap<Text, Pattern>,
    stamp: Option<CatalogStamp>,
}

/// A regular expression over topic names, which is matched when the catalog changes.
#[derive(Debug)]
struct Pattern {
    regex: Regex,
    topics: BTreeSet<Uuid>,
}

impl Subscriptions {
    pub(crate) fn topics(&self) -> &BTreeMap<Uuid, Topic> {
        &self.topics
    }

    /// Sets the topics of the stored form. The next heartbeat detects changes since then.
    pub(crate) fn restore(&mut self, topics: impl Iterator<Item = Topic>) {
        self.topics = topics.map(|topic| (topic.id, topic)).collect();
        self.stamp = None;
    }

    /// Partition count of each topic.
    pub(crate) fn partitions(&self) -> BTreeMap<Uuid, u32> {
        self.topics.iter().map(|(&id, topic)| (id, topic.partitions)).collect()
    }

    /// Returns an error for an invalid pattern. A member's pattern was validated before.
    pub(crate) fn check_pattern(&self, pattern: &str) -> Result<(), PatternError> {
        if self.patterns.contains_key(pattern) {
            return Ok(());
        }
        compile_pattern(pattern).map(drop)
    }

    /// Marks the subscriptions as changed: they are resolved at the next heartbeat.
    pub(crate) fn look_again(&mut self) {
        self.stamp = None;
    }

    /// Resolves the subscriptions, if they or the catalog changed. Returns whether the outcome differs.
    pub(crate) fn resolve<'a>(
        &mut self,
        has_changed: bool,
        catalog: &impl Catalog,
        members: impl Iterator<Item = &'a mut Subscription>,
    ) -> bool {
        // Read before the topics: a change in between is detected at the next heartbeat.
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

    /// Matches patterns against all topics: the new patterns, or all if the catalog changed. Returns the matched
    /// topics.
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
                // It was compiled before the member was admitted.
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

/// Topics in the metadata of a consumer of the classic protocol, whose form the group otherwise leaves to its
/// members (Kafka's `ConsumerProtocolSubscription`: a version, then names). `None` if it has another form.
pub(crate) fn topics_of_subscription(mut metadata: &[u8]) -> Option<Vec<String>> {
    let version = metadata.try_get_i16().ok()?;
    let count = usize::try_from(metadata.try_get_i32().ok()?).ok()?;
    // Each name takes a byte or more: the capacity is bounded by the length.
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
    fn topics_are_decoded_only_from_consumer_metadata() {
        let metadata = [&[0, 1, 0, 0, 0, 2, 0, 1, b'a', 0, 2, b'b', b'c'][..], &[9; 20]].concat();
        assert_eq!(topics_of_subscription(&metadata), Some(vec!["a".into(), "bc".into()]));
        for len in 0..13 {
            assert_eq!(topics_of_subscription(&metadata[..len]), None, "{len}");
        }
        assert_eq!(topics_of_subscription(&[0, 0, 0x7f, 0xff, 0xff, 0xff]), None);
    }

    #[test]
    fn pattern_matches_whole_names_only() {
        let matches = |pattern: &str, name| compile_pattern(pattern).unwrap().is_match(name);
        assert!(matches("orders-.*", "orders-eu"));
        assert!(!matches("orders", "orders-eu"));
        assert!(!matches("eu", "orders-eu"));
        assert!(matches("a|ab", "ab"));
        assert!(matches("(?i)A", "a"));
        assert!(matches("", ""));
    }

    #[test]
    fn invalid_or_too_costly_pattern_is_rejected() {
        let too_long = "a".repeat(SUBSCRIPTION_PATTERN_BYTES_MAX + 1);
        for bad in ["(", "a)(b", "*", "[", r"\1", "(?=a)", "a{1000}{1000}", &too_long] {
            assert!(compile_pattern(bad).is_err(), "{bad}");
        }
    }
}
