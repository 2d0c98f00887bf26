//! Produce: the hot path. A batch is checked where it lies in the frame, gets what its topic's
//! policy asks for, and goes to the broker; nothing is copied unless it must be recompressed.
//!
//! What can be refused is refused here, before the broker sees it; all the rest of a request is
//! handed over at once, at the moment the request was read, which fixes its place in the order.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use broker::{AppendBatch, AppendReply};
use bytes::{Bytes, BytesMut};
use kafka_protocol::error::ResponseError;
use machine::TopicConfig;
use machine::config::{CompressionType, TimestampType};
use record::{BatchError, BatchHeader, Compression, RefusedRecord, ValidateLimits};

use base::limits::{BATCH_BYTES_MAX, REFUSED_RECORDS_NAMED_MAX};
use base::{PartitionId, TopicId};

use crate::dispatch::Started;
use crate::errors::{Fault, refused_records};
use crate::gateway::Gateway;
use crate::no_transactions::no_transactions;
use crate::produce_request::{ProduceRequest, ProduceTopic};
use crate::produce_response::{self, PartitionResult};
use crate::request::{Request, RequestError, RequestHead};
use crate::response::Response;
use crate::session::SessionEnd;
use crate::topic_ref::TopicRef;

/// Before it, clients do not know Zstandard (KIP-110).
const ZSTD_SINCE: i16 = 7;

/// A request whose batches are with the broker.
#[derive(Debug)]
pub(crate) struct PendingProduce {
    head: RequestHead,
    wants_answer: bool,
    topics: Vec<ProduceTopic>,
    slots: Vec<(i32, Slot)>,
    reply: AppendReply,
}

/// What is known of a partition while the broker has the request.
#[derive(Debug)]
enum Slot {
    Refused(Refused),
    /// The next of the broker's answers is this one's.
    Appending {
        log_append_time: i64,
    },
}

impl Slot {
    fn refused(fault: Fault) -> Self {
        Self::Refused(Box::new((fault, Vec::new())))
    }
}

/// Checks a request and hands it over.
pub(crate) fn start(gateway: &Gateway, request: Request) -> Result<Started, RequestError> {
    let Request { head, body } = request;
    let (api, version) = (head.api, head.version);
    let produce = ProduceRequest::parse(version, body)
        .map_err(|malformed| RequestError::Malformed { api, version, malformed })?;
    let wants_answer = produce.acks != 0;
    let refused_whole = whole_refusal(&produce);
    let resolved = resolve(gateway, &produce.topics);
    let now_ms = gateway.broker.clock().now_ms();

    let mut slots = Vec::with_capacity(produce.partitions.len());
    let mut batches = Vec::with_capacity(produce.partitions.len());
    let mut partitions = produce.partitions.into_iter();
    let mut named_max = REFUSED_RECORDS_NAMED_MAX;
    for (topic, resolved) in produce.topics.iter().zip(resolved) {
        for partition in partitions.by_ref().take(topic.partitions) {
            let slot = match (&refused_whole, &resolved) {
                (Some(fault), _) => Slot::refused(fault.clone()),
                (None, Err(fault)) => Slot::refused(fault.clone()),
                (None, Ok(resolved)) => {
                    let policy =
                        Policy { version, acks: produce.acks, now_ms, named_max, resolved };
                    match policy.admit(partition.index, partition.records) {
                        Ok((batch, log_append_time)) => {
                            batches.push(batch);
                            Slot::Appending { log_append_time }
                        }
                        Err(refused) => {
                            named_max = named_max.saturating_sub(refused.1.len());
                            Slot::Refused(refused)
                        }
                    }
                }
            };
            slots.push((partition.index, slot));
        }
    }
    let reply = gateway.broker.append(batches);
    let pending = PendingProduce { head, wants_answer, topics: produce.topics, slots, reply };
    Ok(Started::Produce(Box::new(pending)))
}

/// Why all of a request is refused, whatever its topics are.
fn whole_refusal(produce: &ProduceRequest) -> Option<Fault> {
    if !matches!(produce.acks, -1..=1) {
        return Some(Fault::new(
            ResponseError::InvalidRequiredAcks,
            format!("acks must be -1 (all), 0 or 1, not {}", produce.acks),
        ));
    }
    produce.transactional.then(no_transactions)
}

struct Resolved {
    id: TopicId,
    partitions: u32,
    config: Arc<TopicConfig>,
}

/// All of a request's topics under one lock.
fn resolve(gateway: &Gateway, topics: &[ProduceTopic]) -> Vec<Result<Resolved, Fault>> {
    gateway.broker.read(|state| {
        let find = |topic: &ProduceTopic| {
            let found = match &topic.topic {
                TopicRef::Name(name) => state.topic_named(name),
                TopicRef::Id(id) => state.topic_with_uuid(id),
            };
            found.ok_or_else(|| topic.topic.unknown()).map(|found| Resolved {
                id: found.id,
                partitions: found.partition_count(),
                config: Arc::clone(&found.config),
            })
        };
        topics.iter().map(find).collect()
    })
}

/// What a batch must be, and what is done to it, before the broker takes it.
struct Policy<'a> {
    version: i16,
    acks: i16,
    now_ms: i64,
    /// How many refused records may still be named.
    named_max: usize,
    resolved: &'a Resolved,
}

/// Why, and which records are to blame, if it is not all of them.
type Refused = Box<(Fault, Vec<RefusedRecord>)>;

impl Policy<'_> {
    /// Returns the batch and the time that the broker gave it, or -1.
    fn admit(&self, index: i32, records: Option<BytesMut>) -> Result<(AppendBatch, i64), Refused> {
        let refuse = |fault: Fault| Box::new((fault, Vec::new()));
        let config = &*self.resolved.config;
        let index = u32::try_from(index)
            .ok()
            .filter(|index| *index < self.resolved.partitions)
            .ok_or_else(|| refuse(Fault::unknown_partition()))?;
        let bytes = records.filter(|records| !records.is_empty()).ok_or_else(|| {
            refuse(Fault::new(
                ResponseError::InvalidRecord,
                "a produce request must have exactly one record batch per partition",
            ))
        })?;
        if self.acks == -1 && config.min_insync_replicas > 1 {
            return Err(refuse(Fault::new(
                ResponseError::NotEnoughReplicas,
                format!(
                    "min.insync.replicas is {} and this topic has one replica",
                    config.min_insync_replicas
                ),
            )));
        }
        let (header, bytes, log_append_time) = self
            .check(bytes)
            .map_err(|error| Box::new((Fault::from(&error), refused_records(error))))?;
        if header.attributes.is_transactional() {
            return Err(refuse(no_transactions()));
        }
        if header.attributes.compression() == Compression::Zstd && self.version < ZSTD_SINCE {
            return Err(refuse(Fault::new(
                ResponseError::UnsupportedCompressionType,
                format!("produce version {} does not know zstd", self.version),
            )));
        }
        let partition = PartitionId::new(self.resolved.id, index);
        Ok((AppendBatch { partition, header, bytes, expect: None }, log_append_time))
    }

    fn check(&self, mut bytes: BytesMut) -> Result<(BatchHeader, BytesMut, i64), BatchError> {
        let config = &*self.resolved.config;
        let log_append_time = config.timestamp_type == TimestampType::LogAppendTime;
        let validated = record::validate(&bytes, &self.limits(config))?;
        let mut header = validated.header;
        let mut changed = false;
        if let Some((codec, level)) = codec(config)
            && codec != header.attributes.compression()
        {
            let packed = record::recompress_at(&bytes, codec, level)?;
            let limit = config.max_message_bytes as usize;
            if packed.len() > limit {
                return Err(BatchError::TooLarge { bytes: packed.len(), limit });
            }
            bytes = BytesMut::from(Bytes::from(packed));
            changed = true;
        }
        if log_append_time {
            record::set_log_append_time(&mut bytes, self.now_ms);
            changed = true;
        } else if validated.max_timestamp != header.max_timestamp {
            record::set_max_timestamp(&mut bytes, validated.max_timestamp);
            changed = true;
        }
        if changed {
            header = BatchHeader::parse(&bytes)?;
        }
        Ok((header, bytes, if log_append_time { self.now_ms } else { -1 }))
    }

    fn limits(&self, config: &TopicConfig) -> ValidateLimits {
        // With the broker's own time, the producer's does not matter.
        let own_time = config.timestamp_type == TimestampType::LogAppendTime;
        let bound = |bound: i64, otherwise: i64| if own_time { otherwise } else { bound };
        ValidateLimits {
            batch_bytes_max: config.max_message_bytes.min(BATCH_BYTES_MAX) as usize,
            require_key: config.cleanup_policy.compact,
            timestamp_min: bound(
                self.now_ms.saturating_sub(config.timestamp_before_max_ms),
                i64::MIN,
            ),
            timestamp_max: bound(
                self.now_ms.saturating_add(config.timestamp_after_max_ms),
                i64::MAX,
            ),
            refused_named_max: self.named_max,
            ..ValidateLimits::default()
        }
    }
}

/// What a topic compresses with, and at which level if it has one; `None` leaves it to producers.
fn codec(config: &TopicConfig) -> Option<(Compression, Option<i32>)> {
    match config.compression_type {
        CompressionType::Producer => None,
        CompressionType::Uncompressed => Some((Compression::None, None)),
        CompressionType::Gzip => Some((Compression::Gzip, Some(config.compression_gzip_level))),
        CompressionType::Snappy => Some((Compression::Snappy, None)),
        CompressionType::Lz4 => Some((Compression::Lz4, None)),
        CompressionType::Zstd => Some((Compression::Zstd, Some(config.compression_zstd_level))),
    }
}

impl PendingProduce {
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Response>, SessionEnd>> {
        Pin::new(&mut self.reply).poll(context).map(|answers| {
            let mut answers = answers.into_iter();
            let results: Vec<_> = std::mem::take(&mut self.slots)
                .into_iter()
                .map(|(index, slot)| (index, result(slot, &mut answers)))
                .collect();
            self.answer(&results)
        })
    }

    fn answer(&self, results: &[(i32, PartitionResult)]) -> Result<Option<Response>, SessionEnd> {
        if self.wants_answer {
            return Ok(Some(produce_response::encode(&self.head, &self.topics, results)));
        }
        // There is no response to say it with; closing makes the client look at its metadata
        // again, as it does with Kafka.
        let refused = results.iter().find_map(|(_, result)| match result {
            PartitionResult::Refused { fault, .. } => Some(fault.clone()),
            PartitionResult::Appended { .. } => None,
        });
        match refused {
            Some(fault) => Err(SessionEnd::RefusedUnacknowledged(fault)),
            None => Ok(None),
        }
    }
}

fn result(
    slot: Slot,
    answers: &mut impl Iterator<Item = Result<broker::Appended, broker::AppendError>>,
) -> PartitionResult {
    let log_append_time = match slot {
        Slot::Refused(refused) => {
            let (fault, records) = *refused;
            return PartitionResult::Refused { fault, records };
        }
        Slot::Appending { log_append_time } => log_append_time,
    };
    match answers.next() {
        Some(Ok(appended)) => PartitionResult::Appended {
            base_offset: appended.base_offset,
            log_append_time,
            log_start: appended.log_start,
        },
        Some(Err(error)) => PartitionResult::Refused { fault: error.into(), records: Vec::new() },
        None => PartitionResult::Refused {
            fault: Fault::new(ResponseError::UnknownServerError, "the broker did not answer"),
            records: Vec::new(),
        },
    }
}
