//! Names of OpenTelemetry's semantic conventions, version 1.37. The messaging conventions are still in development, so
//! their names are used only here.

use broker::delivery::DeadReason;
use broker::delivery::StepKind;

use crate::otlp::{AnyValue, InstrumentationScope, KeyValue, Resource, Value};

/// Operation of a span.
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

    /// Value of `messaging.operation.type`.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Append => "send",
            Self::Deliver => "receive",
            Self::Settle => "settle",
        }
    }
}

/// Outcome of a delivery, with the names of `GET /v1/trace`. `None`: the consumer still has the record.
pub(crate) fn outcome(what: StepKind) -> Option<&'static str> {
    Some(match what {
        StepKind::Leased | StepKind::Withheld => return None,
        StepKind::HandedOut => "delivered-and-settled",
        StepKind::Accepted => "accepted",
        StepKind::Released => "released",
        StepKind::Rejected => "rejected",
        StepKind::LeaseEnded => "timed-out",
        StepKind::Left => "session-ended",
        StepKind::GivenBack => "given-back",
        StepKind::Voided => "voided",
        StepKind::Died(DeadReason::Rejected) => "died: rejected",
        StepKind::Died(DeadReason::Attempts) => "died: attempts",
        StepKind::Died(DeadReason::Expired) => "died: expired",
        StepKind::Ended => "settled",
        StepKind::Removed => "removed",
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
    KeyValue { key: key.to_owned(), value }
}

/// Attributes of any operation on a record.
pub(crate) fn record_attributes(
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

/// The node that reports the span.
pub(crate) fn resource(node: u32, cluster: &str) -> Resource {
    let attributes = vec![
        text("service.name", "postroad"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", format!("{cluster}/{node}")),
        text("postroad.cluster.id", cluster),
        number("postroad.node.id", node.into()),
    ];
    Resource { attributes }
}

pub(crate) fn scope() -> InstrumentationScope {
    let (name, version) = ("postroad".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    InstrumentationScope { name, version }
}
