//! Producers of a log with Kafka's protocol. Unanswered records are given up.

use base::PartitionId;
use broker::Broker;
use bytes::Bytes;
use client::requests::{self, ProduceOutcome};
use client::{CallError, Pipeline};
use record::BatchOptions;

use super::{Client, LifeEnded, RecordToSend, batch};
use crate::history::{SentRecord, sent_value};
use crate::network;

pub const TOPIC: &str = "kafka-log";
pub const PARTITIONS: u32 = 3;
pub const PRODUCERS: u32 = 2;

/// Sends from the stored next number on, and updates it.
pub async fn produce(mut client: Client, producer: u32, next: &mut u32) -> LifeEnded {
    if client.topic(TOPIC, PARTITIONS, &[]).await.is_err() {
        return LifeEnded;
    }
    loop {
        match network::kafka().await {
            Ok(pipeline) => {
                let ended = send(&mut client, pipeline, producer, next).await;
                client.trace.note(format_args!("kafka producer {producer} is cut off: {ended}"));
            }
            Err(error) => {
                client
                    .trace
                    .note(format_args!("kafka producer {producer} cannot connect: {error}"));
            }
        }
        client.think(500).await;
    }
}

/// Sends over one connection until it fails, and returns the error.
async fn send(
    client: &mut Client,
    mut pipeline: Pipeline,
    producer: u32,
    next: &mut u32,
) -> String {
    loop {
        let (partition, first) = (client.random.below(PARTITIONS.into()) as u32, *next);
        let records = client.random.between(1, 4) as u32;
        *next += records;
        let padding = client.random.below(2_000) as usize;
        let sent = (first..first + records).map(|number| SentRecord { producer, number });
        let values: Vec<RecordToSend> = sent
            .clone()
            .map(|sent| RecordToSend {
                key: None,
                value: sent_value(sent, padding),
                headers: Vec::new(),
            })
            .collect();
        for sent in sent.clone() {
            client.knowledge.lock().kafka.send(sent, partition);
        }
        let answer = match append(client, &mut pipeline, (TOPIC, partition), &values).await {
            Ok(answer) => answer,
            Err(error) => return error.to_string(),
        };
        client.trace.note(format_args!("kafka producer {producer} sent {first}: {answer:?}"));
        match answer {
            ProduceOutcome::Acknowledged { base_offset } => {
                for (sent, offset) in sent.zip(base_offset as u64..) {
                    client.knowledge.lock().kafka.acknowledge(sent, offset);
                }
            }
            ProduceOutcome::Refused { .. } => client.think(300).await,
        }
        client.think(80).await;
    }
}

/// Sends records in one batch, and waits for the reply.
pub async fn append(
    client: &Client,
    pipeline: &mut Pipeline,
    (topic, partition): (&str, u32),
    records: &[RecordToSend],
) -> Result<ProduceOutcome, CallError> {
    // Only the batch is used, and it has no topic.
    let place = PartitionId::new(base::TopicId(0), partition);
    let now_ms = client.broker.clock().now_ms();
    let batch = batch(place, BatchOptions::default(), now_ms, records);
    let batch = (partition as i32, Bytes::from(batch.bytes));
    let request = requests::produce(topic, -1, [batch]);
    let produced = pipeline.call(requests::PRODUCE, &request);
    let answers =
        requests::produced(&client.due("an answer to a produce request", produced).await?);
    if answers.len() != 1 {
        client.refused("a produce request", &answers);
    }
    Ok(answers.first().copied().unwrap_or(ProduceOutcome::Refused { code: -1 }))
}

/// The topic's partitions, if it exists.
pub fn partitions(broker: &Broker) -> Vec<PartitionId> {
    let topic = broker.catalog().topic_id(TOPIC);
    let of = |topic| (0..PARTITIONS).map(move |index| PartitionId::new(topic, index));
    topic.into_iter().flat_map(of).collect()
}
