//! A group that commits offsets, one after another.

use base::PartitionId;
use broker::Broker;
use machine::Command;
use machine::command::CommitOffset;

use super::{Client, Ended};
use crate::workload::log;

const GROUP: &str = "readers";

pub async fn commit(mut client: Client) -> Ended {
    let Ok(topic) = client.topic(log::TOPIC, log::PARTITIONS, &[]).await else { return Ended };
    let partition = PartitionId::new(topic, 0);
    loop {
        let offset = client.knowledge.lock().offsets.ask();
        let commit = CommitOffset {
            partition,
            offset,
            leader_epoch: -1,
            metadata: String::new(),
            expire_ms: None,
        };
        let command = Command::CommitOffsets { group: GROUP.into(), offsets: vec![commit] };
        match client.execute(command).await {
            Ok(answer) => {
                client.trace.note(format_args!("commit {offset}: {answer:?}"));
                if answer.is_ok() {
                    client.knowledge.lock().offsets.confirm(offset);
                }
            }
            Err(Ended) => return Ended,
        }
        client.think(300).await;
    }
}

/// What is committed.
pub fn committed(broker: &Broker) -> Option<u64> {
    broker.read(|state| {
        let partition = PartitionId::new(state.topic_named(log::TOPIC)?.id, 0);
        Some(state.group(GROUP)?.offset(partition)?.offset)
    })
}
