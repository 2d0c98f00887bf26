//! Names of topics that store queues, and the virtual host that such a name belongs to.
//!
//! A queue of another virtual host than `/` is the topic `amqp.<vhost>.<queue>` with both parts escaped: letters and
//! digits stand for themselves, any other byte is `-` and two hexadecimal digits. A name over the limit keeps its
//! beginning and ends with `.` and 32 digits of a hash.
//!
//! [`owner`] is the way back. It decides which permissions count for a topic, so it never guesses:
//!
//! | name | belongs to |
//! |---|---|
//! | `amqp.<vhost>.<rest>`, the vhost escaped as above | that virtual host, whether it exists or not |
//! | shortened within the vhost | an unknown virtual host |
//! | any other | `/` |
//!
//! So a topic that a Kafka client creates below `amqp.<vhost>.` belongs to that virtual host like its queues.

use std::borrow::Cow;

use crate::limits::TOPIC_NAME_BYTES_MAX;

/// The virtual host that always exists, whose queues are plain topics.
pub const DEFAULT_VHOST: &str = "/";

/// Prefix of the topics of queues whose own names are not topic names.
pub const ESCAPED_PREFIX: &str = "amqp.";

/// Length of a dot and 128 bits in hexadecimal.
const HASH_BYTES: usize = 33;

/// The virtual host of a topic, and the name of the queue in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicOwner<'t> {
    /// `None`: the topic's name is too short to hold it.
    pub virtual_host: Option<Cow<'t, str>>,
    /// `None`: the topic's name is too short to hold it.
    pub queue: Option<Cow<'t, str>>,
}

impl TopicOwner<'_> {
    /// Whether the topic belongs to `/`.
    pub fn is_default(&self) -> bool {
        self.virtual_host.as_deref() == Some(DEFAULT_VHOST)
    }
}

/// The virtual host that the topic of this name belongs to. Allocates for escaped names only.
pub fn owner(topic: &str) -> TopicOwner<'_> {
    escaped_owner(topic).unwrap_or(TopicOwner {
        virtual_host: Some(Cow::Borrowed(DEFAULT_VHOST)),
        queue: Some(Cow::Borrowed(topic)),
    })
}

/// Whether the topic of this name belongs to another virtual host than `/`.
pub fn is_of_other_vhost(topic: &str) -> bool {
    topic.starts_with(ESCAPED_PREFIX) && !owner(topic).is_default()
}

fn escaped_owner(topic: &str) -> Option<TopicOwner<'_>> {
    let rest = topic.strip_prefix(ESCAPED_PREFIX)?;
    let is_shortened = is_shortened(topic);
    let (virtual_host, queue) = rest.split_once('.')?;
    // Shortened within the virtual host's name, or a name that looks like one: the two are indistinguishable.
    if is_shortened && topic.len() - HASH_BYTES < ESCAPED_PREFIX.len() + virtual_host.len() + 1 {
        return Some(TopicOwner { virtual_host: None, queue: None });
    }
    let virtual_host = unescape(virtual_host)?;
    let queue = match is_shortened {
        true => None,
        // A name that no queue has: a topic that is no queue of the virtual host.
        false => Some(unescape_parts(queue)),
    };
    Some(TopicOwner { virtual_host: Some(virtual_host), queue })
}

/// Whether the name has the form of one that was over the limit.
fn is_shortened(topic: &str) -> bool {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    topic.len() == TOPIC_NAME_BYTES_MAX
        && topic.as_bytes().split_last_chunk::<HASH_BYTES>().is_some_and(|(_, hash)| {
            let [dot, digits @ ..] = hash;
            *dot == b'.' && digits.iter().all(is_digit)
        })
}

fn unescape_parts(queue: &str) -> Cow<'_, str> {
    if !queue.contains('.') {
        return unescape(queue).unwrap_or(Cow::Borrowed(queue));
    }
    let parts = queue.split('.').map(|part| unescape(part).unwrap_or(Cow::Borrowed(part)));
    Cow::Owned(parts.collect::<Vec<_>>().join("."))
}

/// The text whose [`escape`] is exactly this.
fn unescape(escaped: &str) -> Option<Cow<'_, str>> {
    if escaped.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Some(Cow::Borrowed(escaped));
    }
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        match byte {
            b'-' => {
                let (digits, tail) = rest.split_first_chunk::<2>()?;
                let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
                bytes.push(byte);
                rest = tail;
            }
            byte if byte.is_ascii_alphanumeric() => bytes.push(*byte),
            _ => return None,
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    let mut again = String::with_capacity(escaped.len());
    escape(&text, &mut again);
    (again == escaped).then_some(Cow::Owned(text))
}

/// The topic that stores a queue's messages if its plain name is taken or impossible.
pub fn escaped_topic_name(vhost: &str, queue: &str) -> String {
    let mut name = String::from(ESCAPED_PREFIX);
    escape(vhost, &mut name);
    name.push('.');
    escape(queue, &mut name);
    if name.len() > TOPIC_NAME_BYTES_MAX {
        let hash = hash_128(name.as_bytes());
        name.truncate(TOPIC_NAME_BYTES_MAX - HASH_BYTES);
        name.push_str(&format!(".{hash:032x}"));
    }
    name
}

fn escape(text: &str, name: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            name.push(char::from(byte));
        } else {
            name.push('-');
            name.push(char::from(DIGITS[usize::from(byte >> 4)]));
            name.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

/// FNV-1a. It only has to separate names of users; a declaration compares the full name that the topology keeps.
fn hash_128(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(topic: &str) -> (Option<String>, Option<String>) {
        let TopicOwner { virtual_host, queue } = owner(topic);
        (virtual_host.map(Cow::into_owned), queue.map(Cow::into_owned))
    }

    fn known(virtual_host: &str, queue: &str) -> (Option<String>, Option<String>) {
        (Some(virtual_host.to_owned()), Some(queue.to_owned()))
    }

    #[test]
    fn name_below_a_vhost_belongs_to_that_vhost() {
        assert_eq!(of("amqp.shop.secretq"), known("shop", "secretq"));
        assert_eq!(of("amqp.a-20b.orders-2D1"), known("a b", "orders-1"));
        assert_eq!(of("amqp.-2F.a-20b"), known("/", "a b"));
        // No queue has these, and a Kafka client can create them.
        assert_eq!(of("amqp.shop.secretq.dead"), known("shop", "secretq.dead"));
        assert_eq!(of("amqp.shop.a-2Db.dead"), known("shop", "a-b.dead"));
        assert_eq!(of("amqp.shop.a_b"), known("shop", "a_b"));
        assert_eq!(of("amqp.shop."), known("shop", ""));
        assert!(is_of_other_vhost("amqp.shop.q") && !is_of_other_vhost("amqp.-2F.a-20b"));
    }

    #[test]
    fn name_that_no_other_vhost_can_produce_belongs_to_the_default_vhost() {
        for plain in
            ["orders", "amqp.orders", "amqp.", "amqp", "amqp.a_b.q", "amqp.-2.q", "amqp.-2f.q"]
        {
            assert_eq!(of(plain), known("/", plain), "{plain}");
            assert!(!is_of_other_vhost(plain), "{plain}");
        }
    }

    #[test]
    fn shortened_name_keeps_its_vhost_only_where_it_holds_it() {
        let long = "q".repeat(250);
        assert_eq!(of(&escaped_topic_name("shop", &long)), (Some("shop".to_owned()), None));
        // A name of 210 bytes fits with the dot behind it, one of 211 does not.
        for (bytes, is_known) in [(209, true), (210, true), (211, false), (250, false)] {
            let vhost = "v".repeat(bytes);
            let (found, queue) = of(&escaped_topic_name(&vhost, &long));
            assert_eq!(found, is_known.then_some(vhost), "{bytes}");
            assert_eq!(queue, None);
        }
        // Not shortened, and indistinguishable from a shortened one.
        let looks_alike = format!("amqp.{}.{}", "v".repeat(211), "a".repeat(32));
        assert_eq!(looks_alike.len(), TOPIC_NAME_BYTES_MAX);
        assert_eq!(of(&looks_alike), (None, None));
        assert!(is_of_other_vhost(&looks_alike));
    }

    proptest! {
        #[test]
        fn owner_of_a_queue_topic_is_never_another_vhost(
            vhost in "\\PC{0,90}", queue in "\\PC{0,120}",
        ) {
            let topic = escaped_topic_name(&vhost, &queue);
            let (found, name) = of(&topic);
            prop_assert!(found.is_none() || found.as_deref() == Some(&*vhost), "{topic}");
            prop_assert!(name.is_none() || name.as_deref() == Some(&*queue), "{topic}");
            if topic.len() < TOPIC_NAME_BYTES_MAX {
                prop_assert_eq!((found, name), known(&vhost, &queue));
            }
        }
    }
}
