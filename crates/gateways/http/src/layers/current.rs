//! Freshness of the catalog that a request is answered from.
//!
//! Another node may have created or deleted something a moment ago, or while this node was partitioned. So a request
//! passes the catalog's barrier before its handler runs, and a change confirmed by any node is visible to all later
//! requests. Without a leader of the catalog the request is rejected as busy.

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use broker::Broker;

use crate::front::FrontEnd;
use crate::problem::Problem;

/// Part of the catalog that must be current.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CatalogScope {
    /// None: the response does not depend on it, or shows this node's view of the cluster, or the handler checks it.
    Nothing,
    /// The topic and the group in the path must be known. If they were deleted, their shard rejects the request.
    Named,
    All,
}

/// Paths that do not depend on definitions: operators use them during an outage.
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

/// The same for paths below the management API's only route.
const OF_THE_NODE_BELOW: [&str; 5] =
    ["/api/health", "/api/nodes", "/api/connections", "/api/channels", "/api/consumers"];

/// Path whose topics are in the body.
const OF_THE_BODY: &str = "/v1/transactions";

/// Paths of records, which are requested often.
const OF_RECORDS: [&str; 6] = [
    "/v1/topics/{topic}/records",
    "/v1/topics/{topic}/partitions/{partition}/records",
    "/v1/topics/{topic}/stream",
    "/v1/topics/{topic}/groups/{group}/leases",
    "/v1/topics/{topic}/groups/{group}/settle",
    "/v1/topics/{topic}/groups/{group}/extend",
];

impl CatalogScope {
    /// `matched`: the path pattern of the route.
    fn of(matched: &str, path: &str) -> Self {
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_below = |of: &&str| path.strip_prefix(*of).is_some_and(is_end_of_segment);
        if OF_THE_NODE.contains(&matched)
            || OF_THE_NODE.contains(&path)
            || matched == OF_THE_BODY
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
    State(front): State<FrontEnd>,
    // A path with invalid UTF-8 is rejected by its handler.
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let matched = request.extensions().get::<MatchedPath>();
    let matched = matched.map_or("", MatchedPath::as_str);
    let need = CatalogScope::of(matched, request.uri().path());
    // A node that is not open yet is rejected by the handler.
    if let Ok(node) = front.opened() {
        let followed = match need {
            CatalogScope::Nothing => Ok(()),
            CatalogScope::Named => {
                let are_known = params.is_ok_and(|params| are_known(&node.broker, &params));
                follow(&node.broker, are_known).await
            }
            CatalogScope::All => follow(&node.broker, false).await,
        };
        if let Err(problem) = followed {
            return problem.into_response();
        }
    }
    next.run(request).await
}

/// Makes the copy of the catalog as current as a request needs. `are_known`: the copy has all topics and groups that the
/// request names; if one of them was deleted, its shard rejects the request.
pub(crate) async fn follow(broker: &Broker, are_known: bool) -> Result<(), Problem> {
    if !are_known {
        let current = broker.catalog_is_current().await;
        return current
            .map_err(|why| Problem::busy(format!("the catalog's leader does not answer: {why}")));
    }
    if broker.may_lack_definitions() {
        // A node that stays behind serves records by the definitions that it has.
        let _ = broker.definitions_are_current().await;
    }
    Ok(())
}

/// Whether this node's copy has the topic and the group in the path.
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
    fn only_paths_of_the_node_and_of_records_skip_the_catalog_barrier() {
        for path in ["/v1/overview", "/metrics/detailed", "/v1/transactions"] {
            assert_eq!(CatalogScope::of(path, path), CatalogScope::Nothing, "{path}");
        }
        let below = "/api/{*path}";
        for path in ["/api/overview/", "/api/health/checks/alarms", "/api/nodes"] {
            assert_eq!(CatalogScope::of(below, path), CatalogScope::Nothing, "{path}");
        }
        for path in ["/api/queues", "/api/queues/%2F/q", "/api/nodesx", "/api/exchanges/%2F/x"] {
            assert_eq!(CatalogScope::of(below, path), CatalogScope::All, "{path}");
        }
        assert_eq!(
            CatalogScope::of("/v1/topics/{topic}/records", "/v1/topics/t/records"),
            CatalogScope::Named
        );
        for path in ["/v1/topics", "/v1/topics/{topic}", "/v1/topics/{topic}/config"] {
            assert_eq!(CatalogScope::of(path, path), CatalogScope::All, "{path}");
        }
    }
}
