//! Bindings. A path identifies one by its ends and a properties key, derived from its routing key and arguments.

use axum::http::header::LOCATION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::IntoResponse;
use rabbitmq::declarations::bindings;
use rabbitmq::errors::Resource;
use serde_json::{Map, Value, json};
use topology::arguments::sorted;
use topology::{Binding, BindingRequest, Destination, VirtualHost};
use values::Table;

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome};
use crate::api::request::list;
use crate::api::request::path::escaped;
use crate::api::request::values as typed;

fn arguments_hash(arguments: &Table) -> Option<String> {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = sorted(arguments).to_bytes();
    let hash = bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    (!arguments.is_empty()).then(|| format!("{hash:016x}"))
}

fn properties_key(key: &str, arguments: &Table) -> String {
    match (escaped(key), arguments_hash(arguments)) {
        (key, None) if key.is_empty() => "~".to_owned(),
        (key, None) => key,
        (key, Some(hash)) => format!("{key}~{hash}"),
    }
}

/// The path has been decoded once. Some clients escape the key a second time, others do not.
fn is_key(said: &str, key: &str, arguments: &Table) -> bool {
    let plain = match arguments_hash(arguments) {
        None if key.is_empty() => "~".to_owned(),
        None => key.to_owned(),
        Some(hash) => format!("{key}~{hash}"),
    };
    said == plain || said == properties_key(key, arguments)
}

pub(in crate::api) fn row(vhost: &str, binding: &Binding) -> Value {
    let (destination, kind) = match &binding.destination {
        Destination::Queue(name) => (name, "queue"),
        Destination::Exchange(name) => (name, "exchange"),
    };
    json!({
        "source": &*binding.source, "vhost": vhost, "destination": &**destination,
        "destination_type": kind, "routing_key": binding.key,
        "arguments": typed::json(&binding.arguments),
        "properties_key": properties_key(&binding.key, &binding.arguments),
    })
}

/// Includes the implicit bindings of the default exchange to all queues.
fn all(call: &Call, vhost: &VirtualHost) -> Vec<Binding> {
    let implied = vhost.queues().into_iter().map(|queue| Binding {
        source: "".into(),
        key: queue.name.to_string(),
        destination: Destination::Queue(queue.name.clone()),
        arguments: Table::new(),
    });
    let mut all: Vec<Binding> = implied.chain(vhost.bindings()).collect();
    let rights = call.rights();
    let sees = |binding: &Binding| match &binding.destination {
        Destination::Queue(name) => rights.sees(Resource::queue(name, vhost.name())),
        Destination::Exchange(name) => rights.sees(Resource::exchange(name, vhost.name())),
    };
    if !call.looks() {
        all.retain(sees);
    }
    all
}

fn answer(call: &Call, found: Vec<(String, Binding)>) -> Outcome {
    let (found, chosen) = list::choose(&call.query, found, |(_, binding)| &binding.key)?;
    chosen.answer(found.iter().map(|(vhost, binding)| row(vhost, binding)).collect())
}

async fn of(call: &Call, fits: impl Fn(&Binding) -> bool) -> Outcome {
    let mut found = Vec::new();
    for vhost in call.vhosts().await? {
        let fitting = all(call, &vhost).into_iter().filter(&fits);
        found.extend(fitting.map(|binding| (vhost.name().to_owned(), binding)));
    }
    answer(call, found)
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    of(call, |_| true).await
}

/// As in RabbitMQ, an unknown exchange gives an empty list, not an error.
pub(in crate::api) async fn list_from_source(call: &Call) -> Outcome {
    let name = call.exchange_arg("name");
    of(call, |binding| *binding.source == *name).await
}

pub(in crate::api) async fn list_to_exchange(call: &Call) -> Outcome {
    let end = Destination::Exchange(call.exchange_arg("name").into());
    of(call, |binding| binding.destination == end).await
}

pub(in crate::api) async fn list_to_queue(call: &Call) -> Outcome {
    let end = Destination::Queue(call.arg("name").into());
    of(call, |binding| binding.destination == end).await
}

/// The destination in the path.
fn destination(call: &Call) -> Destination {
    match call.arg("queue") {
        "" => Destination::Exchange(call.exchange_arg("exchange").into()),
        queue => Destination::Queue(queue.into()),
    }
}

pub(in crate::api) async fn list_between(call: &Call) -> Outcome {
    let (source, end) = (call.exchange_arg("source"), destination(call));
    of(call, |binding| *binding.source == *source && binding.destination == end).await
}

async fn found(call: &Call) -> Result<(VirtualHost, Binding), ApiError> {
    let (vhost, source, end) =
        (call.vhost().await?, call.exchange_arg("source"), destination(call));
    let is_it = |binding: &Binding| {
        *binding.source == *source
            && binding.destination == end
            && is_key(call.arg("key"), &binding.key, &binding.arguments)
    };
    let binding = all(call, &vhost).into_iter().find(is_it).ok_or_else(ApiError::not_found)?;
    Ok((vhost, binding))
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    let (vhost, binding) = found(call).await?;
    Ok(list::one(&call.query, row(vhost.name(), &binding)))
}

/// Parses routing key and arguments of a binding.
pub(in crate::api) fn parse(said: &Map<String, Value>) -> Result<(String, Table), ApiError> {
    let said = ObjectReader(said);
    let arguments = said.object("arguments")?.map(typed::table).transpose()?.unwrap_or_default();
    Ok((said.text("routing_key")?.unwrap_or_default().to_owned(), arguments))
}

/// Validated like `queue.bind` and `exchange.bind`.
pub(in crate::api) async fn bind(
    call: &Call,
    vhost: &VirtualHost,
    request: BindingRequest<'_>,
) -> Result<(), ApiError> {
    call.rights().check_binding(request.source, request.destination, vhost.name())?;
    Ok(bindings::bind(vhost, call.owner(), request).await?)
}

pub(in crate::api) async fn post(call: &Call) -> Outcome {
    let (key, arguments) = parse(&call.object()?)?;
    let (vhost, destination) = (call.vhost().await?, destination(call));
    let source = call.exchange_arg("source");
    let request =
        BindingRequest { source, destination: &destination, key: &key, arguments: &arguments };
    bind(call, &vhost, request).await?;
    let end = match &destination {
        Destination::Queue(name) | Destination::Exchange(name) => escaped(name),
    };
    // Location has the key as a path segment, so the escaped key is escaped again.
    let location = format!("{end}/{}", escaped(&properties_key(&key, &arguments)));
    let location =
        HeaderValue::from_str(&location).map_err(|error| ApiError::failed(error.to_string()))?;
    Ok((StatusCode::CREATED, [(LOCATION, location)]).into_response())
}

pub(in crate::api) async fn delete(call: &Call) -> Outcome {
    let (vhost, Binding { source, destination, key, arguments }) = found(call).await?;
    call.rights().check_binding(&source, &destination, vhost.name())?;
    let request = BindingRequest {
        source: &source,
        destination: &destination,
        key: &key,
        arguments: &arguments,
    };
    bindings::unbind(&vhost, call.owner(), request).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_key_matches_escaped_once_or_twice() {
        let none = Table::new();
        let mut some = Table::new();
        some.push("x", 1);
        assert_eq!(properties_key("", &none), "~");
        assert_eq!(properties_key("a/b~", &none), "a%2Fb%7E");
        for (key, arguments) in [("", &none), ("a/b~", &none), ("", &some), ("a.#", &some)] {
            let name = properties_key(key, arguments);
            assert!(is_key(&name, key, arguments), "{name}");
            assert!(!is_key(&format!("{name}x"), key, arguments), "{name}");
        }
        assert!(is_key("a/b~", "a/b~", &none));
        assert_ne!(properties_key("a", &some), properties_key("a", &none));
    }
}
