//! Virtual hosts.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use topology::{Metadata, MetadataError, VirtualHost};

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome, node_name};
use crate::api::request::list;

/// A short string of AMQP.
const NAME_BYTES_MAX: usize = 255;

/// Definitions use it, too.
pub(in crate::api) fn declared(vhost: &VirtualHost) -> Value {
    let metadata = vhost.metadata();
    let kind = metadata.queue_kind(true).name();
    json!({
        "name": vhost.name(),
        "description": metadata.description,
        "tags": metadata.tags,
        "default_queue_type": kind,
        "protected_from_deletion": metadata.protected_from_deletion,
        "metadata": {
            "description": metadata.description, "tags": metadata.tags, "default_queue_type": kind,
            "protected_from_deletion": metadata.protected_from_deletion,
        },
    })
}

fn row(call: &Call, vhost: &VirtualHost) -> Value {
    let mut row = declared(vhost);
    row["tracing"] = false.into();
    row["cluster_state"] = json!({node_name(call.broker()): "running"});
    row
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    let (vhosts, chosen) = list::choose(&call.query, call.visible_vhosts(), |vhost| vhost.name())?;
    chosen.answer(vhosts.iter().map(|vhost| row(call, vhost)).collect())
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    Ok(list::one(&call.query, row(call, &call.vhost().await?)))
}

/// Metadata in a request. As in RabbitMQ, absent description and tags are cleared, and everything else is kept.
#[derive(Clone, Default)]
pub(in crate::api) struct VhostMetadata {
    description: String,
    tags: Vec<String>,
    default_queue_type: Option<String>,
    protected_from_deletion: Option<bool>,
}

impl VhostMetadata {
    pub(in crate::api) fn of(said: &Map<String, Value>) -> Result<Self, ApiError> {
        let mut wanted = match ObjectReader(said).object("metadata")? {
            Some(metadata) => Self::of(metadata)?,
            None => Self::default(),
        };
        let said = ObjectReader(said);
        if said.flag("tracing", false)? {
            return Err(ApiError::bad_request(
                "tracing: a virtual host cannot be traced here; topics keep what went through them",
            ));
        }
        if let Some(description) = said.text("description")? {
            wanted.description = description.to_owned();
        }
        if let Some(tags) = said.texts("tags")? {
            wanted.tags = tags;
        }
        if said.is_there("protected_from_deletion") {
            wanted.protected_from_deletion = Some(said.flag("protected_from_deletion", false)?);
        }
        // `defaultqueuetype` is RabbitMQ's older name.
        for name in ["defaultqueuetype", "default_queue_type"] {
            match said.text(name)? {
                None | Some("" | "undefined") => {}
                Some(kind) => wanted.default_queue_type = Some(kind_named(kind).to_owned()),
            }
        }
        wanted.made_of(&Metadata::default()).check().map_err(wrong)?;
        Ok(wanted)
    }

    fn made_of(&self, before: &Metadata) -> Metadata {
        let protected = self.protected_from_deletion;
        Metadata {
            description: self.description.clone(),
            tags: self.tags.clone(),
            default_queue_type: self
                .default_queue_type
                .clone()
                .or_else(|| before.default_queue_type.clone()),
            protected_from_deletion: protected.unwrap_or(before.protected_from_deletion),
        }
    }
}

fn wrong(error: MetadataError) -> ApiError {
    ApiError::bad_request(error.to_string())
}

/// Maps module names of RabbitMQ, which older definitions use.
fn kind_named(kind: &str) -> &str {
    match kind {
        "rabbit_classic_queue" => "classic",
        "rabbit_quorum_queue" => "quorum",
        "rabbit_stream_queue" => "stream",
        kind => kind,
    }
}

pub(in crate::api) fn check_name(name: &str) -> Result<(), ApiError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let reason = format!("a virtual host has a name of 1 to {NAME_BYTES_MAX} bytes");
        return Err(ApiError::bad_request(reason));
    }
    Ok(())
}

/// Creates or updates a virtual host. As in RabbitMQ, its creator gets all permissions in it.
pub(in crate::api) async fn make(
    call: &Call,
    name: &str,
    wanted: &VhostMetadata,
) -> Result<StatusCode, ApiError> {
    check_name(name)?;
    let (vhost, status) = match call.topology.look_for_vhost(name).await? {
        Some(vhost) => (vhost, StatusCode::NO_CONTENT),
        None => (add(call, name).await?, StatusCode::CREATED),
    };
    vhost.set_metadata(|before| wanted.made_of(before)).await?;
    Ok(status)
}

async fn add(call: &Call, name: &str) -> Result<VirtualHost, ApiError> {
    let vhost = call.topology.create_vhost(name).await?;
    tracing::info!(user = call.user_name(), "vhost {name:?} is added");
    if let (Some(user), Some(users)) = (call.caller.name(), &call.node()?.users)
        && users.verifiers(user).is_some()
    {
        let everything = access_rules::Permissions::everything();
        users.allow(user, name, everything).await?;
    }
    Ok(vhost)
}

pub(in crate::api) async fn put(call: &Call) -> Outcome {
    let wanted = VhostMetadata::of(&call.object()?)?;
    Ok(make(call, call.arg("name"), &wanted).await?.into_response())
}

pub(in crate::api) async fn delete(call: &Call) -> Outcome {
    let name = call.arg("name");
    if !call.topology.delete_vhost(name).await? {
        return Err(ApiError::not_found());
    }
    if let Some(users) = &call.node()?.users {
        users.forget_virtual_host(name).await?;
    }
    tracing::info!(user = call.user_name(), "vhost {name:?} is deleted");
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn set_protection(call: &Call, protected_from_deletion: bool) -> Outcome {
    let vhost = call.vhost().await?;
    let protect = |before: &Metadata| Metadata { protected_from_deletion, ..before.clone() };
    vhost.set_metadata(protect).await?;
    let (by, vhost) = (call.user_name(), vhost.name());
    tracing::info!(by, vhost, protected_from_deletion, "a vhost's protection is set");
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(in crate::api) async fn protect(call: &Call) -> Outcome {
    set_protection(call, true).await
}

pub(in crate::api) async fn unprotect(call: &Call) -> Outcome {
    set_protection(call, false).await
}
