//! Topics are created, grown and deleted while all other clients work: a confirmed change holds at once.

use base::{PartitionId, TopicId};
use broker::{AppendError, Broker, ExecuteError, NewTopic};
use record::BatchOptions;

use super::{Client, LifeEnded, RecordToSend, batch, value};
use crate::checkers::topics::{Topic, TopicAtStart};
use crate::verdict::Invariant;

pub const CLIENTS: u32 = 2;
const NAMES: u64 = 4;
const PARTITIONS_MAX: u32 = 12;
/// Number of rows past the last partition that are checked for unrequested ones.
const PAST: u32 = 4;

/// Each client has topics of its own, so that it knows their expected state.
pub async fn create_and_delete(mut client: Client, id: u32) -> LifeEnded {
    loop {
        let name = format!("passing-{id}-{}", client.random.below(NAMES));
        let found =
            client.broker.catalog().topic_named(&name).map(|it| (it.id(), it.partition_count()));
        let done = match found {
            Some((topic, count)) if count < PARTITIONS_MAX && client.random.once_in(2) => {
                grow(&mut client, &name, topic, count).await
            }
            Some((topic, _)) => delete(&mut client, &name, topic).await,
            None => create(&mut client, &name).await,
        };
        if done == Err(LifeEnded) {
            return LifeEnded;
        }
        client.think(300).await;
    }
}

async fn create(client: &mut Client, name: &str) -> Result<(), LifeEnded> {
    client.knowledge.lock().topics.set(name, Topic::Unknown);
    let uuid = client.broker.entropy().uuid();
    let partitions = client.random.between(1, 9) as u32;
    let topic = NewTopic { name: name.to_owned(), uuid, partitions, config: Default::default() };
    let made = client.due("a new topic", client.broker.create_topic(topic)).await;
    let answer = client.changed(made).await?;
    client.trace.note(format_args!("create {name}: {answer:?}"));
    match answer {
        Ok(topic) => {
            let there = Topic::There { topic, partitions, partitions_max: partitions };
            client.knowledge.lock().topics.set(name, there);
            let index = client.random.below(partitions.into()) as u32;
            write(client, PartitionId::new(topic, index), true).await
        }
        Err(ExecuteError::Unavailable(_)) => Ok(()),
        other => {
            client.refused("creating a topic", &other);
            Ok(())
        }
    }
}

async fn grow(client: &mut Client, name: &str, topic: TopicId, from: u32) -> Result<(), LifeEnded> {
    let to = client.random.between(u64::from(from) + 1, PARTITIONS_MAX.into()) as u32;
    // The outcome of a request from an earlier life is known now.
    let there = |partitions| Topic::There { topic, partitions, partitions_max: to };
    client.knowledge.lock().topics.set(name, there(from));
    let grown = client.due("more partitions", client.broker.create_partitions(topic, to)).await;
    let answer = client.changed(grown).await?;
    client.trace.note(format_args!("grow {name} to {to}: {answer:?}"));
    match answer {
        Ok(()) => {
            client.knowledge.lock().topics.set(name, there(to));
            write(client, PartitionId::new(topic, to - 1), true).await
        }
        Err(ExecuteError::Unavailable(_)) => Ok(()),
        other => {
            client.refused("growing a topic", &other);
            Ok(())
        }
    }
}

async fn delete(client: &mut Client, name: &str, topic: TopicId) -> Result<(), LifeEnded> {
    client.knowledge.lock().topics.set(name, Topic::Unknown);
    let deleted = client.due("a deletion", client.broker.delete_topic(topic)).await;
    let answer = client.changed(deleted).await?;
    client.trace.note(format_args!("delete {name}: {answer:?}"));
    match answer {
        Ok(()) => {
            client.knowledge.lock().topics.deleted(name, topic);
            write(client, PartitionId::new(topic, 0), false).await
        }
        Err(ExecuteError::Unavailable(_)) => Ok(()),
        other => {
            client.refused("deleting a topic", &other);
            Ok(())
        }
    }
}

/// Writes to an existing or deleted partition.
async fn write(
    client: &mut Client,
    partition: PartitionId,
    is_there: bool,
) -> Result<(), LifeEnded> {
    let record = RecordToSend { key: None, value: value(0, 10), headers: Vec::new() };
    let now_ms = client.broker.clock().now_ms();
    let batch = batch(partition, BatchOptions::default(), now_ms, &[record]);
    let answer = client.broker.append(vec![batch]).await.remove(0);
    client.trace.note(format_args!("write to {partition}: {answer:?}"));
    match &answer {
        Err(AppendError::Unavailable(error)) => client.after(error).await,
        Err(AppendError::StorageFull { .. }) => Ok(()),
        Ok(_) if is_there => Ok(()),
        Err(AppendError::UnknownPartition(_)) if !is_there => Ok(()),
        other => {
            let what = format!("{partition}, there: {is_there}, was written to: {other:?}");
            client.verdict.violated(Invariant::Catalog, what);
            Ok(())
        }
    }
}

/// All topics, with their rows in the shard.
pub fn found(broker: &Broker) -> Vec<TopicAtStart> {
    let known: Vec<(String, TopicId, u32)> = {
        let catalog = broker.catalog();
        let all = catalog.topics();
        all.map(|it| (it.name().to_string(), it.id(), it.partition_count())).collect()
    };
    let each = known.into_iter().map(|(name, topic, partitions)| {
        let rows = rows(broker, topic, partitions + PAST);
        TopicAtStart { name, topic, partitions, rows }
    });
    each.collect()
}

/// The topics among these with rows in the shard.
pub fn left(broker: &Broker, topics: Vec<TopicId>) -> Vec<TopicId> {
    topics.into_iter().filter(|topic| rows(broker, *topic, PARTITIONS_MAX) > 0).collect()
}

fn rows(broker: &Broker, topic: TopicId, up_to: u32) -> u32 {
    let has = |index: &u32| broker.bounds(PartitionId::new(topic, *index)).is_some();
    (0..up_to).filter(has).count() as u32
}
