//! Permissions of users in virtual hosts.

use access::{ListedUser, check_permissions};
use access_rules::Permissions;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use crate::api::administration::users::known;
use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome};
use crate::api::request::list;

pub(in crate::api) fn row(user: &str, vhost: &str, set: &Permissions) -> Value {
    let Permissions { configure, write, read } = set;
    json!({"user": user, "vhost": vhost, "configure": configure, "write": write, "read": read})
}

fn rows(users: &[ListedUser], vhost: Option<&str>) -> Vec<Value> {
    let all = users.iter().flat_map(|user| {
        let set = user.permissions.iter();
        set.map(|(vhost, set)| (vhost, row(&user.name, vhost, set)))
    });
    let fits = |known: &str| vhost.is_none_or(|vhost| vhost == known);
    all.filter(|(known, _)| fits(known)).map(|(_, row)| row).collect()
}

fn answer(call: &Call, rows: Vec<Value>) -> Outcome {
    let name = |row: &Value| row["user"].as_str().unwrap_or_default().to_owned();
    let named: Vec<(String, Value)> = rows.into_iter().map(|row| (name(&row), row)).collect();
    let (named, chosen) = list::choose(&call.query, named, |(name, _)| name)?;
    chosen.answer(named.into_iter().map(|(_, row)| row).collect())
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    answer(call, rows(&call.users()?.list(), None))
}

pub(in crate::api) async fn list_of_vhost(call: &Call) -> Outcome {
    let vhost = call.vhost().await?;
    answer(call, rows(&call.users()?.list(), Some(vhost.name())))
}

pub(in crate::api) async fn list_of_user(call: &Call) -> Outcome {
    answer(call, rows(&[known(call.users()?, call.arg("name"))?], None))
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    let (vhost, user) = (call.arg("vhost"), known(call.users()?, call.arg("user"))?);
    let set = user.permissions.get(vhost).ok_or_else(ApiError::not_found)?;
    Ok(list::one(&call.query, row(&user.name, vhost, set)))
}

pub(in crate::api) fn parse(said: &Map<String, Value>) -> Result<Permissions, ApiError> {
    let said = ObjectReader(said);
    let text = |name| said.needed(name).map(str::to_owned);
    let set =
        Permissions { configure: text("configure")?, write: text("write")?, read: text("read")? };
    check_permissions(&set).map_err(|error| ApiError::bad_request(error.to_string()))?;
    Ok(set)
}

pub(in crate::api) async fn put(call: &Call) -> Outcome {
    let set = parse(&call.object()?)?;
    let (vhost, user) = (call.vhost().await?, call.arg("user"));
    let known = known(call.users()?, user)?;
    let status = match known.permissions.contains_key(vhost.name()) {
        true => StatusCode::NO_CONTENT,
        false => StatusCode::CREATED,
    };
    call.users()?.allow(user, vhost.name(), set).await?;
    tracing::info!(
        by = call.user_name(),
        "the permissions of user {user:?} in vhost {:?} are set",
        vhost.name()
    );
    Ok(status.into_response())
}

pub(in crate::api) async fn delete(call: &Call) -> Outcome {
    let (vhost, user) = (call.arg("vhost"), call.arg("user"));
    call.users()?.deny(user, vhost).await?;
    tracing::info!(
        by = call.user_name(),
        "the permissions of user {user:?} in vhost {vhost:?} are taken away"
    );
    Ok(StatusCode::NO_CONTENT.into_response())
}
