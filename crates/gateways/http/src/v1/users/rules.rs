//! ACL rules of Kafka's kind, which apply to all protocols, and explanations of decisions.

use std::net::IpAddr;

use access_rules::acl::{Action, PatternFilter, Resource, Rule, RuleFilter};
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::pages::{Page, PageOf, Row};
use crate::v1::users::{node_users, refused};

/// List rules, sorted.
#[utoipa::path(
    get,
    path = "/v1/acls",
    tag = "access",
    params(Page),
    responses((status = 200, body = PageOf<Row>))
)]
pub(in crate::v1) async fn list(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    uri: Uri,
) -> Result<Json<PageOf<Row>>, Problem> {
    let Page { limit, cursor } = request_input::query(&uri)?;
    let limit = limit.checked()?;
    caller.cluster(Action::Describe)?;
    PageOf::numbered(&node_users(front.opened()?)?.rules(), limit, cursor.as_deref())
}

async fn read(front: &FrontEnd, body: Body) -> Result<Rule, Problem> {
    let rule: Rule = request_input::document(front, body).await?;
    rule.check().map_err(|error| Problem::new(Kind::Invalid, error.to_string()))?;
    Ok(rule)
}

/// Add a rule; one that is there already is none the more for it.
#[utoipa::path(
    post,
    path = "/v1/acls",
    tag = "access",
    request_body = Object,
    responses((status = 204))
)]
pub(in crate::v1) async fn add(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    body: Body,
) -> Result<StatusCode, Problem> {
    caller.cluster(Action::Alter)?;
    let rule = read(&front, body).await?;
    node_users(front.opened()?)?.add_rules(vec![rule]).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take a rule away, which is said whole.
#[utoipa::path(
    post,
    path = "/v1/acls/delete",
    tag = "access",
    request_body = Object,
    responses((status = 204))
)]
pub(in crate::v1) async fn delete(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    body: Body,
) -> Result<StatusCode, Problem> {
    caller.cluster(Action::Alter)?;
    let rule = read(&front, body).await?;
    let filter = RuleFilter {
        resource: Some(rule.resource),
        pattern: PatternFilter::Is(rule.pattern),
        name: Some(rule.name),
        principal: Some(rule.principal),
        host: Some(rule.host),
        action: Some(rule.action),
        verdict: Some(rule.verdict),
    };
    let removed = node_users(front.opened()?)?.remove_rules(&[filter]).await.map_err(refused)?;
    match removed.iter().all(Vec::is_empty) {
        true => Err(Problem::new(Kind::NotFound, "there is no such rule")),
        false => Ok(StatusCode::NO_CONTENT),
    }
}

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct ExplainQuery {
    user: String,
    /// `topic`, `group`, `cluster`, ..
    resource: String,
    /// Name of the resource; not needed for the cluster.
    name: String,
    /// `read`, `write`, `describe`, ..
    action: String,
    /// The address that it comes from; where nothing is said, the one that asks this.
    host: String,
}

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct Explained {
    allowed: bool,
    /// The rule or permission that decides, in words.
    why: String,
}

/// Say whether a user may do something, and which rule decides that.
#[utoipa::path(
    get,
    path = "/v1/access",
    tag = "access",
    params(ExplainQuery),
    responses((status = 200, body = Explained))
)]
pub(in crate::v1) async fn explain(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<Json<Explained>, Problem> {
    let ExplainQuery { user, resource, name, action, host } = request_input::query(&uri)?;
    caller.cluster(Action::Describe)?;
    let unknown = |what, word: &str| {
        Problem::new(Kind::BadRequest, format!("{word:?} is no {what} of rules"))
    };
    let of = Resource::from_word(&resource).ok_or_else(|| unknown("resource", &resource))?;
    let action = Action::from_word(&action).ok_or_else(|| unknown("action", &action))?;
    let host: IpAddr = match &*host {
        "" => peer.connection.peer().ip(),
        host => host.parse().map_err(|_| unknown("address", host))?,
    };
    let name = match (of, &*name) {
        (Resource::Cluster, "") => access_rules::acl::CLUSTER,
        (_, name) => name,
    };
    let explained = node_users(front.opened()?)?.explain(&user, host, action, of, name);
    let missing = || Problem::new(Kind::NotFound, format!("there is no user {user}"));
    let (allowed, why) = explained.ok_or_else(missing)?;
    Ok(Json(Explained { allowed, why }))
}
