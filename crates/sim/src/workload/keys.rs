//! A producer of a compacted topic, whose records replace each other.

use base::PartitionId;
use broker::{AppendError, Broker};
use record::BatchOptions;

use super::{Client, LifeEnded, RecordToSend, batch, number, value};
use crate::reading;

const TOPIC: &str = "keys";
const KEYS: u64 = 12;
/// Compacted as soon as anything can be compacted.
const CONFIG: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01"), ("segment.ms", "1000")];

pub async fn produce(mut client: Client) -> LifeEnded {
    let Ok(topic) = client.topic(TOPIC, 1, &CONFIG).await else { return LifeEnded };
    loop {
        let key = client.random.below(KEYS) as u8;
        let padding = client.random.below(2_000) as usize;
        let number = client.knowledge.lock().keys.send(key);
        let record =
            RecordToSend { key: Some(key), value: value(number, padding), headers: Vec::new() };
        let now_ms = client.broker.clock().now_ms();
        let batch = batch(PartitionId::new(topic, 0), BatchOptions::default(), now_ms, &[record]);
        let appended = client.broker.append(vec![batch]);
        let answer = client.due("an answer to a producer of keys", appended).await.remove(0);
        client.trace.note(format_args!("key {key} is {number}: {answer:?}"));
        match &answer {
            Ok(_) => client.knowledge.lock().keys.acknowledge(key, number),
            Err(AppendError::Unavailable(error)) => match client.after(error).await {
                Ok(()) => {}
                Err(LifeEnded) => return LifeEnded,
            },
            Err(AppendError::StorageFull { .. }) => client.think(300).await,
            Err(other) => client.refused("producer of keys", other),
        }
        client.think(60).await;
    }
}

/// Key and number of each existing record, in order.
pub async fn found(broker: &Broker) -> Result<Vec<(u8, u32)>, String> {
    let topic = broker.catalog().topic_id(TOPIC);
    let Some(topic) = topic else { return Ok(Vec::new()) };
    let found = reading::read_all(broker, PartitionId::new(topic, 0)).await?;
    let entry = |it: reading::ReadRecord| {
        let key = *it.key?.first()?;
        Some((key, number(&it.value?)?))
    };
    found.into_iter().map(|it| entry(it).ok_or_else(|| "a record was changed".to_owned())).collect()
}
