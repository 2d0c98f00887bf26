//! Producers of a log: some give up unanswered records, idempotent ones retry them until they are answered.

use base::{PartitionId, TopicId};
use broker::{AppendError, AppendedBatch, ProducerIdentity};
use record::BatchOptions;

use super::{Client, LifeEnded, RecordToSend, batch};
use crate::history::{SentRecord, sent_value};

pub const TOPIC: &str = "log";
pub const PARTITIONS: u32 = 3;
pub const PRODUCERS: u32 = 4;

/// The state of a producer, which continues in the next life of the node.
#[derive(Clone, Debug, Default)]
pub struct Producer {
    pub id: u32,
    next: u32,
    /// The identity of an idempotent producer.
    identity: Option<Identity>,
    /// The unanswered batch.
    open: Option<OpenBatchAppend>,
}

#[derive(Clone, Debug)]
struct Identity {
    id: i64,
    /// The next sequence number of each partition.
    sequences: [i32; PARTITIONS as usize],
}

/// A batch to be appended, until it is acknowledged or given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenBatchAppend {
    pub(crate) partition: u32,
    pub(crate) first: u32,
    pub(crate) records: u32,
    pub(crate) padding: usize,
}

impl OpenBatchAppend {
    /// Its records, as this producer sends them.
    pub(crate) fn sent(self, producer: u32) -> impl Iterator<Item = SentRecord> + Clone {
        (self.first..self.first + self.records).map(move |number| SentRecord { producer, number })
    }
}

impl Producer {
    pub fn new(id: u32) -> Self {
        Self { id, ..Self::default() }
    }

    fn is_idempotent(&self) -> bool {
        self.id.is_multiple_of(2)
    }

    /// Begins a life of the node: a producer that would duplicate records by a retry gives up unanswered ones.
    fn begin(&mut self) {
        if !self.is_idempotent() {
            self.open = None;
        }
    }

    /// Sends until the node has ended.
    pub async fn run(&mut self, mut client: Client) -> LifeEnded {
        self.begin();
        let Ok(topic) = client.topic(TOPIC, PARTITIONS, &[]).await else { return LifeEnded };
        if self.is_idempotent() && self.identity.is_none() {
            loop {
                let allocated = client.broker.allocate_producer_id().await;
                match client.changed(allocated).await {
                    Ok(Ok(ProducerIdentity { id, .. })) => {
                        let sequences = [0; PARTITIONS as usize];
                        self.identity = Some(Identity { id, sequences });
                        break;
                    }
                    Ok(_) => {}
                    Err(LifeEnded) => return LifeEnded,
                }
            }
        }
        loop {
            if self.send(topic, &mut client).await.is_err() {
                return LifeEnded;
            }
            client.think(40).await;
        }
    }

    /// Retries the unanswered batch until it is answered.
    pub async fn finish(&mut self, mut client: Client) -> Result<(), LifeEnded> {
        self.begin();
        let topic = client.topic(TOPIC, PARTITIONS, &[]).await?;
        while self.open.is_some() {
            self.send(topic, &mut client).await?;
        }
        Ok(())
    }

    async fn send(&mut self, topic: TopicId, client: &mut Client) -> Result<(), LifeEnded> {
        let open = match self.open {
            Some(open) => open,
            None => {
                let records = 1 + client.random.below(4) as u32;
                let partition = client.random.below(u64::from(PARTITIONS)) as u32;
                let padding = client.random.below(3_000) as usize;
                let first = self.next;
                self.next += records;
                OpenBatchAppend { partition, first, records, padding }
            }
        };
        self.open = Some(open);
        let OpenBatchAppend { partition, first, records, padding } = open;
        let sent = open.sent(self.id);
        let values = sent.clone().map(|sent| RecordToSend {
            key: None,
            value: sent_value(sent, padding),
            headers: Vec::new(),
        });
        let values: Vec<RecordToSend> = values.collect();
        for sent in sent.clone() {
            client.knowledge.lock().log.send(sent, partition);
        }
        let options = match &self.identity {
            Some(Identity { id, sequences }) => BatchOptions {
                producer_id: *id,
                producer_epoch: 0,
                base_sequence: sequences[partition as usize],
                ..BatchOptions::default()
            },
            None => BatchOptions::default(),
        };
        let now_ms = client.broker.clock().now_ms();
        let batch = batch(PartitionId::new(topic, partition), options, now_ms, &values);
        let appended = client.broker.append(vec![batch]);
        let answer = client.due("an answer to a producer", appended).await.remove(0);
        let Self { id, identity, .. } = self;
        client.trace.note(format_args!("producer {id} sent {first} to {partition}: {answer:?}"));
        match answer {
            Ok(AppendedBatch { base_offset, .. }) => {
                for (sent, offset) in sent.zip(base_offset..) {
                    client.knowledge.lock().log.acknowledge(sent, offset);
                }
                if let Some(identity) = identity {
                    identity.sequences[partition as usize] += records as i32;
                }
                self.open = None;
            }
            Err(error) => {
                if !self.is_idempotent() {
                    self.open = None;
                }
                match &error {
                    AppendError::Unavailable(error) => client.after(error).await?,
                    AppendError::StorageFull { .. } => client.think(300).await,
                    other => client.refused("producer", other),
                }
            }
        }
        Ok(())
    }
}
