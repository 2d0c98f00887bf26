//! Exchanges: their types, and the matching of each type.

use std::sync::Arc;

use routing::{Downstream, HashOn, Hop, Kind, NodeId, Property};
use values::{Table, Value};

use crate::arguments::{
    ALTERNATE_EXCHANGE, DELAYED_TYPE, DOWNSTREAM_NAME, DOWNSTREAM_VHOST, MAX_HOPS,
};

/// The destination of an exchange's binding.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Destination {
    Queue(Arc<str>),
    Exchange(Arc<str>),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExchangeKind {
    Direct,
    Fanout,
    Topic,
    Headers,
    ConsistentHash,
    /// Delivers a message to one of its queues. A node that is alone holds all of them, so it is any of them.
    LocalRandom,
    /// Delays a message that has `x-delay`, and matches as `x-delayed-type` specifies.
    Delayed,
    /// Declared by a federation link: passes on all messages that may go to the link's downstream.
    FederationUpstream,
}

impl ExchangeKind {
    const ALL: [Self; 8] = [
        Self::Direct,
        Self::Fanout,
        Self::Topic,
        Self::Headers,
        Self::ConsistentHash,
        Self::LocalRandom,
        Self::Delayed,
        Self::FederationUpstream,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Topic => "topic",
            Self::Headers => "headers",
            Self::ConsistentHash => "x-consistent-hash",
            Self::LocalRandom => "x-local-random",
            Self::Delayed => "x-delayed-message",
            Self::FederationUpstream => "x-federation-upstream",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// An exchange to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewExchange<'a> {
    pub name: &'a str,
    pub kind: ExchangeKind,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: &'a Table,
}

/// Exchanges of every vhost: name, type, internal.
pub(crate) const PREDECLARED: [(&str, ExchangeKind, bool); 7] = [
    ("", ExchangeKind::Direct, false),
    ("amq.direct", ExchangeKind::Direct, false),
    ("amq.fanout", ExchangeKind::Fanout, false),
    ("amq.headers", ExchangeKind::Headers, false),
    ("amq.match", ExchangeKind::Headers, false),
    ("amq.rabbitmq.trace", ExchangeKind::Topic, true),
    ("amq.topic", ExchangeKind::Topic, false),
];

#[derive(Clone, Debug)]
pub struct Exchange {
    pub vhost: Arc<str>,
    pub name: Arc<str>,
    pub kind: ExchangeKind,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: Table,
    /// The policy and the operator policy that apply to it.
    pub policy: Option<Arc<str>>,
    pub operator_policy: Option<Arc<str>>,
    pub(crate) node: NodeId,
    /// Version of its document, which distinguishes it from earlier exchanges of the name; 0: predeclared.
    pub(crate) version: u64,
    /// Exchange for unmatched messages, set by the argument or by a policy.
    pub(crate) alternate: Option<Arc<str>>,
}

impl Exchange {
    pub(crate) fn new(vhost: &Arc<str>, new: &NewExchange<'_>, version: u64) -> Self {
        Self {
            vhost: Arc::clone(vhost),
            name: Arc::from(new.name),
            kind: new.kind,
            durable: new.durable,
            auto_delete: new.auto_delete,
            internal: new.internal,
            arguments: new.arguments.clone(),
            policy: None,
            operator_policy: None,
            node: NodeId(0),
            version,
            alternate: None,
        }
    }

    /// The argument takes precedence over a policy.
    pub(crate) fn alternate_argument(&self) -> Option<&str> {
        self.arguments.get(ALTERNATE_EXCHANGE).and_then(Value::as_str)
    }

    /// Returns whether messages with a delay are held back.
    pub fn delays(&self) -> bool {
        self.kind == ExchangeKind::Delayed
    }

    /// How its bindings are matched.
    pub(crate) fn matching(&self) -> Kind {
        matching(self.kind, &self.arguments)
    }
}

pub(crate) fn matching(kind: ExchangeKind, arguments: &Table) -> Kind {
    match kind {
        ExchangeKind::Direct => Kind::Direct,
        ExchangeKind::Fanout => Kind::Fanout,
        ExchangeKind::Topic => Kind::Topic,
        ExchangeKind::Headers => Kind::Headers,
        ExchangeKind::ConsistentHash => Kind::Consistent(hash_on(arguments)),
        ExchangeKind::LocalRandom => Kind::Random,
        ExchangeKind::FederationUpstream => Kind::Upstream(downstream(arguments)),
        ExchangeKind::Delayed => {
            let inner = arguments.get(DELAYED_TYPE).and_then(Value::as_str);
            // Checked at the declaration.
            match ExchangeKind::named(inner.unwrap_or_default()) {
                Some(ExchangeKind::Delayed) | None => Kind::Direct,
                Some(inner) => matching(inner, arguments),
            }
        }
    }
}

fn downstream(arguments: &Table) -> Downstream {
    let text = |name| arguments.get(name).and_then(Value::as_str).map(str::to_owned);
    let hop = |(cluster, vhost)| Hop { cluster, vhost };
    Downstream {
        // Checked at the declaration.
        hops_max: arguments.get(MAX_HOPS).and_then(Value::as_integer).unwrap_or(1),
        itself: text(DOWNSTREAM_NAME).zip(text(DOWNSTREAM_VHOST)).map(hop),
    }
}

fn hash_on(arguments: &Table) -> HashOn {
    let text = |name| arguments.get(name).and_then(Value::as_str);
    if let Some(header) = text("hash-header") {
        return HashOn::Header(header.into());
    }
    match text("hash-property") {
        Some("correlation_id") => HashOn::Property(Property::CorrelationId),
        Some("message_id") => HashOn::Property(Property::MessageId),
        Some("timestamp") => HashOn::Property(Property::Timestamp),
        _ => HashOn::Key,
    }
}
