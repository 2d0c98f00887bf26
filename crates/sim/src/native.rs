//! Producers that write to a node on real threads until it dies, and a reader of all its records.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{AppendBatch, Broker, BrokerOptions, NewTopic};
use bytes::BytesMut;
use record::{BatchBuilder, BatchHeader, BatchOptions};
use world::{SimulatedDisk, World};

use crate::history::{History, SentRecord, sent_of, sent_value};
use crate::random::Random;
use crate::reading;

pub const PARTITIONS: u32 = 3;
const TOPIC: &str = "history";
/// Small, so that a run crosses many segments.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Opens a node on `disk`; `None` if the disk died meanwhile.
pub async fn open(disk: &SimulatedDisk) -> Result<Broker, broker::OpenError> {
    let options = BrokerOptions {
        journal: journal::Options {
            segment_bytes: SEGMENT_BYTES,
            disk_reserve_bytes: 0,
            // Reads must reach the disk, not memory.
            tail_cache_bytes: 64 << 10,
            ..journal::Options::default()
        },
        housekeeping_interval: Duration::from_millis(5),
        ..BrokerOptions::default()
    };
    Broker::open(World::on(Arc::new(disk.clone())), Path::new("/data"), options).await
}

/// The topic of the run, which is created if absent; `None` if the node does not reply.
pub async fn topic(broker: &Broker) -> Option<TopicId> {
    let found = broker.catalog().topic_id(TOPIC);
    if found.is_some() {
        return found;
    }
    let topic = NewTopic {
        name: TOPIC.into(),
        uuid: broker.entropy().uuid(),
        partitions: PARTITIONS,
        config: [("retention.ms".to_string(), "-1".to_string())].into(),
    };
    broker.create_topic(topic).await.ok()
}

/// One producer: sends batches, with several in flight, until the node rejects one. Returns the number of its next
/// record.
pub async fn produce(
    broker: Broker,
    topic: TopicId,
    history: Arc<Mutex<History>>,
    producer: u32,
    mut number: u32,
    mut random: Random,
) -> u32 {
    loop {
        let mut under_way = Vec::new();
        for _ in 0..=random.below(4) {
            let partition = random.below(u64::from(PARTITIONS)) as u32;
            let records = 1 + random.below(4) as u32;
            let padding = random.below(3000) as usize;
            let batch =
                batch(PartitionId::new(topic, partition), producer, number, records, padding);
            {
                let mut history = history.lock().expect("no holder panics");
                for n in number..number + records {
                    history.send(SentRecord { producer, number: n }, partition);
                }
            }
            under_way.push((number, records, broker.append(vec![batch])));
            number += records;
        }
        for (first, records, answer) in under_way {
            let Ok(appended) = answer.await.remove(0) else { return number };
            let mut history = history.lock().expect("no holder panics");
            for n in 0..records {
                let sent = SentRecord { producer, number: first + n };
                history.acknowledge(sent, appended.base_offset + u64::from(n));
            }
        }
    }
}

fn batch(
    partition: PartitionId,
    producer: u32,
    first: u32,
    records: u32,
    padding: usize,
) -> AppendBatch {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for number in first..first + records {
        let value = sent_value(SentRecord { producer, number }, padding);
        builder.push(1, None, Some(&value), &[]).expect("a small record fits");
    }
    let bytes = BytesMut::from(&builder.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("what was built can be read");
    AppendBatch::new(partition, header, bytes)
}

/// All records in a partition, as a consumer reads them.
pub async fn read_all(
    broker: &Broker,
    partition: PartitionId,
) -> Result<Vec<(u64, Option<SentRecord>)>, String> {
    let found = reading::read_all(broker, partition).await?;
    Ok(found
        .into_iter()
        .map(|it| (it.offset, it.value.and_then(|value| sent_of(&value))))
        .collect())
}
