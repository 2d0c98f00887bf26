//! Health checks for probes. The response has the state and the reason, and no names.
//!
//! * `live`: the process responds. It checks neither disk nor quorum, which a restart would not heal.
//! * `startup`: recovery of the disk is complete.
//! * `ready`: clients should be sent here. A full disk keeps the node ready, because reads and settles continue;
//!   `alarms` names it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use broker::UnreadyReason;
use serde::Serialize;

use crate::front::{FrontEnd, Readiness};

#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Conditions that need an operator while clients are served.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    alarms: Vec<&'static str>,
}

pub(crate) async fn live() -> Response {
    well("live")
}

pub(crate) async fn startup(State(front): State<FrontEnd>) -> Response {
    match front.node() {
        Some(_) => well("started"),
        None => unwell("starting", recovering(&front)),
    }
}

pub(crate) async fn ready(State(front): State<FrontEnd>) -> Response {
    let why = match front.readiness() {
        Readiness::Ready => {
            let is_full = front.node().is_some_and(|node| node.broker.disk_is_full());
            let alarms = is_full.then_some("the disk is full: this node takes no records");
            let alarms = alarms.into_iter().collect();
            return answer(StatusCode::OK, Health { status: "ready", why: None, alarms });
        }
        Readiness::Recovering => recovering(&front),
        Readiness::Draining => "the node shuts down".into(),
        Readiness::Failed(_) => "a part of the node failed; its log says which".into(),
        Readiness::Broker(UnreadyReason::NoLeader) => match front.waits_for() {
            Some(waits) => format!("no node leads the catalog (shard 0): the node {waits}"),
            None => "no node leads the catalog (shard 0)".into(),
        },
        Readiness::Broker(UnreadyReason::DiskHangs(since)) => {
            format!("a write or sync has not returned for {} seconds", since.as_secs())
        }
    };
    unwell("not-ready", why)
}

fn recovering(front: &FrontEnd) -> String {
    match front.waits_for() {
        Some(waits) => format!("the node {waits}"),
        None => "what is on the disk is being recovered".into(),
    }
}

fn well(status: &'static str) -> Response {
    answer(StatusCode::OK, Health { status, why: None, alarms: Vec::new() })
}

fn unwell(status: &'static str, why: String) -> Response {
    let alarms = Vec::new();
    answer(StatusCode::SERVICE_UNAVAILABLE, Health { status, why: Some(why), alarms })
}

fn answer(status: StatusCode, health: Health) -> Response {
    let text = serde_json::to_string(&health).unwrap_or_default() + "\n";
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}
