//! What a topic is set to, where each value comes from, and changes of it.

use std::collections::BTreeMap;

use access::{Operation, Target};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use broker::config::{ConfigSource, Overrides, describe_topic};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::asked;
use super::topics::{find, not_changed};
use crate::front::Front;
use crate::login::Asker;
use crate::problem::{Kind, Problem};

#[derive(Serialize, ToSchema)]
pub(super) struct TopicConfigs {
    items: Vec<ConfigValue>,
}

#[derive(Serialize, ToSchema)]
struct ConfigValue {
    name: &'static str,
    /// What holds.
    value: String,
    /// `topic`: its own; `node`: what the node sets for all topics; `default`.
    source: &'static str,
    /// What would hold without a value of its own.
    otherwise: String,
    documentation: &'static str,
}

/// What a topic is set to, and where each value comes from.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/config",
    tag = "topics",
    params(("topic" = String, Path)),
    responses((status = 200, body = TopicConfigs))
)]
pub(super) async fn show(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Path(topic): Path<String>,
) -> Result<Json<TopicConfigs>, Problem> {
    described(&front, &asker, &topic).map(Json)
}

fn described(front: &Front, asker: &Asker, name: &str) -> Result<TopicConfigs, Problem> {
    let broker = &front.opened()?.broker;
    let found = find(broker, asker, Operation::Describe, name)?;
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
pub(super) struct ConfigChange {
    config: BTreeMap<String, Option<String>>,
}

/// Change what a topic is set to.
#[utoipa::path(
    patch,
    path = "/v1/topics/{topic}/config",
    tag = "topics",
    params(("topic" = String, Path)),
    request_body = ConfigChange,
    responses((status = 200, body = TopicConfigs))
)]
pub(super) async fn change(
    State(front): State<Front>,
    Extension(asker): Extension<Asker>,
    Path(topic): Path<String>,
    body: Body,
) -> Result<Json<TopicConfigs>, Problem> {
    let ConfigChange { config } = asked::document(&front, body).await?;
    asker.may(Operation::Alter, Target::Topic(&topic))?;
    let broker = &front.opened()?.broker;
    let found = find(broker, &asker, Operation::Describe, &topic)?;
    let mut own: Overrides = {
        let catalog = broker.catalog();
        let known = catalog.topic(found.id);
        known.map(|known| (**known.overrides()).clone()).unwrap_or_default()
    };
    for (name, value) in config {
        match value {
            Some(value) => own.insert(name, value),
            None => own.remove(&name),
        };
    }
    broker.set_topic_config(found.id, own).await.map_err(|error| not_changed(&error))?;
    described(&front, &asker, &topic).map(Json)
}
