//! Which topic a queue is.
//!
//! A queue of vhost `/` is the topic of the same name wherever a topic may have that name, so that
//! a topic made through Kafka is a queue as it is, and a queue is a topic that Kafka's clients find
//! under the name they expect. A topic's name is ASCII letters, digits, `.`, `_` and `-`, at most
//! 249 of them; every other queue, and every queue of another vhost, is the topic
//! `amqp.<vhost>.<queue>` with both parts escaped: letters and digits stand for themselves, any
//! other byte is `-` and two hexadecimal digits (`-20` is a space, `-2D` a dash, `-2F` a slash).
//! What would be too long keeps its beginning and ends with `.` and 32 digits of a hash.
//!
//! Escaped names hold no `.` but the two that part them and no `_` at all. So two of them never
//! differ in `.` and `_` only, which Kafka forbids; a queue whose plain name collides in that way
//! with a topic that exists can be given its escaped one ([`escaped_topic_name`]).

use base::limits::TOPIC_NAME_BYTES_MAX;
use broker::validate_topic_name;
use world::Entropy;

/// The vhost that is there from the start, and the one whose queues are plain topics.
pub const DEFAULT_VHOST: &str = "/";

const ESCAPED_PREFIX: &str = "amqp.";
/// A dot and 128 bits.
const HASH_BYTES: usize = 33;

/// The topic that stores a queue's messages.
pub fn topic_name(vhost: &str, queue: &str) -> String {
    let plain = vhost == DEFAULT_VHOST
        && !queue.starts_with(ESCAPED_PREFIX)
        && validate_topic_name(queue).is_ok();
    if plain { queue.to_owned() } else { escaped_topic_name(vhost, queue) }
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

/// FNV-1a. It only has to tell apart what people name; who declares a queue compares the full name
/// that the topology keeps.
fn hash_128(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

/// The name of a queue that its client gives none: `amq.gen-` and 128 random bits, as RabbitMQ writes
/// them.
pub(crate) fn generated_queue_name(entropy: &dyn Entropy) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    format!("amq.gen-{}", URL_SAFE_NO_PAD.encode(entropy.uuid().as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_queue_that_can_be_a_topic_is_the_topic_of_its_name() {
        for name in ["orders", "orders.eu_west-1", "celery", "A"] {
            assert_eq!(topic_name("/", name), name);
        }
    }

    #[test]
    fn other_names_and_other_vhosts_are_escaped() {
        assert_eq!(topic_name("/", "a b"), "amqp.-2F.a-20b");
        assert_eq!(topic_name("/", ".."), "amqp.-2F.-2E-2E");
        assert_eq!(topic_name("prod", "orders-1"), "amqp.prod.orders-2D1");
        assert_eq!(topic_name("/", "ü"), "amqp.-2F.-C3-BC");
        // Or a queue could claim the topic of another vhost's.
        assert_eq!(topic_name("/", "amqp.prod.orders"), "amqp.-2F.amqp-2Eprod-2Eorders");
    }

    proptest! {
        #[test]
        fn every_queue_has_a_topic_of_its_own(
            (first, second) in (("[/ab]{1,2}", "\\PC{0,120}"), ("[/ab]{1,2}", "\\PC{0,120}")),
        ) {
            let names = [&first, &second].map(|(vhost, queue)| topic_name(vhost, queue));
            for name in &names {
                prop_assert!(validate_topic_name(name).is_ok(), "{name}");
            }
            prop_assert_eq!(names[0] == names[1], first == second);
        }
    }
}
