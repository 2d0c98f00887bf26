//! Users: created, changed and deleted in the store of all gateways.

use access::user_limits::{LimitTarget, Limits};
use access::{ListedUser, Tags, UserError, Users};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use passwords::Verifiers;
use passwords::rabbitmq_hash::{RabbitMqHash, RabbitMqHashing};
use serde_json::{Map, Value, json};
use tasks::Task;

use crate::api::administration::limits::values;
use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, ObjectReader, Outcome};
use crate::api::request::list;

/// Our own hash algorithm, as definitions name it.
pub(in crate::api) const ARGON2ID: &str = "argon2id";
const USERS_DELETED_AT_ONCE_MAX: usize = 1_000;

fn row(user: &ListedUser, limits: &Limits) -> Value {
    json!({
        "name": &*user.name,
        "password_hash": "",
        "hashing_algorithm": ARGON2ID,
        "tags": user.tags.names(),
        "limits": values(limits.of(LimitTarget::User(&user.name))),
    })
}

fn rows(call: &Call, users: Vec<ListedUser>) -> Outcome {
    let (users, chosen) = list::choose(&call.query, users, |user| &user.name)?;
    let limits = call.users()?.limits();
    chosen.answer(users.iter().map(|user| row(user, &limits)).collect())
}

pub(in crate::api) async fn list(call: &Call) -> Outcome {
    rows(call, call.users()?.list())
}

pub(in crate::api) async fn without_permissions(call: &Call) -> Outcome {
    let mut users = call.users()?.list();
    users.retain(|user| user.permissions.is_empty() && !user.of_settings);
    rows(call, users)
}

pub(in crate::api) fn known(users: &Users, name: &str) -> Result<ListedUser, ApiError> {
    let found = users.list().into_iter().find(|user| *user.name == *name);
    found.ok_or_else(ApiError::not_found)
}

pub(in crate::api) async fn one(call: &Call) -> Outcome {
    let users = call.users()?;
    Ok(list::one(&call.query, row(&known(users, call.arg("name"))?, &users.limits())))
}

pub(in crate::api) async fn put(call: &Call) -> Outcome {
    let said = call.object()?;
    Ok(set(call, call.arg("name"), &said, false).await?.into_response())
}

/// Creates a user, or sets password and tags of an existing one. `keeps`: an existing user keeps its credentials if
/// the request has none.
pub(in crate::api) async fn set(
    call: &Call,
    name: &str,
    said: &Map<String, Value>,
    keeps: bool,
) -> Result<StatusCode, ApiError> {
    let users = call.users()?;
    let tags = Tags::new(tags(said)?)?;
    let told = verifiers(call, said).await?;
    let exists = users.exists(name);
    match (told, exists) {
        (None, true) if keeps => {}
        (told, exists) => {
            let verifiers = match told {
                Some(verifiers) => verifiers,
                None => unguessable(call).await?,
            };
            let set = match exists {
                true => users.set_password(name, verifiers.clone()).await,
                false => users.add(name, verifiers.clone()).await,
            };
            match set {
                Err(UserError::Exists(_)) => users.set_password(name, verifiers).await?,
                set => set?,
            }
        }
    }
    users.set_tags(name, tags).await?;
    tracing::info!(by = call.user_name(), "user {name:?} is set");
    Ok(if exists { StatusCode::NO_CONTENT } else { StatusCode::CREATED })
}

fn tags(said: &Map<String, Value>) -> Result<Vec<String>, ApiError> {
    let tags = ObjectReader(said).texts("tags")?;
    tags.ok_or_else(|| ApiError::bad_request("key_missing: tags"))
}

/// Validates the description of a user.
pub(in crate::api) fn check(said: &Map<String, Value>) -> Result<(), ApiError> {
    Tags::new(tags(said)?)?;
    password_hash_of(said).map(drop)
}

/// The given password hash; `None`: there is none.
fn password_hash_of(said: &Map<String, Value>) -> Result<Option<Verifiers>, ApiError> {
    let said = ObjectReader(said);
    let Some(hash) = said.text("password_hash")?.filter(|hash| !hash.is_empty()) else {
        return Ok(None);
    };
    let Some(algorithm) = said.text("hashing_algorithm")?.filter(|name| !name.is_empty()) else {
        let rabbitmq = Some(RabbitMqHash::with_guessed_algorithm(hash));
        return Ok(Some(Verifiers { rabbitmq, ..Verifiers::default() }));
    };
    if algorithm == ARGON2ID {
        return Ok(Some(hash.to_owned().into()));
    }
    let algorithm = RabbitMqHashing::named(algorithm).ok_or_else(|| {
        ApiError::bad_request(format!(
            "hashing_algorithm {algorithm} is not taken: sha256 and sha512 are"
        ))
    })?;
    let rabbitmq = Some(RabbitMqHash { hash: hash.to_owned(), algorithm });
    Ok(Some(Verifiers { rabbitmq, ..Verifiers::default() }))
}

async fn verifiers(call: &Call, said: &Map<String, Value>) -> Result<Option<Verifiers>, ApiError> {
    let Some(password) =
        ObjectReader(said).text("password")?.filter(|password| !password.is_empty())
    else {
        return password_hash_of(said);
    };
    if ObjectReader(said).text("password_hash")?.is_some_and(|hash| !hash.is_empty()) {
        return Err(ApiError::bad_request("both password and password_hash are given"));
    }
    hashed(call, password.to_owned()).await.map(Some)
}

/// Credentials that no password matches.
async fn unguessable(call: &Call) -> Result<Verifiers, ApiError> {
    let entropy = call.front.entropy();
    hashed(call, format!("{}{}", entropy.uuid(), entropy.uuid())).await
}

async fn hashed(call: &Call, password: String) -> Result<Verifiers, ApiError> {
    let workers = call.broker().workers();
    let made = workers.blocking(Task::AmqpPassword, move || Verifiers::from_password(&password));
    let made = made.await.map_err(|error| ApiError::failed(error.to_string()))?;
    made.map_err(|error| ApiError::bad_request(error.to_string()))
}

async fn remove(call: &Call, name: &str) -> Result<(), ApiError> {
    call.users()?.delete(name).await?;
    tracing::info!(by = call.user_name(), "user {name:?} is deleted");
    Ok(())
}

pub(in crate::api) async fn delete(call: &Call) -> Outcome {
    remove(call, call.arg("name")).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(in crate::api) async fn delete_several(call: &Call) -> Outcome {
    let said = call.object()?;
    let names = ObjectReader(&said).texts("users")?;
    let names = names.ok_or_else(|| ApiError::bad_request("key_missing: users"))?;
    if names.len() > USERS_DELETED_AT_ONCE_MAX {
        let reason = format!("at most {USERS_DELETED_AT_ONCE_MAX} users are deleted at once");
        return Err(ApiError::bad_request(reason));
    }
    for name in &names {
        match remove(call, name).await {
            Err(refused) if refused.is_not_found() => {}
            removed => removed?,
        }
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}
