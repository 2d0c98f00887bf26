//! Users and their permissions.
//!
//! * `rules`, `quotas`: ACL rules and quotas; `session`: browser log-in

pub(super) mod quotas;
pub(super) mod rules;
pub(super) mod session;

use access::{UserError, Users};
use access_rules::Permissions;
use access_rules::acl::Action;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::{Extension, Json};
use passwords::Verifiers;
use serde::{Deserialize, Serialize};
use tasks::Task;
use utoipa::ToSchema;

use crate::front::{FrontEnd, Node};
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::pages::{Page, PageOf};

/// Never with what is kept of a password.
#[derive(Serialize, ToSchema)]
pub(super) struct User {
    name: String,
    /// The node's settings name it: it may do everything, and is changed there.
    of_settings: bool,
    /// It logs in from the node's own machine only.
    loopback_only: bool,
    /// RabbitMQ's, by virtual host. Rules of Kafka's kind are listed by themselves.
    permissions: Vec<Granted>,
    /// Mechanisms by which it may prove its password.
    scram: Vec<String>,
}

#[derive(Serialize, ToSchema)]
struct Granted {
    virtual_host: String,
    #[serde(flatten)]
    #[schema(value_type = Object)]
    permissions: Permissions,
}

pub(super) fn node_users(node: &Node) -> Result<&Users, Problem> {
    let nobody = || Problem::new(Kind::Invalid, "this node has no users to log in as");
    node.users.as_ref().ok_or_else(nobody)
}

pub(super) fn refused(error: UserError) -> Problem {
    let detail = error.to_string();
    match error {
        UserError::NotFound(_) | UserError::NoPermissions { .. } => {
            Problem::new(Kind::NotFound, detail)
        }
        UserError::Exists(_) => Problem::new(Kind::Exists, detail),
        UserError::Storage(_) => Problem::busy(detail),
        UserError::Unreadable(_) => Problem::new(Kind::Failed, detail),
        _ => Problem::new(Kind::Invalid, detail),
    }
}

/// List users by name.
#[utoipa::path(
    get,
    path = "/v1/users",
    tag = "access",
    params(Page),
    responses((status = 200, body = PageOf<User>))
)]
pub(super) async fn list(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    uri: Uri,
) -> Result<Json<PageOf<User>>, Problem> {
    let Page { limit, cursor } = request_input::query(&uri)?;
    let limit = limit.checked()?;
    caller.cluster(Action::Describe)?;
    let users = node_users(front.opened()?)?;
    let after = |name: &str| cursor.as_deref().is_none_or(|cursor| name > cursor);
    let rest = users.list().into_iter().filter(|user| after(&user.name));
    let items: Vec<User> =
        rest.take(limit + 1)
            .map(|user| {
                let scram = users.scram_credentials(&user.name).unwrap_or_default();
                let granted = user.permissions.into_iter().map(|(virtual_host, permissions)| {
                    Granted { virtual_host: virtual_host.to_string(), permissions }
                });
                User {
                    of_settings: user.of_settings,
                    loopback_only: user.loopback_only,
                    permissions: granted.collect(),
                    scram: scram.iter().map(|it| it.hash.mechanism().to_owned()).collect(),
                    name: user.name.to_string(),
                }
            })
            .collect();
    Ok(PageOf::cut(items, limit, |last| last.name.clone()))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUser {
    name: String,
    password: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct AddedUser {
    name: String,
    /// Effect on clients that have not logged in so far; null: none.
    log_ins: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPassword {
    password: String,
}

/// Runs on a worker: hashes are slow by design.
async fn verifiers(node: &Node, password: String) -> Result<Verifiers, Problem> {
    let workers = node.broker.workers();
    let made = workers.blocking(Task::AmqpPassword, move || Verifiers::from_password(&password));
    let made = made.await.map_err(|_| Problem::busy("the password was not taken"))?;
    made.map_err(|error| Problem::new(Kind::Invalid, error.to_string()))
}

/// Make a user, who may do nothing yet.
#[utoipa::path(
    post,
    path = "/v1/users",
    tag = "access",
    request_body = NewUser,
    responses((status = 201, body = AddedUser))
)]
pub(super) async fn add(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    body: Body,
) -> Result<(StatusCode, Json<AddedUser>), Problem> {
    caller.cluster(Action::Alter)?;
    let NewUser { name, password } = request_input::document(&front, body).await?;
    let node = front.opened()?;
    let verifiers = verifiers(node, password).await?;
    let users = node_users(node)?;
    users.add(&name, verifiers).await.map_err(refused)?;
    Ok((StatusCode::CREATED, Json(AddedUser { log_ins: users.login_notice(), name })))
}

/// Give a user another password. Sessions of browsers end; connections that are open stay.
#[utoipa::path(
    put,
    path = "/v1/users/{user}/password",
    tag = "access",
    params(("user" = String, Path)),
    request_body = NewPassword,
    responses((status = 204))
)]
pub(super) async fn set_password(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(user): Path<String>,
    body: Body,
) -> Result<StatusCode, Problem> {
    caller.cluster(Action::Alter)?;
    let NewPassword { password } = request_input::document(&front, body).await?;
    let node = front.opened()?;
    let verifiers = verifiers(node, password).await?;
    node_users(node)?.set_password(&user, verifiers).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delete a user, whose connections are closed.
#[utoipa::path(
    delete,
    path = "/v1/users/{user}",
    tag = "access",
    params(("user" = String, Path)),
    responses((status = 204))
)]
pub(super) async fn delete(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(user): Path<String>,
) -> Result<StatusCode, Problem> {
    caller.cluster(Action::Alter)?;
    node_users(front.opened()?)?.delete(&user).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}
