//! The topic of a queue.
//!
//! A queue of vhost `/` is the topic of the same name wherever a topic may have that name. So a topic created through
//! Kafka is usable as a queue, and Kafka's clients find a queue as a topic under the expected name. A topic's name is
//! ASCII letters, digits, `.`, `_` and `-`, at most 249 of them. Every other queue, and every queue of another vhost,
//! is the topic `amqp.<vhost>.<queue>` with both parts escaped: letters and digits stand for themselves, any other
//! byte is `-` and two hexadecimal digits (`-20` is a space, `-2D` a dash, `-2F` a slash). A name that would be too
//! long keeps its beginning and ends with `.` and 32 digits of a hash.
//!
//! Escaped names hold no `.` but the two separators and no `_` at all. So two of them never differ in `.` and `_`
//! only, which Kafka forbids. A queue whose plain name collides in that way with an existing topic can get its
//! escaped name ([`escaped_topic_name`]).

use base::queue_topics::ESCAPED_PREFIX;
pub use base::queue_topics::{DEFAULT_VHOST, escaped_topic_name};
use broker::validate_topic_name;
use world::Entropy;

/// The topic that stores a queue's messages.
pub fn topic_name(vhost: &str, queue: &str) -> String {
    let plain = vhost == DEFAULT_VHOST
        && !queue.starts_with(ESCAPED_PREFIX)
        && validate_topic_name(queue).is_ok();
    if plain { queue.to_owned() } else { escaped_topic_name(vhost, queue) }
}

/// Generates a queue name for a declaration without one: `amq.gen-` and 128 random bits, as in RabbitMQ.
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
    fn queue_with_a_valid_topic_name_is_that_topic() {
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
        // Otherwise a queue could claim the topic of another vhost's queue.
        assert_eq!(topic_name("/", "amqp.prod.orders"), "amqp.-2F.amqp-2Eprod-2Eorders");
    }

    proptest! {
        #[test]
        fn distinct_queues_have_distinct_valid_topic_names(
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
