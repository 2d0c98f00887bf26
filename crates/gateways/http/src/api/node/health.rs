//! Health checks for RabbitMQ's probes and load balancers: 200, or 503 with the reason.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::api::request::api_error::ApiError;
use crate::api::request::call::{Call, Outcome, node_name};
use crate::front::Readiness;

fn ok() -> Response {
    Json(json!({"status": "ok"})).into_response()
}

fn failed(reason: &str, more: Value) -> Response {
    let mut document = more;
    document["status"] = "failed".into();
    document["reason"] = reason.into();
    (StatusCode::SERVICE_UNAVAILABLE, Json(document)).into_response()
}

/// Always passes: virtual hosts exist as long as the node runs.
pub(in crate::api) async fn well(_: &Call) -> Outcome {
    Ok(ok())
}

pub(in crate::api) async fn ready(call: &Call) -> Outcome {
    Ok(match call.front.readiness() {
        Readiness::Ready => ok(),
        other => failed(&format!("{other:?}"), json!({})),
    })
}

/// The combined check of older tools: the node is ready, and there are no alarms.
pub(in crate::api) async fn node(call: &Call) -> Outcome {
    let asked = call.arg("name");
    if !asked.is_empty() && asked != node_name(call.broker()) {
        return Err(ApiError::not_found());
    }
    match call.front.readiness() {
        Readiness::Ready => alarms(call).await,
        _ => ready(call).await,
    }
}

pub(in crate::api) async fn alarms(call: &Call) -> Outcome {
    let is_full = call.broker().vitals().shards.iter().any(|shard| shard.is_full);
    Ok(match is_full {
        false => ok(),
        true => {
            let node = node_name(call.broker());
            let alarms = json!({"alarms": [{"node": node, "resource": "disk"}]});
            failed("There are alarms in effect in the cluster", alarms)
        }
    })
}

/// Passes on a node without a cluster. In a cluster a node is critical if a shard would lose its quorum without it,
/// which this check does not compute.
pub(in crate::api) async fn quorum(call: &Call) -> Outcome {
    if call.broker().is_alone() {
        return Ok(ok());
    }
    Err(ApiError::bad_request(
        "of a cluster, `postroad cluster status` says which nodes can be done without",
    ))
}

/// Whether the certificate is still valid after that time.
pub(in crate::api) async fn certificate(call: &Call) -> Outcome {
    let wrong = || ApiError::bad_request("a number of days, weeks, months or years is due");
    let within: u64 = call.arg("within").parse().map_err(|_| wrong())?;
    let days = match call.arg("unit") {
        "days" => 1,
        "weeks" => 7,
        "months" => 31,
        "years" => 366,
        _ => return Err(wrong()),
    };
    let Some(tls) = &call.node()?.tls else { return Ok(ok()) };
    let then_ms = within.saturating_mul(days * 24 * 60 * 60 * 1_000);
    let now_ms = call.broker().clock().now_ms();
    let ends_ms = tls.ends_secs().saturating_mul(1_000);
    let left_ms = u64::try_from(ends_ms.saturating_sub(now_ms)).unwrap_or_default();
    Ok(match left_ms > then_ms {
        true => ok(),
        false => {
            let node = node_name(call.broker());
            let expired = json!({"expired": [{"node": node, "ends_ms": ends_ms}]});
            failed("Certificates expiring", expired)
        }
    })
}

pub(in crate::api) async fn port(call: &Call) -> Outcome {
    let port: u16 =
        call.arg("port").parse().map_err(|_| ApiError::bad_request("that is no port"))?;
    let listening = &call.node()?.listening;
    Ok(match listening.iter().any(|it| it.address.port() == port) {
        true => Json(json!({"status": "ok", "port": port})).into_response(),
        false => {
            let ports: Vec<u16> = listening.iter().map(|it| it.address.port()).collect();
            failed("No active listener", json!({"missing": port, "ports": ports}))
        }
    })
}

pub(in crate::api) async fn protocol(call: &Call) -> Outcome {
    let asked = match call.arg("protocol").to_ascii_lowercase().as_str() {
        "amqp091" | "amqp0.9.1" | "amqp" => "amqp".to_owned(),
        "amqps" => "amqp/ssl".to_owned(),
        other => other.to_owned(),
    };
    let listening = &call.node()?.listening;
    Ok(match listening.iter().any(|it| it.protocol == asked) {
        true => Json(json!({"status": "ok", "protocol": asked})).into_response(),
        false => {
            let protocols: Vec<&str> = listening.iter().map(|it| it.protocol).collect();
            failed("No active listener", json!({"missing": asked, "protocols": protocols}))
        }
    })
}
