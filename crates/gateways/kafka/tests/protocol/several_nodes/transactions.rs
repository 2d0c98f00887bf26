//! Transactions over partitions that several nodes lead, and the loss of one of them.

use std::time::Duration;

use kafka_protocol::messages::FindCoordinatorRequest;
use tokio::time::{sleep, timeout};

use super::{Cluster, all_metadata};
use crate::harness::*;
use crate::transactions::{Producer, end_of, fetched, initialization, produce_in};

const PARTITIONS: i32 = 6;
const ID: &str = "tx";

/// Clients of the nodes that live, and the place of each leader as they tell it.
struct Roads<'a> {
    cluster: &'a Cluster,
    live: Vec<i32>,
}

impl Roads<'_> {
    async fn coordinator(&self) -> Option<Client> {
        let mut client = self.cluster.client(self.live[0]).await;
        let request = FindCoordinatorRequest::default()
            .with_key_type(1)
            .with_coordinator_keys(vec![text(ID)]);
        let found = client.ask(4, &request).await.coordinators.remove(0);
        self.client(found.node_id.0).await.filter(|_| found.error_code == 0)
    }

    async fn leader(&self, partition: i32) -> Option<Client> {
        let mut client = self.cluster.client(self.live[0]).await;
        let metadata = all_metadata(&mut client).await;
        let is_it = |name: &str| name == "orders";
        let topics = metadata.topics.iter();
        let topic = topics.into_iter().find(|it| it.name.as_deref().is_some_and(|it| is_it(it)))?;
        let found = topic.partitions.iter().find(|it| it.partition_index == partition)?;
        self.client(found.leader_id.0).await
    }

    async fn client(&self, node: i32) -> Option<Client> {
        match self.live.contains(&node) {
            true => Some(self.cluster.client(node).await),
            false => None,
        }
    }

    async fn initialize(&self) -> Producer {
        retried(async || {
            let response = self.coordinator().await?.ask(4, &initialization(ID)).await;
            let given = (response.producer_id.0, response.producer_epoch);
            (response.error_code == 0).then_some(given)
        })
        .await
    }

    async fn send(&self, producer: Producer, partition: i32, value: &str) {
        retried(async || {
            let request = produce_in(ID, producer, partition, 0, value);
            let response = self.leader(partition).await?.ask(12, &request).await;
            (only_partition(response).error_code == 0).then_some(())
        })
        .await;
    }

    async fn end(&self, producer: Producer, commit: bool) -> Producer {
        retried(async || {
            let response = self.coordinator().await?.ask(5, &end_of(ID, producer, commit)).await;
            let next = (response.producer_id.0, response.producer_epoch);
            (response.error_code == 0).then_some(next)
        })
        .await
    }

    /// Values of committed transactions, once no transaction is open.
    async fn committed(&self, partition: i32) -> Vec<String> {
        retried(async || {
            let mut client = self.leader(partition).await?;
            let read = fetched(&mut client, partition, true).await;
            if read.error_code != 0 || read.last_stable_offset != read.high_watermark {
                return None;
            }
            let aborted = read.aborted_transactions.expect("they are listed");
            let records = read.records.unwrap_or_default();
            let batches = record::split(&records).map(|split| split.expect("a batch"));
            let batches = batches.filter(|(header, _)| {
                let offset = header.base_offset as i64;
                // Each aborted transaction has one record here.
                let is_aborted = aborted.iter().any(|it| it.first_offset == offset);
                !header.attributes.is_control() && !is_aborted
            });
            Some(batches.flat_map(|(_, place)| values_of(Some(&records[place]))).collect())
        })
        .await
    }
}

/// Repeats a step until it succeeds.
async fn retried<T>(mut step: impl AsyncFnMut() -> Option<T>) -> T {
    let succeeds = async {
        loop {
            if let Some(done) = step().await {
                return done;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, succeeds).await.expect("soon")
}

#[tokio::test]
async fn transaction_over_all_nodes_survives_the_loss_of_any() {
    for lost in 1..=3 {
        let cluster = Cluster::start_newest(3).await;
        cluster.client(1).await.create("orders", PARTITIONS, &[]).await;
        let mut roads = Roads { cluster: &cluster, live: vec![1, 2, 3] };
        let mut producer = roads.initialize().await;
        for (value, commit) in [("a", true), ("b", false), ("c", true)] {
            for partition in 0..PARTITIONS {
                roads.send(producer, partition, value).await;
                if value == "b" && partition == 2 {
                    cluster.end(lost).await;
                    roads.live.retain(|node| *node != lost);
                }
            }
            producer = roads.end(producer, commit).await;
        }
        for partition in 0..PARTITIONS {
            let values = roads.committed(partition).await;
            assert_eq!(values, ["a", "c"], "partition {partition}, without node {lost}");
        }
    }
}
