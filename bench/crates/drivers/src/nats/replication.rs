//! Leaders of a test's streams and their current replicas, from the stream info.

use std::collections::HashMap;

use async_nats::jetstream;
use async_nats::jetstream::stream::ClusterInfo;
use driver::{Failure, Replication, Topology};

use super::{Server, refused};

/// Replication of each stream. The nodes are the server's endpoints, in order.
pub(super) async fn replication(
    server: &Server,
    topology: &Topology,
) -> Result<Vec<Replication>, Failure> {
    let nodes = names(server).await;
    let context = jetstream::new(server.open().await?);
    let mut found = Vec::new();
    for destination in 0..topology.destinations {
        let stream =
            context.get_stream(topology.destination(destination)).await.map_err(refused)?;
        found.push(stream_replication(stream.cached_info().cluster.as_ref(), &nodes));
    }
    Ok(found)
}

/// Index of each server among the endpoints, by the name that it reports. An unreachable server
/// leads nothing.
async fn names(server: &Server) -> HashMap<String, usize> {
    let mut names = HashMap::new();
    for (place, endpoint) in server.endpoints.iter().enumerate() {
        let alone = Server { endpoints: vec![endpoint.clone()], ..server.clone() };
        if let Ok(client) = alone.open().await {
            names.insert(client.server_info().server_name, place);
        }
    }
    names
}

fn stream_replication(
    cluster: Option<&ClusterInfo>,
    nodes: &HashMap<String, usize>,
) -> Replication {
    let leader = cluster.and_then(|cluster| cluster.leader.as_ref());
    let followers = cluster.into_iter().flat_map(|cluster| &cluster.replicas);
    let current = followers.filter(|follower| follower.current && !follower.offline).count();
    // A standalone server reports no cluster.
    let leads = leader.is_some() || cluster.is_none();
    Replication {
        leader: leader.and_then(|name| nodes.get(name)).copied(),
        in_sync: u32::from(leads) + current as u32,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lagging_or_offline_replica_is_not_in_sync() {
        let follower = |name: &str, current: bool, offline: bool| json!({ "name": name, "current": current, "offline": offline, "active": 1 });
        let of = |replicas: [serde_json::Value; 2]| -> ClusterInfo {
            let cluster = json!({ "name": "bench", "leader": "bench-2", "replicas": replicas });
            serde_json::from_value(cluster).expect("as the server says it")
        };
        let nodes = HashMap::from([("bench-1".to_owned(), 0), ("bench-2".to_owned(), 1)]);
        let whole = of([follower("bench-1", true, false), follower("bench-3", true, false)]);
        let found = stream_replication(Some(&whole), &nodes);
        assert_eq!(found, Replication { leader: Some(1), in_sync: 3 });
        let missed = of([follower("bench-1", false, false), follower("bench-3", true, true)]);
        assert_eq!(stream_replication(Some(&missed), &nodes).in_sync, 1);
        let unled = ClusterInfo { leader: None, ..missed };
        assert_eq!(
            stream_replication(Some(&unled), &nodes),
            Replication { leader: None, in_sync: 0 }
        );
    }
}
