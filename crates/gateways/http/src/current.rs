//! How new the catalog is that a request is answered from.
//!
//! Another node may have created or deleted something a moment ago, or while this node was cut off. So a request passes
//! the catalog's barrier before a handler sees it, and a change that was answered by any node is seen by all that is
//! asked later. Without a leader of the catalog the request is refused as busy.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use broker::Broker;

use crate::front::Front;
use crate::problem::Problem;

/// Part of the catalog that must be new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Need {
    /// Nothing of it is answered, or only how this node sees the cluster.
    Nothing,
    /// The topic and the group of the path must be known. The shard that has them refuses what is gone.
    Named,
    All,
}

/// Paths of which nothing depends on definitions: an operator asks them during an outage.
const OF_THE_NODE: [&str; 17] = [
    "/metrics",
    "/metrics/detailed",
    "/v1/cluster",
    "/v1/connections",
    "/v1/connections/{connection}",
    "/v1/nodes/{node}",
    "/v1/openapi.json",
    "/v1/overview",
    "/v1/shards",
    "/v1/version",
    "/v1/whoami",
    "/api",
    "/api/",
    "/api/overview",
    "/api/whoami",
    "/api/auth",
    "/api/cluster-name",
];

/// The same below the management API's only route.
const OF_THE_NODE_BELOW: [&str; 5] =
    ["/api/health", "/api/nodes", "/api/connections", "/api/channels", "/api/consumers"];

/// Paths of records, which are asked often.
const OF_RECORDS: [&str; 6] = [
    "/v1/topics/{topic}/records",
    "/v1/topics/{topic}/partitions/{partition}/records",
    "/v1/topics/{topic}/stream",
    "/v1/topics/{topic}/groups/{group}/leases",
    "/v1/topics/{topic}/groups/{group}/settle",
    "/v1/topics/{topic}/groups/{group}/extend",
];

impl Need {
    /// `matched`: the path as its route is written.
    fn of(matched: &str, path: &str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_below = |of: &&str| path.strip_prefix(*of).is_some_and(is_end_of_segment);
        if OF_THE_NODE.contains(&matched)
            || OF_THE_NODE.contains(&path)
            || OF_THE_NODE_BELOW.iter().any(is_below)
        {
            Self::Nothing
        } else if OF_RECORDS.contains(&matched) {
            Self::Named
        } else {
            Self::All
        }
    }
}

fn is_end_of_segment(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// Passes the catalog's barrier, for requests that need it.
pub(crate) async fn catalog(
    State(front): State<Front>,
    // A path that is no text is refused by its handler.
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let matched = matched.map_or("", MatchedPath::as_str);
    let need = Need::of(matched, request.uri().path());
    // One that is not open yet is refused by the handler.
    if let Ok(node) = front.opened() {
        let passes = match need {
            Need::Nothing => false,
            Need::Named => !params.is_ok_and(|params| are_known(&node.broker, &params)),
            Need::All => true,
        };
        if passes && let Err(why) = node.broker.catalog_is_current().await {
            let detail = format!("the catalog's leader does not answer: {why}");
            return Problem::busy(detail).into_response();
        }
    }
    next.run(request).await
}

/// Whether this node's copy has the topic and the group that a path names.
fn are_known(broker: &Broker, params: &RawPathParams) -> bool {
    let param = |name| params.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
    let catalog = broker.catalog();
    let Some(topic) = param("topic").and_then(|topic| catalog.topic_id(topic)) else {
        return false;
    };
    param("group").is_none_or(|group| catalog.lease_group_named(topic, group).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_but_those_of_the_node_and_of_records_needs_a_current_catalog() {
        for path in ["/v1/overview", "/metrics/detailed"] {
            assert_eq!(Need::of(path, path), Need::Nothing, "{path}");
        }
        let below = "/api/{*path}";
        for path in ["/api/overview/", "/api/health/checks/alarms", "/api/nodes"] {
            assert_eq!(Need::of(below, path), Need::Nothing, "{path}");
        }
        for path in ["/api/queues", "/api/queues/%2F/q", "/api/nodesx", "/api/exchanges/%2F/x"] {
            assert_eq!(Need::of(below, path), Need::All, "{path}");
        }
        assert_eq!(Need::of("/v1/topics/{topic}/records", "/v1/topics/t/records"), Need::Named);
        for path in ["/v1/topics", "/v1/topics/{topic}", "/v1/topics/{topic}/config"] {
            assert_eq!(Need::of(path, path), Need::All, "{path}");
        }
    }
}
