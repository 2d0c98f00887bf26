//! Exchanges: their types, and what each type checks.

use std::sync::Arc;

use routing::{Arguments, HashOn, HeaderMatch, HeaderPattern, Kind, NodeId, Property};

use super::values::{assert_equivalent, assert_same, binary, pattern, term};
use crate::codec::table::{FieldTable, FieldValue};
use crate::errors::{Exception, ReplyCode, Resource};

pub(super) const ALTERNATE_EXCHANGE: &str = "alternate-exchange";

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExchangeKind {
    Direct,
    Fanout,
    Topic,
    Headers,
    ConsistentHash,
    /// One of its queues gets a message: here any of them, as a node alone has them all.
    LocalRandom,
    /// Holds back a message that has `x-delay`, and matches as `x-delayed-type` says.
    Delayed,
}

impl ExchangeKind {
    const ALL: [Self; 7] = [
        Self::Direct,
        Self::Fanout,
        Self::Topic,
        Self::Headers,
        Self::ConsistentHash,
        Self::LocalRandom,
        Self::Delayed,
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
        }
    }

    /// As RabbitMQ's texts have it: an Erlang atom, in quotes if it is more than a word.
    fn atom(self) -> String {
        let name = self.name();
        if name.contains('-') { format!("'{name}'") } else { name.to_owned() }
    }

    pub(super) fn named(name: &str) -> Result<Self, Exception> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            Exception::precondition_failed(format!("unknown exchange type '{name}'"))
        })
    }
}

/// What `exchange.declare` says.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeDeclaration<'a> {
    pub name: &'a str,
    pub kind: &'a str,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: &'a FieldTable,
}

/// Those that every vhost has: name, type, internal.
pub(super) const PREDECLARED: [(&str, ExchangeKind, bool); 7] = [
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
    pub arguments: FieldTable,
    /// The policy and the operator policy that hold for it.
    pub policy: Option<Arc<str>>,
    pub operator_policy: Option<Arc<str>>,
    pub(super) node: NodeId,
    /// Tells it from one that had its name before.
    pub(super) generation: u64,
    /// Of its document; 0 if it has none.
    pub(super) version: u64,
    /// Who gets what it matches nothing for: its argument, or its policy.
    pub(super) alternate: Option<Arc<str>>,
}

impl Exchange {
    pub fn resource(&self) -> Resource<'_> {
        Resource::exchange(&self.name, &self.vhost)
    }

    /// Holds messages back that ask for it.
    pub fn delays(&self) -> bool {
        self.kind == ExchangeKind::Delayed
    }

    /// What a message costs here: how its bindings are matched.
    pub(super) fn matching(&self) -> Kind {
        matching(self.kind, &self.arguments)
    }

    pub(super) fn check_equivalent(
        &self,
        kind: ExchangeKind,
        declaration: &ExchangeDeclaration<'_>,
    ) -> Result<(), Exception> {
        let exchange = self.resource();
        assert_same(exchange, "type", self.kind.atom(), kind.atom())?;
        assert_same(exchange, "durable", self.durable, declaration.durable)?;
        assert_same(exchange, "auto_delete", self.auto_delete, declaration.auto_delete)?;
        assert_same(exchange, "internal", self.internal, declaration.internal)?;
        let current = self.arguments.get(ALTERNATE_EXCHANGE);
        let received = declaration.arguments.get(ALTERNATE_EXCHANGE);
        assert_equivalent(exchange, ALTERNATE_EXCHANGE, current, received)
    }
}

pub(super) fn matching(kind: ExchangeKind, arguments: &FieldTable) -> Kind {
    match kind {
        ExchangeKind::Direct => Kind::Direct,
        ExchangeKind::Fanout => Kind::Fanout,
        ExchangeKind::Topic => Kind::Topic,
        ExchangeKind::Headers => Kind::Headers,
        ExchangeKind::ConsistentHash => Kind::Consistent(hash_on(arguments)),
        ExchangeKind::LocalRandom => Kind::Random,
        ExchangeKind::Delayed => {
            let inner = arguments.get("x-delayed-type").and_then(FieldValue::as_str);
            // Checked when it was declared.
            match ExchangeKind::named(inner.unwrap_or_default()) {
                Ok(ExchangeKind::Delayed) | Err(_) => Kind::Direct,
                Ok(inner) => matching(inner, arguments),
            }
        }
    }
}

fn hash_on(arguments: &FieldTable) -> HashOn {
    let text = |name| arguments.get(name).and_then(FieldValue::as_str);
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

/// Whether an exchange of this type may have these arguments.
pub(super) fn check_arguments(
    exchange: Resource<'_>,
    kind: ExchangeKind,
    arguments: &FieldTable,
) -> Result<(), Exception> {
    check_text(exchange, ALTERNATE_EXCHANGE, arguments)?;
    match kind {
        ExchangeKind::ConsistentHash => check_hash(exchange, arguments),
        ExchangeKind::Delayed => {
            let inner = arguments.get("x-delayed-type").and_then(FieldValue::as_str);
            match inner {
                None => Err(Exception::precondition_failed(
                    "Invalid argument, 'x-delayed-type' must be an existing exchange type",
                )),
                Some("x-delayed-message") => Err(Exception::precondition_failed(
                    "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
                )),
                Some(inner) => match ExchangeKind::named(inner)? {
                    ExchangeKind::ConsistentHash => check_hash(exchange, arguments),
                    _ => Ok(()),
                },
            }
        }
        _ => Ok(()),
    }
}

fn check_hash(exchange: Resource<'_>, arguments: &FieldTable) -> Result<(), Exception> {
    // RabbitMQ fails with an internal error where these are no text.
    check_text(exchange, "hash-header", arguments)?;
    check_text(exchange, "hash-property", arguments)?;
    match (arguments.get("hash-header"), arguments.get("hash-property")) {
        (Some(_), Some(_)) => Err(Exception::precondition_failed(
            "hash-header and hash-property are mutually exclusive",
        )),
        (None, Some(property)) => match property.as_str().unwrap_or_default() {
            "correlation_id" | "message_id" | "timestamp" => Ok(()),
            other => Err(Exception::precondition_failed(format!("Unsupported property: {other}"))),
        },
        _ => Ok(()),
    }
}

pub(super) fn check_text(
    resource: Resource<'_>,
    name: &str,
    arguments: &FieldTable,
) -> Result<(), Exception> {
    match arguments.get(name) {
        Some(value) if value.as_str().is_none() => Err(Exception::precondition_failed(format!(
            "invalid type '{}' for arg '{name}' in {resource}",
            value.kind_name()
        ))),
        _ => Ok(()),
    }
}

// --------------------------------------------------------------------------------- bindings

/// What a type of exchange reads of a binding.
#[derive(Clone, Debug)]
pub(super) enum Matched {
    Key,
    Headers(HeaderPattern),
    Weight(u32),
}

impl Matched {
    pub(super) fn arguments<'a>(&'a self, key: &'a str) -> Arguments<'a> {
        match self {
            Self::Key => Arguments::Key(key),
            Self::Headers(pattern) => Arguments::Headers(pattern),
            Self::Weight(weight) => Arguments::Weight(*weight),
        }
    }
}

/// Reads a binding as its exchange's type does, or refuses it.
pub(super) fn matched(
    kind: &Kind,
    key: &str,
    arguments: &FieldTable,
) -> Result<Matched, Exception> {
    match kind {
        Kind::Headers => header_pattern(arguments).map(Matched::Headers),
        Kind::Consistent(_) => weight(key).map(Matched::Weight),
        Kind::Random if !key.is_empty() => {
            let text = format!("Non empty binding '{key}' key not permitted");
            Err(Exception::precondition_failed(text))
        }
        _ => Ok(Matched::Key),
    }
}

fn header_pattern(arguments: &FieldTable) -> Result<HeaderPattern, Exception> {
    let (which, with_x) = match arguments.get("x-match") {
        None => (HeaderMatch::All, false),
        Some(FieldValue::LongString(text)) => match &text[..] {
            b"all" => (HeaderMatch::All, false),
            b"any" => (HeaderMatch::Any, false),
            b"all-with-x" => (HeaderMatch::All, true),
            b"any-with-x" => (HeaderMatch::Any, true),
            other => {
                return Err(Exception::precondition_failed(format!(
                    "Invalid x-match field value {}; expected all, any, all-with-x, or any-with-x",
                    binary(other)
                )));
            }
        },
        Some(other) => {
            return Err(Exception::precondition_failed(format!(
                "Invalid x-match field type {} (value {}); expected longstr",
                other.kind_name(),
                term(other)
            )));
        }
    };
    let counts = |name: &str| if with_x { name != "x-match" } else { !name.starts_with("x-") };
    let pairs = arguments.0.iter().filter(|(name, _)| counts(name));
    let pairs = pairs.map(|(name, value)| (name.as_str().into(), pattern(value))).collect();
    Ok(HeaderPattern { which, pairs })
}

/// A binding's share of a consistent hash, which its key says. RabbitMQ makes that many buckets;
/// here they cost nothing, and the number has 32 bits.
fn weight(key: &str) -> Result<u32, Exception> {
    let number = key.strip_prefix('+').unwrap_or(key);
    let digits = number.strip_prefix('-').unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Exception::precondition_failed(format!(
            "The binding key must be an integer: {}",
            binary(key.as_bytes())
        )));
    }
    match number.parse::<u32>() {
        Ok(weight @ 1..) => Ok(weight),
        Ok(0) => Err(not_positive()),
        Err(_) if number.starts_with('-') => Err(not_positive()),
        Err(_) => Err(Exception::new(
            ReplyCode::PreconditionFailed,
            format!("The binding key must be less than 4294967296: {key}"),
        )),
    }
}

fn not_positive() -> Exception {
    Exception::precondition_failed("The binding key must be greater than 0")
}
