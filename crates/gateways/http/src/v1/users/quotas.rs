//! Quotas by Kafka's names, which apply to all protocols.

use std::collections::BTreeMap;

use access::quotas::{Alteration, QuotaError};
use access_rules::acl::Action;
use access_rules::quota::{Entity, EntityType, Values};
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::pages::{Page, PageOf, Row};
use crate::v1::query::DryRunQuery;

#[derive(Serialize)]
struct ListedQuota<'a> {
    entity: &'a Entity,
    quotas: &'a Values,
}

/// List quotas: the entity of each, and its limits per second on each node.
#[utoipa::path(
    get,
    path = "/v1/quotas",
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
    caller.cluster(Action::DescribeConfigs)?;
    let table = front.opened()?.quotas.table();
    let all: Vec<ListedQuota<'_>> =
        table.iter().map(|(entity, quotas)| ListedQuota { entity, quotas }).collect();
    PageOf::numbered(&all, limit, cursor.as_deref())
}

/// Quotas that are to be set.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct QuotaChange {
    /// Entity that they apply to: `user`, `client-id`, both of these, or `ip`; null for all that have none of their own.
    entity: BTreeMap<String, Option<String>>,
    /// In a second, by Kafka's names: `producer_byte_rate`, `consumer_byte_rate`, `controller_mutation_rate`,
    /// `connection_creation_rate`; null takes one away.
    quotas: BTreeMap<String, Option<f64>>,
}

/// Set quotas, or take them away. Those that are not named stay. With `dry_run` nothing is done but to find out whether
/// it could be.
#[utoipa::path(
    post,
    path = "/v1/quotas",
    tag = "access",
    params(DryRunQuery),
    request_body = QuotaChange,
    responses((status = 204))
)]
pub(in crate::v1) async fn change(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    uri: Uri,
    body: Body,
) -> Result<StatusCode, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    caller.cluster(Action::AlterConfigs)?;
    let QuotaChange { entity, quotas } = request_input::document(&front, body).await?;
    let mut of = Entity::default();
    for (word, name) in entity {
        let known = EntityType::from_word(&word);
        let unknown = || format!("quotas are of a user, a client-id or an ip, not of {word:?}");
        of.0.insert(known.ok_or_else(|| Problem::new(Kind::Invalid, unknown()))?, name);
    }
    let alteration = Alteration { entity: of, values: quotas.into_iter().collect() };
    let altered = front.opened()?.quotas.alter(&[alteration], dry_run).await;
    altered.into_iter().collect::<Result<(), QuotaError>>().map_err(|error| refused(&error))?;
    Ok(StatusCode::NO_CONTENT)
}

fn refused(error: &QuotaError) -> Problem {
    let kind = match error {
        QuotaError::Invalid(_) | QuotaError::TooMany | QuotaError::NotKept => Kind::Invalid,
        QuotaError::Storage(_) => Kind::Busy,
        QuotaError::Unreadable(_) => Kind::Failed,
    };
    Problem::new(kind, error.to_string())
}
