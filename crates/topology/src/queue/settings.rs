//! A queue's settings from its arguments and policies, and their translation to the broker's configuration.
//!
//! | argument or policy | here |
//! | --- | --- |
//! | `x-message-ttl` | lease group `record.ttl.ms` |
//! | `x-expires` | the topology deletes a queue that is not used |
//! | `x-max-length`, `x-max-length-bytes` | topic `limit.records`, `limit.bytes`; a stream's bytes: `retention.bytes` |
//! | `x-overflow` | topic `limit.overflow`: `drop-oldest`, `reject`, `reject-dead-letter` |
//! | `x-dead-letter-exchange`, `-routing-key` | lease group `dead.letter.route` |
//! | `x-dead-letter-strategy` | always met: a dead letter is in the log entry that settles the record |
//! | `x-max-priority` | topic `priorities.max`; a quorum queue has `priorities.order` `two-to-one` |
//! | `x-delivery-limit` | lease group `attempts.max`, one more: the limit counts failed deliveries |
//! | `x-single-active-consumer` | lease group `consumers` |
//! | `x-postroad-ordering` | lease group `ordering` |
//! | `x-max-age` | topic `retention.ms` |
//! | `x-consumer-timeout` | [`QueueSettings::consumer_timeout_ms`], enforced by the channels |
//! | `x-queue-mode`, `x-queue-version`, `x-max-in-memory-*` | always met: memory follows the records in flight |
//! | `x-queue-leader-locator`, `x-queue-master-locator`, `x-quorum-initial-group-size`, `x-initial-cluster-size`, `target-group-size` | always met: a node alone is every member and the leader |
//! | `x-stream-max-segment-size-bytes`, `x-stream-filter-size-bytes` | always met: records are filtered exactly, one by one |

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::config::LeaseOrdering;
use operations::amqp::Definition;
use serde_json::Value as Json;
use values::{Table, Value};

use super::QueueKind;
use crate::arguments::{ORDERING, max_age_ms};

/// Delivery limit of a quorum queue without a setting.
const DELIVERY_LIMIT_DEFAULT: i64 = 20;

/// Largest batch of a queue's topic: a message of RabbitMQ's largest size (16 MiB, its `max_message_size`), and its
/// headers.
const MESSAGE_BATCH_BYTES_MAX: u32 = 17 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Overflow {
    DropHead,
    RejectPublish,
    RejectPublishDlx,
}

/// The effective settings of a queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct QueueSettings {
    pub message_ttl_ms: Option<i64>,
    pub expires_ms: Option<i64>,
    pub max_length: Option<i64>,
    pub max_length_bytes: Option<i64>,
    pub overflow: Option<Overflow>,
    pub dead_letter_exchange: Option<Arc<str>>,
    pub dead_letter_routing_key: Option<Arc<str>>,
    pub max_priority: Option<u8>,
    /// `None`: any number of deliveries.
    pub delivery_limit: Option<i64>,
    pub single_active_consumer: bool,
    /// `None`: not set, and messages are delivered in any order.
    pub ordering: Option<LeaseOrdering>,
    /// Acknowledgement timeout of consumers; `None`: the node's default.
    pub consumer_timeout_ms: Option<i64>,
    pub max_age_ms: Option<i64>,
    /// The policies merged into the settings.
    pub policy: Option<Arc<str>>,
    pub operator_policy: Option<Arc<str>>,
}

/// The policies that apply to one entity, and their merged settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyMatch {
    pub(crate) policy: Option<Arc<str>>,
    pub(crate) operator_policy: Option<Arc<str>>,
    pub(crate) definition: Definition,
}

/// Precedence when both the argument and a policy have a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Precedence {
    Least,
    Argument,
    Policy,
}

/// The two sources of a queue's settings.
struct Sources<'a> {
    arguments: &'a Table,
    policy: &'a Definition,
}

impl Sources<'_> {
    fn number(&self, name: &str, precedence: Precedence) -> Option<i64> {
        let argument = self.argument(name).and_then(Value::as_integer);
        let policy = self.policy.get(name).and_then(Json::as_i64);
        match (argument, policy) {
            (Some(argument), Some(policy)) => Some(match precedence {
                Precedence::Least => argument.min(policy),
                Precedence::Argument => argument,
                Precedence::Policy => policy,
            }),
            (argument, policy) => argument.or(policy),
        }
    }

    fn text(&self, name: &str, precedence: Precedence) -> Option<&str> {
        let argument = self.argument(name).and_then(Value::as_str);
        let policy = self.policy.get(name).and_then(Json::as_str);
        match precedence {
            Precedence::Policy => policy.or(argument),
            _ => argument.or(policy),
        }
    }

    fn argument(&self, name: &str) -> Option<&Value> {
        let argument = |(key, _): &&(String, Value)| key.strip_prefix("x-") == Some(name);
        self.arguments.0.iter().find(argument).map(|(_, value)| value)
    }
}

impl QueueSettings {
    pub(crate) fn new(kind: QueueKind, arguments: &Table, policies: &PolicyMatch) -> Self {
        let from = Sources { arguments, policy: &policies.definition };
        let stream = kind == QueueKind::Stream;
        let (limit, overflow) = match kind {
            QueueKind::Stream => (Precedence::Policy, Precedence::Policy),
            QueueKind::Quorum => (Precedence::Least, Precedence::Policy),
            QueueKind::Classic => (Precedence::Least, Precedence::Argument),
        };
        let overflow = from.text("overflow", overflow).and_then(|named| match named {
            "drop-head" => Some(Overflow::DropHead),
            "reject-publish" => Some(Overflow::RejectPublish),
            "reject-publish-dlx" => Some(Overflow::RejectPublishDlx),
            _ => None,
        });
        let text = |name| from.text(name, Precedence::Argument).map(Arc::from);
        let single_active = arguments.get("x-single-active-consumer");
        Self {
            message_ttl_ms: from.number("message-ttl", Precedence::Least),
            expires_ms: from.number("expires", Precedence::Least),
            max_length: from.number("max-length", limit),
            max_length_bytes: from.number("max-length-bytes", limit),
            overflow,
            dead_letter_exchange: text("dead-letter-exchange"),
            dead_letter_routing_key: text("dead-letter-routing-key"),
            // As in RabbitMQ, a queue with priorities has at least two of them.
            max_priority: from
                .argument("max-priority")
                .and_then(Value::as_integer)
                .map(|priority| u8::try_from(priority.clamp(1, 255)).unwrap_or(u8::MAX)),
            delivery_limit: (kind == QueueKind::Quorum)
                .then(|| delivery_limit(&from))
                .filter(|limit| *limit >= 0),
            single_active_consumer: !stream && single_active.and_then(Value::as_bool) == Some(true),
            ordering: arguments
                .get(ORDERING)
                .and_then(Value::as_str)
                .and_then(LeaseOrdering::parse),
            consumer_timeout_ms: from.number("consumer-timeout", Precedence::Least),
            max_age_ms: from.text("max-age", Precedence::Policy).and_then(max_age_ms),
            policy: policies.policy.clone(),
            operator_policy: policies.operator_policy.clone(),
        }
    }

    /// Configuration of the queue's topic.
    pub(crate) fn topic_config(&self, kind: QueueKind, durable: bool) -> BTreeMap<String, String> {
        let mut config = BTreeMap::new();
        let mut set = |name: &str, value: String| config.insert(name.to_owned(), value);
        set("max.message.bytes", MESSAGE_BATCH_BYTES_MAX.to_string());
        if !durable {
            // A transient queue does not outlive the node, so waiting for the disk gains nothing.
            set("durability", "replicated".to_owned());
        }
        if kind == QueueKind::Stream {
            set("retention.ms", self.max_age_ms.unwrap_or(-1).to_string());
            set("retention.bytes", self.max_length_bytes.unwrap_or(-1).to_string());
            return config;
        }
        set("retention.ms", "-1".to_owned());
        set("retention.settled", "true".to_owned());
        if kind == QueueKind::Quorum {
            set("priorities.order", "two-to-one".to_owned());
        }
        if let Some(priority) = self.max_priority {
            set("priorities.max", priority.to_string());
        }
        if let Some(records) = self.max_length {
            set("limit.records", records.to_string());
        }
        if let Some(bytes) = self.max_length_bytes {
            set("limit.bytes", bytes.to_string());
        }
        if self.max_length.is_some() || self.max_length_bytes.is_some() {
            let overflow = match self.overflow {
                None | Some(Overflow::DropHead) => "drop-oldest",
                Some(Overflow::RejectPublish) => "reject",
                Some(Overflow::RejectPublishDlx) => "reject-dead-letter",
            };
            set("limit.overflow", overflow.to_owned());
        }
        config
    }

    /// Configuration of the queue's lease group.
    pub(crate) fn lease_config(&self, vhost: &str, queue: &str) -> BTreeMap<String, String> {
        let mut config = BTreeMap::new();
        let mut set = |name: &str, value: String| config.insert(name.to_owned(), value);
        // A delivery belongs to its consumer until it is acknowledged or the connection ends.
        set("lease.ms", "0".to_owned());
        if self.single_active_consumer {
            set("consumers", "single-active".to_owned());
        }
        if let Some(ordering) = self.ordering {
            set("ordering", ordering.name().to_owned());
        }
        if let Some(ttl) = self.message_ttl_ms {
            set("record.ttl.ms", ttl.to_string());
        }
        if let Some(limit) = self.delivery_limit {
            set("attempts.max", limit.saturating_add(1).min(i64::from(u16::MAX)).to_string());
        }
        if let Some(exchange) = &self.dead_letter_exchange {
            let route = crate::dead_letter::Route {
                vhost: vhost.into(),
                queue: queue.into(),
                exchange: exchange.as_ref().into(),
                routing_key: self.dead_letter_routing_key.as_deref().map(Into::into),
            };
            set("dead.letter.route", route.to_string());
        }
        config
    }
}

/// Names of a topic's configuration that are set here; others are left unchanged.
pub(crate) const TOPIC_CONFIGS: [&str; 10] = [
    "durability",
    "limit.bytes",
    "limit.overflow",
    "limit.records",
    "max.message.bytes",
    "priorities.max",
    "priorities.order",
    "retention.bytes",
    "retention.ms",
    "retention.settled",
];

/// Names of a lease group's configuration that are derived from a queue's settings.
pub(crate) const LEASE_CONFIGS: [&str; 5] =
    ["attempts.max", "consumers", "dead.letter.route", "lease.ms", "record.ttl.ms"];

fn delivery_limit(from: &Sources<'_>) -> i64 {
    let argument = from.argument("delivery-limit").and_then(Value::as_integer);
    let policy = from.policy.get("delivery-limit").and_then(Json::as_i64);
    match (argument, policy) {
        // A negative value is no limit, and a limit is stricter.
        (Some(a), Some(b)) if a < 0 || b < 0 => a.max(b),
        (Some(a), Some(b)) => a.min(b),
        (argument, policy) => argument.or(policy).unwrap_or(DELIVERY_LIMIT_DEFAULT),
    }
}
