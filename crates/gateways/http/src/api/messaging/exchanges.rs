//! Exchanges.

use access::Operation;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use rabbitmq::declarations::{ExchangeDeclaration, exchanges};
use rabbitmq::errors::{NamedEntity, Resource};
use serde_json::{Map, Value, json};
use topology::arguments::ALTERNATE_EXCHANGE;
use topology::{Exchange, VirtualHost};
use values::Table;

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome};
use crate::api::request::list;
use crate::api::request::values as typed;

pub(in crate::api) fn row(exchange: &Exchange) -> Value {
    let mut row = json!({
        "name": &*exchange.name, "vhost": &*exchange.vhost, "type": exchange.kind.name(),
        "durable": exchange.durable, "auto_delete": exchange.auto_delete,
        "internal": exchange.internal, "arguments": typed::json(&exchange.arguments),
        "user_who_performed_action": "", "message_stats": {},
    });
    if let Some(policy) = &exchange.policy {
        row["policy"] = Value::from(&**policy);
    }
    row
}

fn sees(call: &Call, exchange: &Exchange) -> bool {
    call.looks() || exchange.name.is_empty() || call.rights().sees(exchange.resource())
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    let vhosts = call.vhosts().await?;
    let mut all: Vec<Exchange> = vhosts.iter().flat_map(VirtualHost::exchanges).collect();
    all.retain(|exchange| sees(call, exchange));
    let (all, chosen) = list::choose(&call.query, all, |exchange| &exchange.name)?;
    chosen.answer(all.iter().map(row).collect())
}

pub(in crate::api) fn find(
    call: &Call,
    vhost: &VirtualHost,
    name: &str,
) -> Result<Exchange, ApiError> {
    let found = vhost.exchanges().into_iter().find(|exchange| *exchange.name == *name);
    found.filter(|exchange| sees(call, exchange)).ok_or_else(ApiError::not_found)
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    let vhost = call.vhost().await?;
    Ok(list::one(&call.query, row(&find(call, &vhost, call.exchange_arg("name"))?)))
}

/// Declaration of an exchange, from a JSON object.
pub(in crate::api) struct ExchangeRequest {
    kind: String,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
}

impl ExchangeRequest {
    pub(in crate::api) fn of(said: &Map<String, Value>) -> Result<Self, ApiError> {
        let said = ObjectReader(said);
        Ok(Self {
            kind: said.text("type")?.unwrap_or("direct").to_owned(),
            durable: said.flag("durable", true)?,
            auto_delete: said.flag("auto_delete", false)?,
            internal: said.flag("internal", false)?,
            arguments: said.object("arguments")?.map(typed::table).transpose()?.unwrap_or_default(),
        })
    }

    /// Validated like `exchange.declare`. Returns whether the exchange is new.
    pub(in crate::api) async fn declare(
        &self,
        call: &Call,
        vhost: &VirtualHost,
        name: &str,
    ) -> Result<bool, ApiError> {
        let rights = call.rights();
        rights.check_exchange(Operation::DeclareExchange, name, vhost.name())?;
        let is_there = exchanges::check(vhost, name).await.is_ok();
        let alternate = self.arguments.get(ALTERNATE_EXCHANGE).and_then(values::Value::as_str);
        if let Some(alternate) = alternate.filter(|_| !is_there) {
            rights.check_forwarding(Resource::exchange(name, vhost.name()), alternate)?;
        }
        let declaration = ExchangeDeclaration {
            name,
            kind: &self.kind,
            durable: self.durable,
            auto_delete: self.auto_delete,
            internal: self.internal,
            arguments: &self.arguments,
        };
        exchanges::declare(vhost, declaration).await?;
        Ok(!is_there)
    }
}

pub(in crate::api) async fn put(call: &Call) -> Outcome {
    let declared = ExchangeRequest::of(&call.object()?)?;
    let made = declared.declare(call, &call.vhost().await?, call.exchange_arg("name")).await?;
    Ok(if made { StatusCode::CREATED } else { StatusCode::NO_CONTENT }.into_response())
}

pub(in crate::api) async fn delete(call: &Call) -> Outcome {
    let (vhost, name) = (call.vhost().await?, call.exchange_arg("name"));
    if !name.starts_with("amq.") {
        call.rights().check_exchange(Operation::DeleteExchange, name, vhost.name())?;
    }
    // AMQP accepts the deletion of an unknown exchange; this API responds 404.
    exchanges::check(&vhost, name).await?;
    exchanges::delete(&vhost, name, call.query.is_true("if-unused")).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
