//! Virtual hosts.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use topology::VirtualHost;

use super::call::{Call, Outcome, Said};
use super::list;
use super::nodes::node_name;
use super::refused::Refused;

/// A short string of AMQP.
const NAME_BYTES_MAX: usize = 255;

fn row(call: &Call, vhost: &VirtualHost) -> Value {
    json!({
        "name": vhost.name(),
        "description": "",
        "tags": [],
        "default_queue_type": "classic",
        "metadata": {"description": "", "tags": [], "default_queue_type": "classic"},
        "protected_from_deletion": false,
        "tracing": false,
        "cluster_state": {node_name(call.broker()): "running"},
    })
}

pub(super) async fn list(call: &Call) -> Outcome {
    let (vhosts, chosen) = list::choose(&call.query, call.visible_vhosts(), |vhost| vhost.name())?;
    chosen.answer(vhosts.iter().map(|vhost| row(call, vhost)).collect())
}

pub(super) async fn one(call: &Call) -> Outcome {
    Ok(list::one(&call.query, row(call, &call.vhost().await?)))
}

/// What a virtual host may be said to be: it has nothing but its name here.
pub(super) fn check(said: &Map<String, Value>) -> Result<(), Refused> {
    if let Some(metadata) = Said(said).object("metadata")? {
        check(metadata)?;
    }
    let said = Said(said);
    for name in ["tracing", "protected_from_deletion"] {
        if said.flag(name, false)? {
            return Err(Refused::bad_request(format!(
                "{name} is not there for virtual hosts here"
            )));
        }
    }
    // What RabbitMQ says of the one that is there from the start says nothing.
    if !matches!(said.text("description")?, None | Some("" | "Default virtual host")) {
        return Err(Refused::bad_request("a virtual host has no description here"));
    }
    if said.texts("tags")?.is_some_and(|tags| !tags.is_empty()) {
        return Err(Refused::bad_request("a virtual host has no tags here"));
    }
    match said.text("default_queue_type")? {
        None | Some("" | "classic" | "undefined" | "rabbit_classic_queue") => Ok(()),
        Some(other) => Err(Refused::bad_request(format!(
            "default_queue_type: queues that do not say their type are classic here, not {other}"
        ))),
    }
}

pub(super) fn check_name(name: &str) -> Result<(), Refused> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let reason = format!("a virtual host has a name of 1 to {NAME_BYTES_MAX} bytes");
        return Err(Refused::bad_request(reason));
    }
    Ok(())
}

/// Whoever makes one may do everything in it, as RabbitMQ has it.
pub(super) async fn make(call: &Call, name: &str) -> Result<StatusCode, Refused> {
    check_name(name)?;
    if call.topology.look_for_vhost(name).await?.is_some() {
        return Ok(StatusCode::NO_CONTENT);
    }
    call.topology.create_vhost(name).await?;
    tracing::info!(user = call.user_name(), "vhost {name:?} is added");
    if let (Some(user), Some(users)) = (call.asker.name(), &call.node()?.users)
        && users.verifiers(user).is_some()
    {
        let everything = access::Permissions::everything();
        users.allow(user, name, everything).await?;
    }
    Ok(StatusCode::CREATED)
}

pub(super) async fn put(call: &Call) -> Outcome {
    check(&call.object()?)?;
    Ok(make(call, call.arg("name")).await?.into_response())
}

pub(super) async fn delete(call: &Call) -> Outcome {
    let name = call.arg("name");
    if !call.topology.delete_vhost(name).await? {
        return Err(Refused::not_found());
    }
    if let Some(users) = &call.node()?.users {
        users.forget_virtual_host(name).await?;
    }
    tracing::info!(user = call.user_name(), "vhost {name:?} is deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) async fn protect(call: &Call) -> Outcome {
    call.vhost().await?;
    Err(Refused::bad_request("a virtual host cannot be protected from deletion here"))
}

/// As it always is.
pub(super) async fn no_longer_protect(call: &Call) -> Outcome {
    call.vhost().await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
