//! Produce: the hot path. A batch is checked in place in the frame, adapted to its topic's policy, and passed
//! to the broker; it is copied only for recompression.
//!
//! Invalid batches are rejected here, before the broker sees them. All others of a request are passed on at
//! once, before the session's next request is read, which fixes their order. Expensive checks run on another
//! thread ([`Effort`]), so that they do not delay other sessions' commits.
//!
//! * `request`, `response`: codecs that copy no record
//! * `effort`: which checks run inline; `replicas`: `min.insync.replicas`

mod effort;
mod replicas;
pub(crate) mod request;
mod response;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use broker::config::{TimestampType, TopicConfig};
use broker::{AppendBatch, AppendReply, Permit, RecordIds};
use bytes::{Bytes, BytesMut};
use kafka_protocol::error::ResponseError;
use record::{
    BatchError, BatchHeader, Compression, CompressionError, RefusedRecord, ValidBatch,
    ValidateLimits,
};

use crate::limits::PRODUCE_TIMEOUT_MIN;
use base::limits::{BATCH_BYTES_MAX, REFUSED_RECORDS_NAMED_MAX};
use base::{PartitionId, TopicId};
use tasks::Task;
use tokio::time::Instant;

use crate::authorization::Caller;
use crate::catalog::currency::ensure_known;
use crate::errors::{Fault, refused_records};
use crate::messages::{RequestError, RequestHead, Response};
use crate::produce::effort::{Effort, codec};
use crate::produce::request::{ProducePartition, ProduceRequest, ProduceTopic};
use crate::produce::response::PartitionResult;
use crate::quotas;
use crate::request::Request;
use crate::state::{Gateway, Session};
use crate::transactions::produced;
use crate::unsupported::transactions::no_transactions;

/// First version whose clients know Zstandard (KIP-110).
const ZSTD_SINCE: i16 = 7;

/// A request whose batches are with the broker.
#[derive(Debug)]
pub(crate) struct PendingProduce {
    head: RequestHead,
    /// Throttle time of a client that exceeded its quota.
    throttle_ms: i32,
    wants_answer: bool,
    topics: Vec<ProduceTopic>,
    slots: Vec<(i32, Slot)>,
    reply: AppendReply,
    /// The request's `timeout_ms`, and the deadline that follows from it.
    timeout: Duration,
    due: Instant,
    /// Source of leader hints, and whether the client uses TLS; `None` on a single node.
    referring: Option<(Arc<Gateway>, bool)>,
    /// Room in the producers' budget, until the outcome is known.
    permit: Option<Permit>,
}

/// State of a partition while the broker has the request.
#[derive(Debug)]
enum Slot {
    Refused(BatchRejection),
    /// Takes the next of the broker's answers.
    Appending {
        log_append_time: i64,
    },
}

impl Slot {
    fn refused(fault: Fault) -> Self {
        Self::Refused(Box::new((fault, Vec::new())))
    }
}

/// Checks a request and passes it to the broker. The session awaits this before its next request, which keeps
/// their order.
pub(crate) async fn start(
    gateway: &Arc<Gateway>,
    session: &Session,
    request: Request,
) -> Result<Box<PendingProduce>, RequestError> {
    let Request { head, body, permit, caller, .. } = request;
    let (api, version) = (head.api, head.version);
    let throttle_ms = quotas::charge_produced(session, &head, body.len());
    let produce = ProduceRequest::parse(version, body)
        .map_err(|malformed| RequestError::Malformed { api, version, malformed })?;
    let wants_answer = produce.acks != 0;
    let timeout = Duration::from_millis(u64::try_from(produce.timeout_ms).unwrap_or(0));
    let timeout = timeout.max(PRODUCE_TIMEOUT_MIN);
    let due = Instant::now() + timeout;
    let mut topics = resolve(gateway, &caller, &produce.topics);
    if topics.iter().any(|(_, topic)| topic.is_err()) {
        // On the heap: it is rare, and would enlarge every idle session.
        Box::pin(ensure_known(gateway, produce.topics.iter().map(|topic| topic.topic.named())))
            .await;
        topics = resolve(gateway, &caller, &produce.topics);
    }
    let configs = topics.iter().filter_map(|(_, topic)| Some(&*topic.as_ref().ok()?.config));
    let replicas = replicas::replica_count(gateway, configs);
    let mut checks = Checks {
        terms: ProduceConditions {
            version,
            acks: produce.acks,
            now_ms: gateway.broker.clock().now_ms(),
            replicas,
            named_max: REFUSED_RECORDS_NAMED_MAX,
            admits_transactions: admits_transactions(gateway, &caller, &produce),
        },
        refused_whole: whole_refusal(&produce),
        topics,
        topic: 0,
        slots: Vec::with_capacity(produce.partitions.len()),
        batches: Vec::with_capacity(produce.partitions.len()),
        partitions: produce.partitions.into_iter(),
        postponed: None,
    };
    if !checks.run(&mut Effort::inline()) {
        // From now on this session's batches are charged to a budget apart from other sessions.
        session.note_slow_checks();
        checks = Box::pin(gateway.broker.cpu().run(move || {
            checks.run(&mut Effort::Unbounded);
            checks
        }))
        .await;
    }
    let Checks { mut slots, mut batches, .. } = checks;
    if let Some(id) = &produce.transactional_id
        && batches.iter().any(|batch| batch.header.attributes.is_transactional())
    {
        // On the heap, as above.
        let opened = Box::pin(produced::open(gateway, id, version, batches)).await;
        batches = opened.0;
        let appending = slots.iter_mut().filter(|(_, it)| matches!(it, Slot::Appending { .. }));
        for ((_, slot), fault) in appending.zip(opened.1) {
            if let Some(fault) = fault {
                *slot = Slot::refused(fault);
            }
        }
    }
    let (records, bytes) = AppendBatch::amount(&batches);
    session.connection.traffic().received(records, bytes);
    let reply = gateway.broker.append(batches);
    let topics = produce.topics;
    let referring =
        (!gateway.broker.is_alone()).then(|| (Arc::clone(gateway), session.is_encrypted()));
    Ok(Box::new(PendingProduce {
        head,
        throttle_ms,
        wants_answer,
        topics,
        slots,
        reply,
        timeout,
        due,
        referring,
        permit,
    }))
}

/// Checks of a request's batches. Owns all its data, so that it can continue on another thread.
struct Checks {
    terms: ProduceConditions,
    refused_whole: Option<Fault>,
    /// The request's topics, each with the number of its remaining partitions.
    topics: Vec<(usize, Result<ResolvedTopic, Fault>)>,
    /// Index of the current topic.
    topic: usize,
    partitions: std::vec::IntoIter<ProducePartition>,
    /// A partition that is too expensive for this thread.
    postponed: Option<ProducePartition>,
    slots: Vec<(i32, Slot)>,
    batches: Vec<AppendBatch>,
}

impl Checks {
    /// Returns true once all is checked. Otherwise the rest is too expensive for `effort`.
    fn run(&mut self, effort: &mut Effort) -> bool {
        while let Some(partition) = self.postponed.take().or_else(|| self.partitions.next()) {
            while self.topics.get(self.topic).is_some_and(|(left, _)| *left == 0) {
                self.topic += 1;
            }
            let Some((left, topic)) = self.topics.get_mut(self.topic) else { return true };
            let ProducePartition { index, mut records } = partition;
            let slot = match (&self.refused_whole, topic) {
                (Some(fault), _) => Slot::refused(fault.clone()),
                (None, Err(fault)) => Slot::refused(fault.clone()),
                (None, Ok(resolved)) => {
                    let policy = Policy { terms: &self.terms, resolved };
                    match policy.admit(index, &mut records, effort) {
                        Ok(AdmittedBatch::Now(batch, log_append_time)) => {
                            self.batches.push(batch);
                            Slot::Appending { log_append_time }
                        }
                        Ok(AdmittedBatch::Later) => {
                            self.postponed = Some(ProducePartition { index, records });
                            return false;
                        }
                        Err(refused) => {
                            let named = refused.1.len();
                            self.terms.named_max = self.terms.named_max.saturating_sub(named);
                            Slot::Refused(refused)
                        }
                    }
                }
            };
            *left -= 1;
            self.slots.push((index, slot));
        }
        true
    }
}

/// The fault of the whole request, independent of its topics.
fn whole_refusal(produce: &ProduceRequest) -> Option<Fault> {
    if !matches!(produce.acks, -1..=1) {
        return Some(Fault::new(
            ResponseError::InvalidRequiredAcks,
            format!("acks must be -1 (all), 0 or 1, not {}", produce.acks),
        ));
    }
    None
}

/// Whether the caller may produce in the transaction that the request names.
fn admits_transactions(
    gateway: &Gateway,
    caller: &Caller,
    produce: &ProduceRequest,
) -> Result<(), Fault> {
    let Some(id) = &produce.transactional_id else {
        return Err(Fault::new(
            ResponseError::InvalidRequest,
            "a batch of a transaction comes with a transactional id",
        ));
    };
    if !gateway.broker.has_transactions() {
        return Err(no_transactions());
    }
    caller.transactional_id(id).map_err(Fault::plain)
}

struct ResolvedTopic {
    id: TopicId,
    partitions: u32,
    config: Arc<TopicConfig>,
}

/// Looks up all of a request's topics under one lock, each with the number of its partitions.
fn resolve(
    gateway: &Gateway,
    caller: &Caller,
    topics: &[ProduceTopic],
) -> Vec<(usize, Result<ResolvedTopic, Fault>)> {
    let catalog = gateway.broker.catalog();
    let find = |topic: &ProduceTopic| {
        let found = caller.find_topic(&topic.topic, &catalog);
        let resolved = found.map(|found| ResolvedTopic {
            id: found.id(),
            partitions: found.partition_count(),
            config: Arc::clone(found.config()),
        });
        (topic.partitions, resolved)
    };
    topics.iter().map(find).collect()
}

/// Conditions that apply to a whole request.
struct ProduceConditions {
    version: i16,
    acks: i16,
    now_ms: i64,
    replicas: usize,
    /// Number of rejected records that may still be named.
    named_max: usize,
    /// Why the request may have no batches of a transaction.
    admits_transactions: Result<(), Fault>,
}

/// Checks of a batch, and its changes, before it goes to the broker.
struct Policy<'a> {
    terms: &'a ProduceConditions,
    resolved: &'a ResolvedTopic,
}

/// The reason, and the invalid records; empty if it concerns the whole batch.
type BatchRejection = Box<(Fault, Vec<RefusedRecord>)>;

enum AdmittedBatch {
    /// The batch, and its log append time or -1.
    Now(AppendBatch, i64),
    /// Too expensive for this thread; the records are left in place.
    Later,
}

impl Policy<'_> {
    fn admit(
        &self,
        index: i32,
        records: &mut Option<BytesMut>,
        effort: &mut Effort,
    ) -> Result<AdmittedBatch, BatchRejection> {
        let refuse = |fault: Fault| Box::new((fault, Vec::new()));
        let config = &*self.resolved.config;
        let index = u32::try_from(index)
            .ok()
            .filter(|index| *index < self.resolved.partitions)
            .ok_or_else(|| refuse(Fault::unknown_partition()))?;
        let found = records.as_ref().filter(|records| !records.is_empty()).ok_or_else(|| {
            refuse(Fault::new(
                ResponseError::InvalidRecord,
                "a produce request must have exactly one record batch per partition",
            ))
        })?;
        if self.terms.acks == -1
            && let Some(fault) = replicas::too_few(config, self.terms.replicas)
        {
            return Err(refuse(fault));
        }
        let refuse_batch =
            |error: BatchError| Box::new((Fault::from(&error), refused_records(error)));
        let Some(unpacked_max) = effort.unpacked_max(found, config) else {
            return Ok(AdmittedBatch::Later);
        };
        let limits = ValidateLimits { decompressed_bytes_max: unpacked_max, ..self.limits(config) };
        let validated = match record::validate(found, &limits) {
            Err(error) if is_over_unpacked(&error) && matches!(effort, Effort::Inline { .. }) => {
                return Ok(AdmittedBatch::Later);
            }
            validated => validated.map_err(refuse_batch)?,
        };
        let bytes = records.take().unwrap_or_default();
        let (header, bytes, log_append_time) =
            self.apply(&validated, bytes).map_err(refuse_batch)?;
        if header.attributes.is_transactional() {
            self.terms.admits_transactions.clone().map_err(refuse)?;
            if !header.is_idempotent() {
                return Err(refuse(Fault::new(
                    ResponseError::InvalidRecord,
                    "a batch of a transaction has no producer id",
                )));
            }
        }
        if header.attributes.compression() == Compression::Zstd && self.terms.version < ZSTD_SINCE {
            return Err(refuse(Fault::new(
                ResponseError::UnsupportedCompressionType,
                format!("produce version {} does not know zstd", self.terms.version),
            )));
        }
        let partition = PartitionId::new(self.resolved.id, index);
        // Done here, because it decompresses the batch once more.
        let ids = (config.dedup_window_ms > 0).then(|| RecordIds::read(&bytes));
        let batch = AppendBatch { ids, ..AppendBatch::new(partition, header, bytes) };
        Ok(AdmittedBatch::Now(batch, log_append_time))
    }

    /// Applies the topic's policy to a valid batch. Returns its log append time, or -1.
    fn apply(
        &self,
        validated: &ValidBatch,
        mut bytes: BytesMut,
    ) -> Result<(BatchHeader, BytesMut, i64), BatchError> {
        let config = &*self.resolved.config;
        let now_ms = self.terms.now_ms;
        let log_append_time = config.timestamp_type == TimestampType::LogAppendTime;
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
            record::set_log_append_time(&mut bytes, now_ms);
            changed = true;
        } else if validated.max_timestamp != header.max_timestamp {
            record::set_max_timestamp(&mut bytes, validated.max_timestamp);
            changed = true;
        }
        if changed {
            header = BatchHeader::parse(&bytes)?;
        }
        Ok((header, bytes, if log_append_time { now_ms } else { -1 }))
    }

    fn limits(&self, config: &TopicConfig) -> ValidateLimits {
        // With log append time, the producer's timestamps are not checked.
        let own_time = config.timestamp_type == TimestampType::LogAppendTime;
        let bound = |bound: i64, otherwise: i64| if own_time { otherwise } else { bound };
        ValidateLimits {
            batch_bytes_max: config.max_message_bytes.min(BATCH_BYTES_MAX) as usize,
            require_key: config.cleanup_policy.compact,
            timestamp_min: bound(
                self.terms.now_ms.saturating_sub(config.timestamp_before_max_ms),
                i64::MIN,
            ),
            timestamp_max: bound(
                self.terms.now_ms.saturating_add(config.timestamp_after_max_ms),
                i64::MAX,
            ),
            refused_named_max: self.terms.named_max,
            ..ValidateLimits::default()
        }
    }
}

fn is_over_unpacked(error: &BatchError) -> bool {
    matches!(error, BatchError::Compression { error: CompressionError::TooLarge { .. }, .. })
}

impl PendingProduce {
    /// The client's deadline.
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Response>, RequestError>> {
        Pin::new(&mut self.reply)
            .poll(context)
            .map(|answers| self.answer(answers.into_iter().map(Some)))
    }

    /// Responds once [`PendingProduce::due`] has passed, as Kafka does: batches without a known outcome may
    /// still be appended.
    pub(crate) fn time_out(&mut self) -> Result<Option<Response>, RequestError> {
        let (answers, late) = self.reply.known_so_far();
        if let Some(permit) = self.permit.take() {
            // The batches stay in memory until then.
            tasks::spawn(Task::KafkaLateProduce, async move {
                late.known().await;
                drop(permit);
            });
        }
        if !self.wants_answer {
            return Ok(None);
        }
        self.answer(answers.into_iter())
    }

    fn answer(
        &mut self,
        mut answers: impl Iterator<Item = Option<Result<broker::AppendedBatch, broker::AppendError>>>,
    ) -> Result<Option<Response>, RequestError> {
        let mut results: Vec<_> = std::mem::take(&mut self.slots)
            .into_iter()
            .map(|(index, slot)| (index, result(slot, &mut answers, self.timeout)))
            .collect();
        if self.wants_answer {
            let leaders = match &self.referring {
                Some((gateway, encrypted)) => {
                    response::refer(gateway, *encrypted, &self.topics, &mut results)
                }
                None => Vec::new(),
            };
            let response =
                response::encode(&self.head, self.throttle_ms, &self.topics, &results, &leaders);
            return Ok(Some(response));
        }
        // Without a response, closing the connection makes the client refresh its metadata, as with Kafka.
        let refused = results.iter().find_map(|(_, result)| match result {
            PartitionResult::Refused { fault, .. } => Some(fault.clone()),
            PartitionResult::Appended { .. } => None,
        });
        match refused {
            Some(fault) => Err(RequestError::RefusedUnacknowledged(fault)),
            None => Ok(None),
        }
    }
}

/// `None` among the answers: the outcome is unknown after `timeout`.
fn result(
    slot: Slot,
    answers: &mut impl Iterator<Item = Option<Result<broker::AppendedBatch, broker::AppendError>>>,
    timeout: Duration,
) -> PartitionResult {
    let log_append_time = match slot {
        Slot::Refused(refused) => {
            let (fault, records) = *refused;
            return PartitionResult::Refused { fault, records, leader: None };
        }
        Slot::Appending { log_append_time } => log_append_time,
    };
    match answers.next() {
        Some(Some(Ok(appended))) => PartitionResult::Appended {
            base_offset: appended.base_offset,
            log_append_time,
            log_start: appended.log_start,
        },
        Some(Some(Err(error))) => PartitionResult::refused(error.into()),
        Some(None) => PartitionResult::refused(Fault::new(
            ResponseError::RequestTimedOut,
            format!(
                "not durable on a majority within {timeout:?}, the timeout of the request: it may still be appended"
            ),
        )),
        None => PartitionResult::refused(Fault::new(
            ResponseError::UnknownServerError,
            "the broker did not answer",
        )),
    }
}
