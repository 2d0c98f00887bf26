//! Limits of users and virtual hosts: connections, channels and queues.

use access::user_limits::{Limit, LimitTarget, LimitsSet};
use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use crate::api::administration::users::known;
use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome};

pub(in crate::api) fn values(set: Option<&LimitsSet>) -> Value {
    let values = set.into_iter().flatten();
    let values = values.map(|(limit, value)| (limit.word().to_owned(), Value::from(*value)));
    Value::Object(values.collect::<Map<_, _>>())
}

/// One row for each that has limits; no row for others.
fn rows<'a>(of: &str, all: impl Iterator<Item = (&'a String, &'a LimitsSet)>) -> Value {
    Value::Array(all.map(|(name, set)| json!({of: name, "value": values(Some(set))})).collect())
}

pub(in crate::api) async fn list_of_users(call: &Call) -> Outcome {
    let limits = call.users()?.limits();
    Ok(Json(rows("user", limits.users.iter())).into_response())
}

pub(in crate::api) async fn list_of_user(call: &Call) -> Outcome {
    let (users, name) = (call.users()?, call.arg("user"));
    known(users, name)?;
    let limits = users.limits();
    Ok(Json(rows("user", limits.users.get_key_value(name).into_iter())).into_response())
}

pub(in crate::api) async fn list_of_vhosts(call: &Call) -> Outcome {
    let limits = call.users()?.limits();
    let visible = call.visible_vhosts();
    let is_visible = |name: &str| visible.iter().any(|vhost| vhost.name() == name);
    let seen = limits.virtual_hosts.iter().filter(|(name, _)| is_visible(name));
    Ok(Json(rows("vhost", seen)).into_response())
}

pub(in crate::api) async fn list_of_vhost(call: &Call) -> Outcome {
    let (vhost, limits) = (call.vhost().await?, call.users()?.limits());
    let found = limits.virtual_hosts.get_key_value(vhost.name());
    Ok(Json(rows("vhost", found.into_iter())).into_response())
}

async fn set(call: &Call, of: LimitTarget<'_>) -> Outcome {
    let said = call.object()?;
    if !ObjectReader(&said).is_there("value") {
        return Err(ApiError::bad_request("key_missing: value"));
    }
    let value = ObjectReader(&said).integer("value", 0)?;
    set_to(call, of, call.arg("name"), value).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// -1 means unlimited, which is also the default.
pub(in crate::api) async fn set_to(
    call: &Call,
    of: LimitTarget<'_>,
    word: &str,
    value: i64,
) -> Result<(), ApiError> {
    let limit = check(of, word, value)?;
    call.users()?.set_limit(of, limit, Some(value)).await?;
    tracing::info!(by = call.user_name(), ?of, "limit {word} is {value}");
    Ok(())
}

/// Validates the name and value of a limit.
pub(in crate::api) fn check(
    of: LimitTarget<'_>,
    word: &str,
    value: i64,
) -> Result<Limit, ApiError> {
    let limit = of.limit(word).ok_or_else(|| {
        let names = match of {
            LimitTarget::User(_) => "max-connections and max-channels of a user",
            LimitTarget::VirtualHost(_) => "max-connections and max-queues of a virtual host",
        };
        ApiError::bad_request(format!("there is no limit {word}; there are {names}"))
    })?;
    if value < -1 {
        return Err(ApiError::bad_request(format!("{word} is a number, or -1 for any")));
    }
    Ok(limit)
}

async fn clear(call: &Call, of: LimitTarget<'_>) -> Outcome {
    let limit = of.limit(call.arg("name")).ok_or_else(ApiError::not_found)?;
    // As in RabbitMQ, clearing a limit that is not set is no error.
    call.users()?.set_limit(of, limit, None).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(in crate::api) async fn set_of_user(call: &Call) -> Outcome {
    known(call.users()?, call.arg("user"))?;
    set(call, LimitTarget::User(call.arg("user"))).await
}

pub(in crate::api) async fn clear_of_user(call: &Call) -> Outcome {
    known(call.users()?, call.arg("user"))?;
    clear(call, LimitTarget::User(call.arg("user"))).await
}

pub(in crate::api) async fn set_of_vhost(call: &Call) -> Outcome {
    let vhost = call.vhost().await?;
    set(call, LimitTarget::VirtualHost(vhost.name())).await
}

pub(in crate::api) async fn clear_of_vhost(call: &Call) -> Outcome {
    let vhost = call.vhost().await?;
    clear(call, LimitTarget::VirtualHost(vhost.name())).await
}
