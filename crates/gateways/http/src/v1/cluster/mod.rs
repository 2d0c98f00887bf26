//! State of nodes and shards, and decisions of operators about them.
//!
//! * `overview`, `connections`: state of the node and its clients; `about`: its version, and the current user

pub(super) mod about;
pub(super) mod connections;
pub(super) mod overview;

use access_rules::acl::Action;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::{Extension, Json};
use operations::cluster::{self, FAMILY, NodeState, Status};
use operations::document::{Operation, ShardList};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::front::FrontEnd;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::request_input;
use crate::v1::operate::{ask, ask_for, family_operation, json_response};

#[derive(Serialize, ToSchema)]
pub(super) struct Cluster {
    /// Whether the node is one of several. One that is alone has no status.
    clustered: bool,
    /// The node that answers.
    node: u32,
    /// How nodes and shards stand, as the node that answers sees it.
    #[schema(value_type = Option<Object>)]
    status: Option<Status>,
}

/// How the cluster stands.
#[utoipa::path(
    get,
    path = "/v1/cluster",
    tag = "operate",
    responses((status = 200, body = Cluster))
)]
pub(super) async fn show(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
) -> Result<Json<Cluster>, Problem> {
    caller.cluster(Action::Describe)?;
    let node = front.opened()?.broker.node();
    let operation = family_operation(FAMILY, written(&cluster::Operation::Status {})?);
    let status = match ask_for(&front, &caller, operation, Kind::NotFound).await {
        Ok(status) => Some(status),
        // The node is not in a cluster.
        Err(problem) if problem.kind() == Kind::Invalid => None,
        Err(problem) => return Err(problem),
    };
    Ok(Json(Cluster { clustered: status.is_some(), node, status }))
}

fn written(operation: &cluster::Operation) -> Result<serde_json::Value, Problem> {
    let written = serde_json::to_value(operation);
    written.map_err(|error| Problem::new(Kind::Failed, error.to_string()))
}

/// The shards of this node: their logs, and what they hold.
#[utoipa::path(
    get,
    path = "/v1/shards",
    tag = "operate",
    responses((status = 200, body = Object))
)]
pub(super) async fn shards(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
) -> Result<Json<ShardList>, Problem> {
    ask_for(&front, &caller, Operation::ListShards {}, Kind::NotFound).await.map(Json)
}

/// Decision about a node.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeChange {
    #[schema(value_type = String)]
    standing: NodeState,
}

/// Have a node lead nothing (`drained`), or lead again and stay (`active`), or give up all that it has (`leaving`).
#[utoipa::path(
    patch,
    path = "/v1/nodes/{node}",
    tag = "operate",
    params(("node" = u64, Path)),
    request_body = NodeChange,
    responses((status = 200, body = Object))
)]
pub(super) async fn decide(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(node): Path<String>,
    body: Body,
) -> Result<Response, Problem> {
    let wrong = || Problem::new(Kind::BadRequest, format!("{node:?} is no number of a node"));
    let node: u64 = node.parse().map_err(|_| wrong())?;
    let NodeChange { standing } = request_input::document(&front, body).await?;
    let operation = match standing {
        NodeState::Drained => cluster::Operation::DrainNode { node },
        NodeState::Active => cluster::Operation::ResumeNode { node },
        NodeState::Leaving => cluster::Operation::RemoveNode { node },
    };
    let operation = family_operation(FAMILY, written(&operation)?);
    Ok(json_response(ask(&front, &caller, operation, Kind::NotFound).await?))
}

/// Where partitions are wanted.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveWanted {
    partitions: Vec<u32>,
    /// Absent: those that move are to stay where they are.
    to_shard: Option<u32>,
}

/// Partitions that move from shard to shard, and the shard of each partition of the topic.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/moves",
    tag = "operate",
    params(("topic" = String, Path)),
    responses((status = 200, body = Object))
)]
pub(super) async fn moves(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
) -> Result<Response, Problem> {
    let operation = cluster::Operation::Moves { topic: Some(topic) };
    let operation = family_operation(FAMILY, written(&operation)?);
    Ok(json_response(ask(&front, &caller, operation, Kind::NotFound).await?))
}

/// Move partitions of a topic to another shard. It is answered when that is decided, and goes on by itself.
#[utoipa::path(
    post,
    path = "/v1/topics/{topic}/moves",
    tag = "operate",
    params(("topic" = String, Path)),
    request_body = MoveWanted,
    responses((status = 200, body = Object))
)]
pub(super) async fn move_partitions(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Path(topic): Path<String>,
    body: Body,
) -> Result<Response, Problem> {
    let MoveWanted { partitions, to_shard } = request_input::document(&front, body).await?;
    let operation = match to_shard {
        Some(to_shard) => cluster::Operation::MovePartitions { topic, partitions, to_shard },
        None => cluster::Operation::CancelMoves { topic, partitions },
    };
    let operation = family_operation(FAMILY, written(&operation)?);
    Ok(json_response(ask(&front, &caller, operation, Kind::NotFound).await?))
}
