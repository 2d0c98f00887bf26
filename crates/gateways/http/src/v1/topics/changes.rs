//! Changes of a topic: configuration and number of partitions.
//!
//! A change is computed from the topic's definition and applied only if that is still current, so that concurrent
//! changes do not undo each other. With `If-Match`, a client learns that its `ETag` is outdated; without it, the
//! change is recomputed.

use std::collections::BTreeMap;

use access::{AccessTarget, Operation};
use access_rules::quota::Quota;
use aws_lc_rs::digest;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base::TopicId;
use broker::config::Overrides;
use broker::{Broker, ExecuteError, Refusal, TopicDefinition};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::query::DryRunQuery;
use crate::v1::topics::{find, no_topic, not_changed};

/// Limit of retries after conflicts with other changes.
const ATTEMPTS_MAX: usize = 10;

/// The changeable part of a topic, and its ETag.
pub(in crate::v1) struct CurrentTopic {
    id: TopicId,
    uuid: Uuid,
    definition: TopicDefinition,
    tag: String,
}

impl CurrentTopic {
    pub(in crate::v1) fn of(broker: &Broker, name: &str) -> Result<Self, Problem> {
        let catalog = broker.catalog();
        let topic = catalog.topic_named(name).ok_or_else(|| no_topic(name))?;
        let config: Overrides = (**topic.overrides()).clone();
        let definition = TopicDefinition { partitions: topic.partition_count(), config };
        Ok(Self::new(topic.id(), topic.uuid(), definition))
    }

    fn new(id: TopicId, uuid: Uuid, definition: TopicDefinition) -> Self {
        let tag = tag(uuid.as_bytes(), &definition);
        Self { id, uuid, definition, tag }
    }

    /// The ETag header.
    pub(in crate::v1) fn header(&self) -> Result<(HeaderName, HeaderValue), Problem> {
        let value = HeaderValue::from_str(&self.tag);
        let value = value.map_err(|error| Problem::new(Kind::Failed, error.to_string()))?;
        Ok((ETAG, value))
    }

    /// Checks `If-Match`, if the request has it.
    fn check(&self, name: &str, headers: &HeaderMap) -> Result<(), Problem> {
        let is_this = |said: &str| matches!(said.trim(), tag if tag == "*" || tag == self.tag);
        let mut said = headers.get_all(IF_MATCH).iter().peekable();
        let fits =
            |value: &HeaderValue| value.to_str().is_ok_and(|all| all.split(',').any(is_this));
        match said.peek().is_none() || said.any(fits) {
            true => Ok(()),
            false => {
                let detail = format!("topic {name} has the ETag {} by now", self.tag);
                Err(Problem::new(Kind::Changed, detail))
            }
        }
    }
}

/// ETag of a topic's definition: equal for the same topic and definition, and otherwise different.
fn tag(topic: &[u8], definition: &TopicDefinition) -> String {
    let mut hashed = digest::Context::new(&digest::SHA256);
    hashed.update(topic);
    hashed.update(&definition.partitions.to_be_bytes());
    for text in definition.config.iter().flat_map(|(name, value)| [name, value]) {
        hashed.update(&(text.len() as u64).to_be_bytes());
        hashed.update(text.as_bytes());
    }
    let digest = hashed.finish();
    let hex: String = digest.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

/// Changes the topic, or validates the change, and returns the resulting definition.
pub(in crate::v1) async fn change(
    broker: &Broker,
    name: &str,
    headers: &HeaderMap,
    wanted: &TopicChange,
    dry_run: bool,
) -> Result<CurrentTopic, Problem> {
    for _ in 0..ATTEMPTS_MAX {
        let seen = CurrentTopic::of(broker, name)?;
        seen.check(name, headers)?;
        let CurrentTopic { id, uuid, definition: seen, tag } = seen;
        let mut next = seen.clone();
        next.partitions = wanted.partitions.unwrap_or(next.partitions);
        for (name, value) in wanted.config.clone() {
            match value {
                Some(value) => next.config.insert(name, value),
                None => next.config.remove(&name),
            };
        }
        let changed = match dry_run {
            true => {
                let checked = broker.catalog().check_definition(id, &seen, &next);
                let checked = checked.and_then(|()| broker.check_level_of(&next.config));
                checked.map_err(ExecuteError::Refused)
            }
            false => broker.change_topic(id, seen, next.clone()).await,
        };
        match changed {
            // After a dry run, the client's ETag is still that of the current definition.
            Ok(()) if dry_run => return Ok(CurrentTopic { id, uuid, definition: next, tag }),
            Ok(()) => return Ok(CurrentTopic::new(id, uuid, next)),
            Err(ExecuteError::Refused(Refusal::TopicChanged { .. })) => {}
            Err(error) => return Err(not_changed(&error)),
        }
    }
    Err(Problem::busy("other clients change the topic all the time"))
}

/// Requested changes.
#[derive(Default, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::v1) struct TopicChange {
    /// How many it is to have; never fewer than before. Keys go to other partitions than before.
    pub(in crate::v1) partitions: Option<u32>,
    /// Values by name. Null: it has none of its own any more. Those that are not named stay.
    pub(in crate::v1) config: BTreeMap<String, Option<String>>,
}

/// The topic after the change; with `dry_run`, as it would be.
#[derive(Serialize, ToSchema)]
pub(in crate::v1) struct ChangedTopic {
    name: String,
    partitions: u32,
    /// Its own values.
    config: BTreeMap<String, String>,
    dry_run: bool,
}

/// Change what a topic is set to, give it more partitions, or both, all of it or nothing. With `If-Match` only where it is
/// what the `ETag` of an earlier answer says.
#[utoipa::path(
    patch,
    path = "/v1/topics/{topic}",
    tag = "topics",
    params(
        ("topic" = String, Path),
        ("if-match" = Option<String>, Header),
        DryRunQuery,
    ),
    request_body = TopicChange,
    responses((status = 200, body = ChangedTopic))
)]
pub(in crate::v1) async fn patch(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let DryRunQuery { dry_run } = request_input::query(&uri)?;
    let wanted: TopicChange = request_input::document(&front, body).await?;
    caller.may(Operation::Alter, AccessTarget::Topic(&name))?;
    let node = front.opened()?;
    let broker = &node.broker;
    let found = find(broker, &caller, Operation::Describe, &name)?;
    if let Some(more) = wanted.partitions.filter(|_| !dry_run) {
        let spending = RequestCharges::begin(node, &caller, Quota::ControllerMutationRate)?;
        spending.charge(more.saturating_sub(found.partitions).into());
    }
    let changed = change(broker, &name, &headers, &wanted, dry_run).await?;
    let tag = changed.header()?;
    let TopicDefinition { partitions, config } = changed.definition;
    Ok(([tag], Json(ChangedTopic { name, partitions, config, dry_run })).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etag_differs_between_topics_and_definitions() {
        let definition = |partitions, config: &[(&str, &str)]| TopicDefinition {
            partitions,
            config: config.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        };
        let tags = [
            tag(b"1", &definition(1, &[])),
            tag(b"2", &definition(1, &[])),
            tag(b"1", &definition(2, &[])),
            tag(b"1", &definition(1, &[("ab", "c")])),
            tag(b"1", &definition(1, &[("a", "bc")])),
            tag(b"1", &definition(1, &[("a", "b"), ("c", "d")])),
        ];
        for (at, one) in tags.iter().enumerate() {
            assert!(!tags[at + 1..].contains(one), "{tags:?}");
        }
        assert_eq!(tags[0], tag(b"1", &definition(1, &[])));
        assert!(tags[0].starts_with('"') && tags[0].len() == 26, "{tags:?}");
    }
}
