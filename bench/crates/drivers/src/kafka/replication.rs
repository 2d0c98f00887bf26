//! Leaders of a test's topics and their in-sync replicas, from Kafka's Metadata.

use std::collections::HashMap;
use std::time::Duration;

use driver::{Failure, Replication};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::Metadata;

use super::client::refused;

/// A node that was just killed may be the first one that is queried.
const PATIENCE: Duration = Duration::from_secs(10);

/// Replication of each topic, which has one partition. `endpoints`: the nodes, in order.
pub(crate) fn replication(
    base: &ClientConfig,
    topics: &[String],
    endpoints: &str,
) -> Result<Vec<Replication>, Failure> {
    let client: BaseConsumer = base.create().map_err(refused)?;
    let metadata = client.fetch_metadata(None, PATIENCE).map_err(refused)?;
    let nodes = nodes(&metadata, endpoints);
    topics.iter().map(|topic| topic_replication(&metadata, topic, &nodes)).collect()
}

/// Index of each broker among the endpoints, by its id.
fn nodes(metadata: &Metadata, endpoints: &str) -> HashMap<i32, usize> {
    let place = |host: &str, port: i32| {
        let address = format!("{host}:{port}");
        endpoints.split(',').position(|endpoint| endpoint.trim() == address)
    };
    let brokers = metadata.brokers().iter();
    brokers.filter_map(|it| Some((it.id(), place(it.host(), it.port())?))).collect()
}

fn topic_replication(
    metadata: &Metadata,
    topic: &str,
    nodes: &HashMap<i32, usize>,
) -> Result<Replication, Failure> {
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let partition = found.and_then(|found| found.partitions().first());
    let partition =
        partition.ok_or_else(|| Failure::refused(format!("{topic} is not in the metadata")))?;
    // The id of a dead leader may still be reported, without a broker of that id.
    let leader = nodes.get(&partition.leader()).copied();
    Ok(Replication { leader, in_sync: partition.isr().len() as u32 })
}
