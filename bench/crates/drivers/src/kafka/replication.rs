//! Who leads the topics of a test, and how many copies are in sync, by Kafka's Metadata.

use std::collections::HashMap;
use std::time::Duration;

use driver::{Failure, Replication};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::metadata::Metadata;

use super::client::refused;

/// A node that was just killed is asked first now and then.
const PATIENCE: Duration = Duration::from_secs(10);

/// Of each topic, which has one partition. `endpoints`: the nodes, in order.
pub(crate) fn replication(
    base: &ClientConfig,
    topics: &[String],
    endpoints: &str,
) -> Result<Vec<Replication>, Failure> {
    let client: BaseConsumer = base.create().map_err(refused)?;
    let metadata = client.fetch_metadata(None, PATIENCE).map_err(refused)?;
    let nodes = nodes(&metadata, endpoints);
    topics.iter().map(|topic| of_topic(&metadata, topic, &nodes)).collect()
}

/// Which place among the endpoints a broker has, by its id.
fn nodes(metadata: &Metadata, endpoints: &str) -> HashMap<i32, usize> {
    let place = |host: &str, port: i32| {
        let address = format!("{host}:{port}");
        endpoints.split(',').position(|endpoint| endpoint.trim() == address)
    };
    let brokers = metadata.brokers().iter();
    brokers.filter_map(|it| Some((it.id(), place(it.host(), it.port())?))).collect()
}

fn of_topic(
    metadata: &Metadata,
    topic: &str,
    nodes: &HashMap<i32, usize>,
) -> Result<Replication, Failure> {
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let partition = found.and_then(|found| found.partitions().first());
    let partition =
        partition.ok_or_else(|| Failure::refused(format!("{topic} is not in the metadata")))?;
    // Of a leader that is gone the id may still be told, without a broker of that id.
    let leader = nodes.get(&partition.leader()).copied();
    Ok(Replication { leader, in_sync: partition.isr().len() as u32 })
}
