//! A group that commits offsets, one after another.

use base::PartitionId;
use broker::{Broker, CommitOffset};

use super::{Client, LifeEnded};
use crate::workload::log;

const GROUP: &str = "readers";

pub async fn commit(mut client: Client) -> LifeEnded {
    let Ok(topic) = client.topic(log::TOPIC, log::PARTITIONS, &[]).await else { return LifeEnded };
    let partition = PartitionId::new(topic, 0);
    loop {
        let offset = client.knowledge.lock().offsets.next_commit();
        let commit = CommitOffset {
            partition,
            offset,
            leader_epoch: -1,
            metadata: String::new(),
            expire_ms: None,
        };
        let shards = client.broker.shards();
        let committed = client.due("a commit", shards.commit_offsets(GROUP, vec![commit])).await;
        match client.changed(committed).await {
            Ok(answer) => {
                client.trace.note(format_args!("commit {offset}: {answer:?}"));
                if answer.is_ok() {
                    client.knowledge.lock().offsets.confirm(offset);
                }
            }
            Err(LifeEnded) => return LifeEnded,
        }
        client.think(300).await;
    }
}

/// The committed offset.
pub async fn committed(broker: &Broker) -> Option<u64> {
    let topic = broker.catalog().topic_id(log::TOPIC)?;
    let committed = broker.shards().offsets(GROUP, &[PartitionId::new(topic, 0)]).await.ok()?;
    Some(committed.into_iter().next()??.offset)
}
