//! Configuration of a topic: values, their sources, and changes.

use std::collections::BTreeMap;

use access::{AccessTarget, Operation};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use broker::config::{ConfigSource, describe_topic};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::topics::changes::{self, CurrentTopic, TopicChange};
use crate::v1::topics::find;

#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct TopicConfigs {
    items: Vec<ConfigValue>,
}

#[derive(Serialize, ToSchema)]
struct ConfigValue {
    name: &'static str,
    /// Effective value.
    value: String,
    /// `topic`: its own; `node`: what the node sets for all topics; `default`.
    source: &'static str,
    /// Effective value without an own value.
    otherwise: String,
    documentation: &'static str,
}

/// Settings of a topic and the source of each value.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/config",
    tag = "topics",
    params(("topic" = String, Path)),
    responses((status = 200, body = TopicConfigs))
)]
pub(in crate::v1) async fn show(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
) -> Result<Response, Problem> {
    answer(&front, &caller, &topic)
}

/// The configuration, with an ETag for its next change.
fn answer(front: &FrontEnd, caller: &RequestClient, topic: &str) -> Result<Response, Problem> {
    // The tag first: one that is older than the response only makes a later change fail. A newer one would let a change
    // of an outdated response pass.
    find(&front.opened()?.broker, caller, Operation::Describe, topic)?;
    let tag = CurrentTopic::of(&front.opened()?.broker, topic)?.header()?;
    let configs = described(front, caller, topic)?;
    Ok(([tag], Json(configs)).into_response())
}

fn described(
    front: &FrontEnd,
    caller: &RequestClient,
    name: &str,
) -> Result<TopicConfigs, Problem> {
    let broker = &front.opened()?.broker;
    let found = find(broker, caller, Operation::Describe, name)?;
    let catalog = broker.catalog();
    let gone = || Problem::new(Kind::NoSuchTopic, "the topic was deleted");
    let topic = catalog.topic(found.id).ok_or_else(gone)?;
    let described = describe_topic(topic.overrides(), catalog.node_config());
    let items = described.map(|config| ConfigValue {
        name: config.name,
        value: config.value.to_owned(),
        source: match config.source {
            ConfigSource::Own => "topic",
            ConfigSource::Node => "node",
            ConfigSource::Default => "default",
        },
        otherwise: config.node_value.unwrap_or(config.default).to_owned(),
        documentation: config.documentation,
    });
    Ok(TopicConfigs { items: items.collect() })
}

/// Values by name. Null: it has none of its own any more. Those that are not named stay.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::v1) struct ChangedConfig {
    config: BTreeMap<String, Option<String>>,
}

/// Change what a topic is set to. With `If-Match` only where it is what the `ETag` of an earlier answer says.
#[utoipa::path(
    patch,
    path = "/v1/topics/{topic}/config",
    tag = "topics",
    params(("topic" = String, Path), ("if-match" = Option<String>, Header)),
    request_body = ChangedConfig,
    responses((status = 200, body = TopicConfigs))
)]
pub(in crate::v1) async fn change(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let ChangedConfig { config } = request_input::document(&front, body).await?;
    caller.may(Operation::Alter, AccessTarget::Topic(&topic))?;
    let broker = &front.opened()?.broker;
    find(broker, &caller, Operation::Describe, &topic)?;
    let wanted = TopicChange { partitions: None, config };
    changes::change(broker, &topic, &headers, &wanted, false).await?;
    answer(&front, &caller, &topic)
}
