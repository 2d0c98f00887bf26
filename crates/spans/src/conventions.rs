//! How OpenTelemetry names things: the semantic conventions for messaging, version 1.37. Those of messaging are still in
//! development there, so their names stand here and nowhere else.

use broker::delivery::DeadReason;
use broker::delivery::What;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// What a span is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Append,
    Deliver,
    Settle,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Append => "append",
            Self::Deliver => "deliver",
            Self::Settle => "settle",
        }
    }

    /// `messaging.operation.type`.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Append => "send",
            Self::Deliver => "receive",
            Self::Settle => "settle",
        }
    }
}

/// What a record came to, as `GET /v1/trace` says it too. `None`: it is still with whoever has it.
pub(crate) fn outcome(what: What) -> Option<&'static str> {
    Some(match what {
        What::Leased | What::Withheld => return None,
        What::HandedOut => "delivered-and-settled",
        What::Accepted => "accepted",
        What::Released => "released",
        What::Rejected => "rejected",
        What::LeaseEnded => "timed-out",
        What::Left => "session-ended",
        What::GivenBack => "given-back",
        What::Voided => "voided",
        What::Died(DeadReason::Rejected) => "died: rejected",
        What::Died(DeadReason::Attempts) => "died: attempts",
        What::Died(DeadReason::Expired) => "died: expired",
        What::Ended => "settled",
        What::Removed => "removed",
    })
}

pub(crate) fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

pub(crate) fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

/// Of whatever is done to a record of a partition.
pub(crate) fn of_record(
    operation: Operation,
    topic: &str,
    partition: u32,
    offset: u64,
) -> Vec<KeyValue> {
    vec![
        text("messaging.system", "postroad"),
        text("messaging.destination.name", topic),
        text("messaging.destination.partition.id", partition.to_string()),
        text("messaging.operation.name", operation.name()),
        text("messaging.operation.type", operation.kind()),
        number("postroad.offset", offset),
    ]
}

/// The node that says it.
pub(crate) fn resource(node: u32, cluster: &str) -> Resource {
    let attributes = vec![
        text("service.name", "postroad"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", format!("{cluster}/{node}")),
        text("postroad.cluster.id", cluster),
        number("postroad.node.id", node.into()),
    ];
    Resource { attributes, ..Resource::default() }
}

pub(crate) fn scope() -> InstrumentationScope {
    let (name, version) = ("postroad".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version, ..InstrumentationScope::default() }
}
