//! Topics with more waiting records than their limit (`limit.records`, `limit.bytes`).
//!
//! Only waiting records count, not leased ones. The sequencer refuses ([`shard::sequencer`]) before a record
//! has its offset; the driver drops the oldest afterwards. Bytes are those of values, without headers and
//! overhead. The engine counts them as it reads each record, which it does for a topic with such a limit.
//! Batches that were sequenced later are counted when they are sequenced, by skipping over their records.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::limits::OVERFLOW_BYTES_AT_ONCE;
use base::{Offset, PartitionId};
use bytes::Bytes;
use dispatch::{PullRequest, SessionId, Settlement};
use record::{BatchHeader, SharedBatch};
use shard::Shard;
use shard::append::{AppendBatch, Appends};
use shard::cpu::{CpuPool, is_quick};
use shard::delivery::dead_letter::{DeadRecord, DeathReason, Routers, topic_for_letters};
use shard::delivery::topic_limit::{drops_oldest, limit_here};
use tasks::Task;
use tokio::sync::oneshot;

use crate::dead_letter_batches::DeadLetterBatches;
use crate::groups::group::Group;
use crate::groups::policy::has_dead_letters;

/// The session that takes the records to drop.
const DROPPING: SessionId = 0;

/// Settles or dead-letters the oldest records over the limit. Returns whether the topic is within its limits
/// now: a record that is not read yet, or is behind a leased one of its key, cannot be dropped yet.
pub(crate) fn drop_oldest(group: &mut Group, now_ms: i64) -> bool {
    debug_assert!(drops_oldest(&group.topic_config));
    let dead_letters = has_dead_letters(&group.config);
    let mut assigned = Vec::new();
    let (rows, partitions) = group.partitions_here();
    let here = |limit| limit_here(limit, rows, partitions);
    let within_limits = loop {
        let counters = group.dispatch.counters();
        let held = counters.ready + counters.blocked;
        let config = &group.topic_config;
        let records = config.limit_records.map_or(0, |limit| held.saturating_sub(here(limit)));
        let (held, _) = group.dispatch.waiting_bytes();
        let bytes = config.limit_bytes.map_or(0, |limit| held.saturating_sub(here(limit)));
        let (records_max, bytes_max) = match (records, bytes) {
            (0, 0) => break true,
            // A record is larger than its value, so that this takes too few rather than too many, and at least
            // one.
            (0, bytes) => (u64::MAX, bytes),
            (records, _) => (records, u64::MAX),
        };
        let before = assigned.len();
        let take = PullRequest {
            session: DROPPING,
            consumer: 0,
            records_max: records_max.min(u64::from(u32::MAX)) as u32,
            bytes_max,
            settle_on_send: !dead_letters,
            lease_ms: Some(0),
        };
        group.dispatch.take(take, now_ms, &mut assigned);
        if assigned.len() == before {
            break false;
        }
    };
    if !dead_letters {
        return within_limits;
    }
    for assignment in assigned {
        group.dead.note_overflow(assignment.partition, assignment.offset);
        let lease = assignment.selection();
        // It was leased a moment ago.
        let _ = group.dispatch.settle(DROPPING, lease, Settlement::Reject, now_ms);
    }
    within_limits
}

/// A producer whose batches were refused because the topic is full, while they are made dead letters. It gets
/// its reply once those are in the log, so that it cannot send more than its budget ahead of them.
#[derive(Debug)]
pub(crate) struct Overflowed {
    /// Batches not processed yet.
    refused: VecDeque<(PartitionId, Bytes)>,
    /// The current batch, from this offset on. `None`: it cannot be read.
    unpacked: Option<(PartitionId, Option<Arc<SharedBatch>>, Offset)>,
    answers: Appends,
    reply: oneshot::Sender<Appends>,
}

impl Overflowed {
    pub(crate) fn new(
        refused: Vec<(PartitionId, Bytes)>,
        answers: Appends,
        reply: oneshot::Sender<Appends>,
    ) -> Self {
        Self { refused: refused.into(), unpacked: None, answers, reply }
    }

    /// Builds dead letters of the next of these records, up to the size of one request.
    pub(crate) fn next(mut self, places: &OverflowContext<'_>) -> NextOverflow {
        let mut letters = DeadLetterBatches::default();
        while letters.bytes() < OVERFLOW_BYTES_AT_ONCE {
            if let Some((partition, batch, from)) = self.unpacked.take() {
                let Some(batch) = batch else { continue };
                let next = places.add(partition, &batch, from, &mut letters);
                self.unpacked = next.map(|next| (partition, Some(batch), next));
                continue;
            }
            let Some((partition, bytes)) = self.refused.pop_front() else { break };
            let header = BatchHeader::parse(&bytes);
            if header.is_ok_and(|header| !is_quick(&header, bytes.len())) {
                if !letters.is_empty() {
                    self.refused.push_front((partition, bytes));
                    break;
                }
                return NextOverflow::Unpack(partition, bytes, self);
            }
            let batch = SharedBatch::decode(&bytes).ok().map(Arc::new);
            self.unpacked = Some((partition, batch, 0));
        }
        if letters.is_empty() {
            NextOverflow::Answer(self)
        } else {
            NextOverflow::Append(letters.batches(), self)
        }
    }

    /// Decompresses a batch on another thread.
    pub(crate) async fn unpack(
        mut self,
        partition: PartitionId,
        bytes: Bytes,
        cpu: CpuPool,
    ) -> Self {
        let decode = move || SharedBatch::decode(&bytes).ok().map(Arc::new);
        let batch = cpu.run_as(Task::DeliveryDecoding, decode).await;
        self.unpacked = Some((partition, batch, 0));
        self
    }

    pub(crate) fn answer(self) {
        // The producer may be gone.
        let _ = self.reply.send(self.answers);
    }
}

/// Next action for a producer whose batches were refused.
pub(crate) enum NextOverflow {
    /// All dead letters are in the log.
    Answer(Overflowed),
    /// This batch takes long to decompress.
    Unpack(PartitionId, Bytes, Overflowed),
    Append(Vec<AppendBatch>, Overflowed),
}

/// Places of refused records, and the targets of their dead letters.
pub(crate) struct OverflowContext<'a> {
    pub(crate) shard: &'a Shard,
    pub(crate) routers: &'a Routers,
    pub(crate) time_ms: i64,
}

impl OverflowContext<'_> {
    /// Adds dead letters of the batch's records from this offset on. Returns the offset for the next request.
    fn add(
        &self,
        partition: PartitionId,
        batch: &Arc<SharedBatch>,
        from: Offset,
        letters: &mut DeadLetterBatches,
    ) -> Option<Offset> {
        let found = self.shard.read(|state| {
            let catalog = &state.catalog;
            let topic = catalog.topic(partition.topic)?;
            let mut groups = catalog.lease_groups_of(topic.id);
            let group = groups.find(|group| has_dead_letters(&group.config))?;
            let target = group.config.dead_letter_topic.as_deref().and_then(|name| {
                let target = topic_for_letters(catalog, name)?;
                let index = partition.index % target.partition_count();
                Some(PartitionId::new(target.id, index))
            });
            // The offset that it would have had.
            let end = state.rows.partition(partition)?.next_offset();
            let (name, topic_name) = (group.name.clone(), topic.name.clone());
            Some((group.id, name, topic_name, group.config.clone(), target, end))
        });
        let (group, group_name, topic_name, config, target, offset) = found?;
        let route = config.dead_letter_route.as_deref().and_then(|route| self.routers.of(route));
        for record in batch.records_from(from).map_while(Result::ok) {
            if letters.bytes() >= OVERFLOW_BYTES_AT_ONCE {
                return Some(record.offset);
            }
            let Some(record) = batch.record(record.offset) else { continue };
            let dead = DeadRecord {
                group,
                group_name: group_name.clone(),
                topic: partition.topic,
                topic_name: topic_name.clone(),
                partition: partition.index,
                offset,
                reason: DeathReason::Overflow,
                attempts: 0,
                time_ms: self.time_ms,
                record,
            };
            if let Some((route, router)) = &route {
                letters.routed(router.route(route, &dead));
            } else if let Some(target) = target {
                letters.add(target, &dead);
            }
        }
        None
    }
}
