//! Exchanges of `exchange.declare` and `exchange.delete`: checked in RabbitMQ's order and refused in its words
//! (`rabbit_exchange`).

use base::Level;
use topology::arguments::{
    ALTERNATE_EXCHANGE, DELAYED_TYPE, DOWNSTREAM_NAME, DOWNSTREAM_VHOST, MAX_HOPS,
};
use topology::{Exchange, ExchangeKind, NewExchange, VirtualHost};

use super::values::{assert_equivalent, assert_same};
use super::{refuse_default, without_line_ends};
use crate::errors::{Exception, NamedEntity, Resource};
use crate::table::{FieldTable, FieldValue, kind_name};

/// The content of an `exchange.declare`.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeDeclaration<'a> {
    pub name: &'a str,
    pub kind: &'a str,
    pub durable: bool,
    pub auto_delete: bool,
    pub internal: bool,
    pub arguments: &'a FieldTable,
}

/// `exchange.declare`, not passive.
pub async fn declare(
    vhost: &VirtualHost,
    declaration: ExchangeDeclaration<'_>,
) -> Result<(), Exception> {
    let level = vhost.level();
    let kind = kind_named(declaration.kind, level)?;
    let name = without_line_ends(declaration.name);
    let ExchangeDeclaration { durable, auto_delete, internal, arguments, .. } = declaration;
    let new = NewExchange { name: &name, kind, durable, auto_delete, internal, arguments };
    let judge = |present: Option<&Exchange>| match present {
        Some(present) => check_equivalent(present, &new),
        None => check_arguments(Resource::exchange(&name, vhost.name()), kind, arguments, level),
    };
    vhost.declare_exchange(new, judge).await
}

/// `exchange.declare`, passive: checks that the exchange exists.
pub async fn check(vhost: &VirtualHost, name: &str) -> Result<(), Exception> {
    let name = without_line_ends(name);
    refuse_default(&name)?;
    vhost.refresh().await?;
    if vhost.has_exchange(&name) {
        return Ok(());
    }
    Err(Exception::not_found(Resource::exchange(&name, vhost.name())))
}

/// `exchange.delete`. A missing exchange counts as deleted.
pub async fn delete(vhost: &VirtualHost, name: &str, if_unused: bool) -> Result<(), Exception> {
    Ok(vhost.delete_exchange(&without_line_ends(name), if_unused).await?)
}

/// Returns the type of this name. `level` is the feature level of the cluster, of which some nodes may not know the
/// type.
fn kind_named(name: &str, level: Level) -> Result<ExchangeKind, Exception> {
    let unknown = || Exception::precondition_failed(format!("unknown exchange type '{name}'"));
    let is_known = |kind: &ExchangeKind| {
        *kind != ExchangeKind::FederationUpstream || level >= Level::FEDERATION
    };
    ExchangeKind::named(name).filter(is_known).ok_or_else(unknown)
}

/// The type as RabbitMQ's texts show it: an Erlang atom, quoted if it contains a dash.
fn atom(kind: ExchangeKind) -> String {
    let name = kind.name();
    if name.contains('-') { format!("'{name}'") } else { name.to_owned() }
}

/// Checks that a declaration equals the existing exchange.
fn check_equivalent(present: &Exchange, new: &NewExchange<'_>) -> Result<(), Exception> {
    let exchange = present.resource();
    assert_same(exchange, "type", atom(present.kind), atom(new.kind))?;
    assert_same(exchange, "durable", present.durable, new.durable)?;
    assert_same(exchange, "auto_delete", present.auto_delete, new.auto_delete)?;
    assert_same(exchange, "internal", present.internal, new.internal)?;
    let same = |name| {
        let (current, received) = (present.arguments.get(name), new.arguments.get(name));
        assert_equivalent(exchange, name, current, received)
    };
    if new.kind == ExchangeKind::FederationUpstream {
        [MAX_HOPS, DOWNSTREAM_NAME, DOWNSTREAM_VHOST].into_iter().try_for_each(same)?;
    }
    same(ALTERNATE_EXCHANGE)
}

/// Checks the arguments of an exchange of this type.
fn check_arguments(
    exchange: Resource<'_>,
    kind: ExchangeKind,
    arguments: &FieldTable,
    level: Level,
) -> Result<(), Exception> {
    check_text(exchange, ALTERNATE_EXCHANGE, arguments)?;
    match kind {
        ExchangeKind::ConsistentHash => check_hash(exchange, arguments),
        ExchangeKind::Delayed => {
            let inner = arguments.get(DELAYED_TYPE).and_then(FieldValue::as_str);
            match inner {
                None => Err(Exception::precondition_failed(
                    "Invalid argument, 'x-delayed-type' must be an existing exchange type",
                )),
                Some("x-delayed-message") => Err(Exception::precondition_failed(
                    "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
                )),
                Some(inner) => match kind_named(inner, level)? {
                    ExchangeKind::ConsistentHash => check_hash(exchange, arguments),
                    ExchangeKind::FederationUpstream => check_hops(arguments),
                    _ => Ok(()),
                },
            }
        }
        ExchangeKind::FederationUpstream => check_hops(arguments),
        _ => Ok(()),
    }
}

/// The texts are those of RabbitMQ's federation.
fn check_hops(arguments: &FieldTable) -> Result<(), Exception> {
    match arguments.get(MAX_HOPS) {
        Some(FieldValue::I64(_)) => Ok(()),
        None => Err(Exception::precondition_failed(format!("Argument \"{MAX_HOPS}\" missing"))),
        Some(_) => Err(Exception::precondition_failed(format!(
            "Argument \"{MAX_HOPS}\" must be of type long"
        ))),
    }
}

fn check_hash(exchange: Resource<'_>, arguments: &FieldTable) -> Result<(), Exception> {
    // RabbitMQ fails with an internal error if these are not texts.
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

pub(crate) fn check_text(
    resource: Resource<'_>,
    name: &str,
    arguments: &FieldTable,
) -> Result<(), Exception> {
    match arguments.get(name) {
        Some(value) if value.as_str().is_none() => Err(Exception::precondition_failed(format!(
            "invalid type '{}' for arg '{name}' in {resource}",
            kind_name(value)
        ))),
        _ => Ok(()),
    }
}
