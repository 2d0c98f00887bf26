//! Names of topics.

use base::limits::TOPIC_NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum TopicNameError {
    #[error("a topic's name must not be empty")]
    Empty,
    #[error("a topic's name must not be {name:?}")]
    Dots { name: String },
    #[error("a topic's name has at most {at_most} characters, not {bytes}")]
    TooLong { bytes: usize, at_most: usize },
    #[error(
        "a topic's name consists of ASCII letters, digits, `.`, `_` and `-`; \
         {name:?} has {character:?}"
    )]
    Character { name: String, character: char },
    #[error(
        "{name} is a topic of Kafka's brokers: this broker has committed offsets and the state of groups in no topic"
    )]
    StateOfKafka { name: String },
    #[error(
        "{name} is a topic of this broker: the broker creates it with the first event that it writes there"
    )]
    OfNodes { name: String },
}

/// Kafka's rules (its `Topic.validate`): 1 to 249 of `[a-zA-Z0-9._-]`, and neither `.` nor `..`.
pub fn validate_topic_name(name: &str) -> Result<(), TopicNameError> {
    if name.is_empty() {
        return Err(TopicNameError::Empty);
    }
    if name == "." || name == ".." {
        return Err(TopicNameError::Dots { name: name.to_owned() });
    }
    if name.len() > TOPIC_NAME_BYTES_MAX {
        let (bytes, at_most) = (name.len(), TOPIC_NAME_BYTES_MAX);
        return Err(TopicNameError::TooLong { bytes, at_most });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match name.chars().find(|&c| !allowed(c)) {
        Some(character) => Err(TopicNameError::Character { name: name.to_owned(), character }),
        None => Ok(()),
    }
}

/// Key on which two names collide that may not both exist: metrics write `.` as `_` (Kafka also
/// refuses the second). `None` for a name that cannot collide.
pub(crate) fn collapsed_name(name: &str) -> Option<Box<str>> {
    name.contains(['.', '_']).then(|| name.replace('.', "_").into_boxed_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rules() {
        let longest = "x".repeat(249);
        for good in ["a", "A-z.0_9", "...", "_", "-", longest.as_str()] {
            assert_eq!(validate_topic_name(good), Ok(()), "{good}");
        }
        let too_long = "x".repeat(250);
        for bad in
            ["", ".", "..", too_long.as_str(), "a b", "ä", "a/b", "a:b", "a\0", "a\n", "日本"]
        {
            assert!(validate_topic_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_dots_and_underscores_make_names_collide() {
        assert_eq!(collapsed_name("a.b_c"), collapsed_name("a_b.c"));
        assert_ne!(collapsed_name("a.b"), collapsed_name("a.c"));
        assert_eq!(collapsed_name("a-b"), None);
    }
}
