//! Unsupported features: lists of them are empty, and attempts to set them are rejected by name.

use axum::Json;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, Outcome};
use crate::api::request::list;

pub(in crate::api) async fn none(_: &Call) -> Outcome {
    Ok(Json(json!([])).into_response())
}

/// Global parameters that RabbitMQ sets by itself.
pub(in crate::api) fn globals(call: &Call) -> [Value; 2] {
    let id = call.broker().cluster_id().to_string();
    ["cluster_name", "internal_cluster_id"].map(|name| json!({"name": name, "value": id}))
}

pub(in crate::api) async fn global(call: &Call) -> Outcome {
    let (all, chosen) = list::choose(&call.query, globals(call).to_vec(), |row| {
        row["name"].as_str().unwrap_or_default()
    })?;
    chosen.answer(all)
}

pub(in crate::api) async fn one_global(call: &Call) -> Outcome {
    let found = globals(call).into_iter().find(|row| row["name"] == call.arg("name"));
    Ok(list::one(&call.query, found.ok_or_else(ApiError::not_found)?))
}

/// An item of a list that is always empty. Tools treat 404 of a deletion as success.
pub(in crate::api) async fn always_absent(_: &Call) -> Outcome {
    Err(ApiError::not_found())
}

pub(in crate::api) async fn no_topic_permissions(_: &Call) -> Outcome {
    Err(ApiError::bad_request(
        "there are no topic permissions here: permissions and rules of Kafka's count",
    ))
}

pub(in crate::api) async fn no_parameters(call: &Call) -> Outcome {
    let component = call.arg("component");
    let reason = match component {
        "shovel" => "there are no shovels here; `postroad dead-letter redrive` moves dead letters"
            .to_owned(),
        "" => format!("the global parameter {} means nothing here", call.arg("name")),
        component => format!("component {component} not found"),
    };
    Err(ApiError::bad_request(reason))
}

pub(in crate::api) async fn no_renaming(_: &Call) -> Outcome {
    Err(ApiError::bad_request("a cluster is known by the id that it was founded with, for ever"))
}

pub(in crate::api) async fn no_rebalancing(_: &Call) -> Outcome {
    Err(ApiError::bad_request(
        "queues are not moved between nodes by this; shards are led by those nodes that are not drained",
    ))
}

pub(in crate::api) async fn no_actions(_: &Call) -> Outcome {
    Err(ApiError::bad_request("a queue takes no actions here: it has no mirrors to synchronise"))
}
