//! A partition: a row of its topic. An idle one takes three words. The state of written partitions
//! is separate, so that a million partitions cost only their use. It is shared with the images
//! taken of the state, so that a change does not copy a partition's neighbours.

use std::sync::Arc;

use crate::limits::PRODUCERS_PER_PARTITION_MAX;
use base::Offset;

use super::producer::ProducerState;
use crate::entry::Append;
use crate::moves::MovedRow;
use crate::outcome::AppendOutcome;
use crate::sequence::{BatchSequence, SequenceVerdict};
use crate::stored::{ActiveV1, PartitionV1};

/// Start of the batches of one leader epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaderEpoch {
    pub epoch: i32,
    pub start: Offset,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Partition {
    log_start: Offset,
    next_offset: Offset,
    active: Option<Arc<Active>>,
}

// An idle partition must stay under 100 bytes, including its state in other crates.
const _: () = assert!(size_of::<Partition>() <= 48);

/// State of a partition that was written to.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Active {
    /// Ascending in both fields.
    epochs: Vec<LeaderEpoch>,
    /// Ascending by producer id. A sorted vector, not a map: most partitions have one producer, ids
    /// are assigned in order so that a new one goes to the end, and its encoding is equal on every
    /// replica.
    producers: Vec<(i64, ProducerState)>,
    compacted_to: Offset,
    last_append_ms: i64,
    max_timestamp: i64,
}

impl Active {
    fn new() -> Self {
        Self {
            epochs: Vec::new(),
            producers: Vec::new(),
            compacted_to: 0,
            last_append_ms: -1,
            max_timestamp: -1,
        }
    }
}

impl MovedRow {
    pub fn of(partition: &Partition) -> Self {
        Self(partition.stored())
    }
}

impl Partition {
    /// A partition that was never written to.
    pub(crate) const fn unused() -> Self {
        Self { log_start: 0, next_offset: 0, active: None }
    }

    /// The first existing offset.
    pub fn log_start(&self) -> Offset {
        self.log_start
    }

    /// The offset of the next record. All below is committed: it is the high watermark too.
    pub fn next_offset(&self) -> Offset {
        self.next_offset
    }

    /// Everything below was compacted once.
    pub fn compacted_to(&self) -> Offset {
        self.active.as_ref().map_or(0, |active| active.compacted_to)
    }

    /// Time of the last accepted batch; `None` if none.
    pub fn last_append_ms(&self) -> Option<i64> {
        self.active.as_ref().map(|active| active.last_append_ms).filter(|&at| at >= 0)
    }

    /// The largest timestamp of any record ever accepted; -1 if none.
    pub fn max_timestamp(&self) -> i64 {
        self.active.as_ref().map_or(-1, |active| active.max_timestamp)
    }

    /// Leader epochs of the existing records, oldest first.
    pub fn epochs(&self) -> &[LeaderEpoch] {
        self.active.as_ref().map_or(&[], |active| &active.epochs)
    }

    /// End of `epoch`, as for OffsetForLeaderEpoch: the largest epoch not above it that wrote
    /// anything, and the offset after its last record. `None` if `epoch` is above all that wrote;
    /// the current leader's own epoch, which may not have written yet, ends at `next_offset`.
    pub fn epoch_end(&self, epoch: i32) -> Option<(i32, Offset)> {
        let epochs = self.epochs();
        let above = epochs.partition_point(|known| known.epoch <= epoch);
        let floor = above.checked_sub(1).map(|at| epochs[at].epoch);
        match (floor, epochs.get(above)) {
            (Some(last), None) if last == epoch => Some((epoch, self.next_offset)),
            (_, None) => None,
            (floor, Some(higher)) => Some((floor.unwrap_or(epoch), higher.start)),
        }
    }

    /// The epoch of the last batch; `None` if unknown.
    pub fn last_epoch(&self) -> Option<i32> {
        self.epochs().last().map(|last| last.epoch)
    }

    pub fn producer(&self, producer_id: i64) -> Option<&ProducerState> {
        let producers = self.producers();
        let at = producers.binary_search_by_key(&producer_id, |(id, _)| *id).ok()?;
        Some(&producers[at].1)
    }

    /// Ascending by producer id.
    pub fn producers(&self) -> &[(i64, ProducerState)] {
        self.active.as_ref().map_or(&[], |active| &active.producers)
    }

    /// Validates a batch at `end`, where earlier batches of its unit end; `Err` has the outcome
    /// that it would get otherwise.
    pub(crate) fn validate(
        &self,
        append: &Append,
        leader_epoch: Option<i32>,
        end: Offset,
    ) -> Result<(), AppendOutcome> {
        let is_numbered = append.has_producer() && !append.kind.is_marker();
        let verdict = match (is_numbered, self.producer(append.producer_id)) {
            (false, _) => Ok(SequenceVerdict::New),
            (true, None) => ProducerState::check_unknown(append.sequence()),
            (true, Some(known)) => known.check(append.sequence()),
        };
        if let Ok(SequenceVerdict::Duplicate { base_offset }) = verdict {
            return Err(AppendOutcome::Duplicate { base_offset });
        }
        // Before the producer's check: a batch after a refused one is out of place first, which its
        // client may retry, and out of sequence only as a consequence. A batch that the leader of
        // another term sequenced is out of place at any offset.
        let in_place = append.base_offset == end
            && leader_epoch.is_none_or(|epoch| epoch == append.leader_epoch);
        if !in_place || append.span == 0 || append.end() > i64::MAX as u64 {
            return Err(AppendOutcome::NotSequenced { expected: end });
        }
        verdict.map(|_| ()).map_err(AppendOutcome::Producer)
    }

    /// Accepts a batch, or returns why not. Constant time, and without allocation once the
    /// partition knows the batch's leader epoch and producer.
    pub(crate) fn append(
        &mut self,
        append: &Append,
        leader_epoch: Option<i32>,
        now_ms: i64,
    ) -> AppendOutcome {
        if let Err(refused) = self.validate(append, leader_epoch, self.next_offset) {
            return refused;
        }
        self.next_offset = append.end();
        let active = self.active.get_or_insert_with(|| Arc::new(Active::new()));
        let active = Arc::make_mut(active);
        active.last_append_ms = now_ms;
        active.max_timestamp = active.max_timestamp.max(append.max_timestamp);
        active.note_epoch(append.leader_epoch, append.base_offset);
        if append.has_producer() && !append.kind.is_marker() {
            active.note_producer(append.producer_id, append.sequence(), append.base_offset, now_ms);
        }
        AppendOutcome::Taken { base_offset: append.base_offset }
    }

    /// Moves the start to `offset`, which is not past the end; true if it moved.
    pub(crate) fn advance_start(&mut self, offset: Offset) -> bool {
        debug_assert!(offset <= self.next_offset, "the caller refuses an offset past the end");
        if offset <= self.log_start {
            return false;
        }
        self.log_start = offset;
        if let Some(active) = &mut self.active {
            Arc::make_mut(active).forget_epochs_below(offset);
        }
        true
    }

    /// Sets the offset of the next record, which is not before the end; an empty partition stays
    /// empty.
    pub(super) fn skip_to(&mut self, offset: Offset) {
        debug_assert!(offset >= self.next_offset, "the caller only goes on");
        let is_empty = self.log_start == self.next_offset;
        self.next_offset = offset;
        if is_empty {
            self.advance_start(offset);
        }
    }

    /// Records that everything below `offset` was compacted; never goes back.
    pub(crate) fn note_compacted(&mut self, offset: Offset) {
        let offset = offset.min(self.next_offset);
        if let Some(active) = &mut self.active {
            let active = Arc::make_mut(active);
            active.compacted_to = active.compacted_to.max(offset);
        }
    }

    /// Resets the compaction mark: data compacted elsewhere is compacted again here.
    pub(super) fn forget_compaction(&mut self) {
        if let Some(active) = &mut self.active {
            Arc::make_mut(active).compacted_to = 0;
        }
    }

    /// Whether there are producers whose last batch was applied before `before_ms`.
    pub(crate) fn has_producers_before(&self, before_ms: i64) -> bool {
        self.producers().iter().any(|(_, producer)| producer.last_ms() < before_ms)
    }

    /// Removes producers whose last batch was applied before `before_ms`, unless they have a transaction open here;
    /// returns their number.
    pub(crate) fn expire_producers(
        &mut self,
        before_ms: i64,
        is_open: impl Fn(i64) -> bool,
    ) -> u64 {
        let Some(active) = &mut self.active else { return 0 };
        let active = Arc::make_mut(active);
        let known = active.producers.len();
        active.producers.retain(|(id, producer)| producer.last_ms() >= before_ms || is_open(*id));
        let expired = known - active.producers.len();
        if expired > 0 {
            active.producers.shrink_to_fit();
        }
        expired as u64
    }

    /// Whether a partition of a snapshot could be the result of `append`.
    pub(crate) fn is_sound(&self) -> bool {
        let bounds = self.log_start <= self.next_offset && self.next_offset <= i64::MAX as u64;
        let active = self.active.as_ref().is_none_or(|active| {
            active.compacted_to <= self.next_offset
                && active.epochs.first().is_none_or(|first| first.epoch >= 0)
                && active.epochs.last().is_none_or(|last| last.start <= self.next_offset)
                && active.epochs.is_sorted_by(|a, b| a.epoch < b.epoch && a.start < b.start)
                && active.producers.len() <= PRODUCERS_PER_PARTITION_MAX
                && active.producers.first().is_none_or(|(id, _)| *id >= 0)
                && active.producers.is_sorted_by(|a, b| a.0 < b.0)
                && active.producers.iter().all(|(_, p)| p.is_sound(self.next_offset))
        });
        bounds && active
    }

    pub(crate) fn stored(&self) -> PartitionV1 {
        let active = self.active.as_ref().map(|active| ActiveV1 {
            epochs: active.epochs.iter().map(|known| (known.epoch, known.start)).collect(),
            producers: active.producers.iter().map(|(id, state)| (*id, state.stored())).collect(),
            compacted_to: active.compacted_to,
            last_append_ms: active.last_append_ms,
            max_timestamp: active.max_timestamp,
        });
        PartitionV1 { log_start: self.log_start, next_offset: self.next_offset, active }
    }
}

impl From<PartitionV1> for Partition {
    fn from(stored: PartitionV1) -> Self {
        let active = stored.active.map(|active| {
            let epochs =
                active.epochs.into_iter().map(|(epoch, start)| LeaderEpoch { epoch, start });
            let producers = active.producers.into_iter();
            Arc::new(Active {
                // Exact capacity: the decoder's growth is not kept.
                epochs: epochs.collect::<Box<[_]>>().into_vec(),
                producers: producers
                    .map(|(id, state)| (id, ProducerState::from(state)))
                    .collect::<Box<[_]>>()
                    .into_vec(),
                compacted_to: active.compacted_to,
                last_append_ms: active.last_append_ms,
                max_timestamp: active.max_timestamp,
            })
        });
        Self { log_start: stored.log_start, next_offset: stored.next_offset, active }
    }
}

impl Active {
    fn note_epoch(&mut self, epoch: i32, start: Offset) {
        if epoch < 0 || self.epochs.last().is_some_and(|last| last.epoch >= epoch) {
            return;
        }
        // An epoch without remaining records is dropped.
        self.epochs.pop_if(|last| last.start == start);
        if self.epochs.is_empty() {
            self.epochs.reserve_exact(1);
        }
        self.epochs.push(LeaderEpoch { epoch, start });
    }

    /// Keeps the epoch that contains `offset`, starting there.
    fn forget_epochs_below(&mut self, offset: Offset) {
        let above = self.epochs.partition_point(|known| known.start <= offset);
        if above > 0 {
            self.epochs.drain(..above - 1);
            self.epochs[0].start = offset;
        }
    }

    fn note_producer(&mut self, id: i64, batch: BatchSequence, base_offset: Offset, now_ms: i64) {
        let at = match self.producers.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => return self.producers[at].1.record(batch, base_offset, now_ms),
            Err(at) if self.producers.len() < PRODUCERS_PER_PARTITION_MAX => at,
            Err(_) => {
                self.forget_oldest_producers();
                self.producers.partition_point(|(known, _)| *known < id)
            }
        };
        if self.producers.is_empty() {
            self.producers.reserve_exact(1);
        }
        self.producers.insert(at, (id, ProducerState::started(batch, base_offset, now_ms)));
    }

    /// Makes room when there are too many producers: removes the quarter that was idle longest. The
    /// next batch of a removed producer is accepted with any sequence, as after its expiry.
    fn forget_oldest_producers(&mut self) {
        let mut ages: Vec<(i64, i64)> =
            self.producers.iter().map(|(id, producer)| (producer.last_ms(), *id)).collect();
        let quarter = ages.len() / 4;
        let (_, &mut limit, _) = ages.select_nth_unstable(quarter);
        self.producers.retain(|(id, producer)| (producer.last_ms(), *id) > limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{PartitionId, TopicId};

    fn append(base_offset: Offset, span: u32, leader_epoch: i32) -> Append {
        Append {
            partition: PartitionId::new(TopicId(0), 0),
            base_offset,
            span,
            leader_epoch,
            max_timestamp: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            kind: Default::default(),
        }
    }

    /// Epoch 2 wrote 0..10, epoch 5 wrote 10..30.
    fn two_epochs() -> Partition {
        let mut partition = Partition::default();
        partition.append(&append(0, 10, 2), None, 1);
        partition.append(&append(10, 10, 5), None, 1);
        partition.append(&append(20, 10, 5), None, 1);
        partition
    }

    #[test]
    fn an_epoch_ends_where_the_next_begins() {
        let partition = two_epochs();
        assert_eq!(partition.epoch_end(1), Some((1, 0)));
        assert_eq!(partition.epoch_end(2), Some((2, 10)));
        assert_eq!(partition.epoch_end(3), Some((2, 10)));
        assert_eq!(partition.epoch_end(5), Some((5, 30)));
        assert_eq!(partition.epoch_end(6), None);
        assert_eq!(Partition::default().epoch_end(0), None);
    }

    #[test]
    fn epochs_of_deleted_records_are_forgotten() {
        let mut partition = two_epochs();
        assert!(partition.advance_start(4));
        assert_eq!(partition.epochs()[0], LeaderEpoch { epoch: 2, start: 4 });
        assert!(partition.advance_start(10));
        assert_eq!(partition.epochs(), &[LeaderEpoch { epoch: 5, start: 10 }]);
        assert!(!partition.advance_start(10));
        assert!(partition.advance_start(30));
        assert_eq!(partition.epochs(), &[LeaderEpoch { epoch: 5, start: 30 }]);
        assert_eq!(partition.epoch_end(5), Some((5, 30)));
        assert!(partition.is_sound());
    }

    #[test]
    fn batch_not_at_the_end_is_not_sequenced() {
        let mut partition = two_epochs();
        let expected = AppendOutcome::NotSequenced { expected: 30 };
        assert_eq!(partition.append(&append(29, 1, 5), None, 1), expected);
        assert_eq!(partition.append(&append(31, 1, 5), None, 1), expected);
        assert_eq!(partition.append(&append(30, 0, 5), None, 1), expected);
        assert_eq!(partition.next_offset(), 30);
    }

    #[test]
    fn producers_idle_longest_are_removed_beyond_the_limit() {
        let mut partition = Partition::default();
        let mut write = |producer_id: i64, now_ms: i64, sequence: i32| {
            let mut batch = append(partition.next_offset(), 1, 1);
            (batch.producer_id, batch.producer_epoch) = (producer_id, 0);
            batch.base_sequence = sequence;
            partition.append(&batch, None, now_ms)
        };
        let limit = PRODUCERS_PER_PARTITION_MAX as i64;
        for id in 0..limit {
            write(id, id, 0);
        }
        // The first one writes again, so that it is not among the oldest.
        write(0, limit, 1);
        write(limit, limit + 1, 0);
        assert!(partition.producers().len() <= PRODUCERS_PER_PARTITION_MAX);
        assert!(partition.producer(0).is_some());
        assert!(partition.producer(limit).is_some());
        assert!(partition.producer(1).is_none());
        assert!(partition.producer(limit - 1).is_some());
        assert!(partition.is_sound());
    }
}
