//! Producer ids and sequences: distinguish a retried batch from a new one.
//!
//! The rules are exactly those of Kafka 4's `ProducerStateManager` and `ProducerAppendInfo`:
//! clients depend on the error codes. The leader checks them before it proposes a batch, and every
//! replica checks them again when it applies it.

use crate::limits::PRODUCER_BATCHES_REMEMBERED;
use base::Offset;

use crate::stored::{PRODUCER_BATCHES_V1, ProducerV1};

pub use crate::sequence::{BatchSequence, SequenceRefusal, SequenceVerdict};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct RememberedBatch {
    first: i32,
    last: i32,
    base_offset: Offset,
}

/// State of one producer id in a partition: its epoch and its last batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProducerState {
    last_ms: i64,
    epoch: i16,
    remembered: u8,
    /// Oldest first; only the first `remembered` count.
    batches: [RememberedBatch; PRODUCER_BATCHES_REMEMBERED],
}

// Remembering more requires a new version of the snapshot.
const _: () = assert!(PRODUCER_BATCHES_REMEMBERED == PRODUCER_BATCHES_V1);

impl ProducerState {
    /// A producer's first batch in a partition.
    pub fn started(batch: BatchSequence, base_offset: Offset, now_ms: i64) -> Self {
        let mut state = Self {
            last_ms: now_ms,
            epoch: batch.epoch,
            remembered: 0,
            batches: [RememberedBatch::default(); PRODUCER_BATCHES_REMEMBERED],
        };
        state.record(batch, base_offset, now_ms);
        state
    }

    /// The rule for a producer unknown to the partition: any sequence is accepted, since earlier
    /// batches may have been deleted (KIP-360). Only a batch without a valid sequence or epoch is
    /// refused.
    pub fn check_unknown(batch: BatchSequence) -> Result<SequenceVerdict, SequenceRefusal> {
        if batch.epoch < 0 {
            Err(SequenceRefusal::Fenced { current: 0, got: batch.epoch })
        } else if batch.first < 0 {
            Err(SequenceRefusal::OutOfOrder { expected: 0, got: batch.first })
        } else {
            Ok(SequenceVerdict::New)
        }
    }

    /// Classifies `batch` for this producer; changes nothing.
    pub fn check(&self, batch: BatchSequence) -> Result<SequenceVerdict, SequenceRefusal> {
        if batch.epoch < self.epoch {
            return Err(SequenceRefusal::Fenced { current: self.epoch, got: batch.epoch });
        }
        // A new epoch restarts the sequence; batches of the old one are not duplicates.
        let expected = if batch.epoch > self.epoch { 0 } else { self.next_sequence() };
        if batch.epoch == self.epoch
            && let Some(same) = self
                .remembered_batches()
                .iter()
                .find(|known| known.first == batch.first && known.last == batch.last)
        {
            return Ok(SequenceVerdict::Duplicate { base_offset: same.base_offset });
        }
        if batch.first == expected {
            Ok(SequenceVerdict::New)
        } else {
            Err(SequenceRefusal::OutOfOrder { expected, got: batch.first })
        }
    }

    /// Records a batch that [`ProducerState::check`] found to be new.
    pub fn record(&mut self, batch: BatchSequence, base_offset: Offset, now_ms: i64) {
        if batch.epoch != self.epoch {
            self.epoch = batch.epoch;
            self.remembered = 0;
        }
        if usize::from(self.remembered) == PRODUCER_BATCHES_REMEMBERED {
            self.batches.rotate_left(1);
            self.remembered -= 1;
        }
        self.batches[usize::from(self.remembered)] =
            RememberedBatch { first: batch.first, last: batch.last, base_offset };
        self.remembered += 1;
        self.last_ms = now_ms;
    }

    pub fn epoch(&self) -> i16 {
        self.epoch
    }

    /// Time at which its last batch was applied.
    pub fn last_ms(&self) -> i64 {
        self.last_ms
    }

    /// Last sequence of its newest batch (Kafka: `lastSequence` of DescribeProducers).
    pub fn last_sequence(&self) -> i32 {
        self.remembered_batches().last().map_or(-1, |batch| batch.last)
    }

    /// First sequence of its next batch in the same epoch.
    pub fn next_sequence(&self) -> i32 {
        self.last_sequence().checked_add(1).unwrap_or(0)
    }

    fn remembered_batches(&self) -> &[RememberedBatch] {
        &self.batches[..usize::from(self.remembered)]
    }

    pub(crate) fn stored(&self) -> ProducerV1 {
        let batches = self.batches.map(|batch| (batch.first, batch.last, batch.base_offset));
        let Self { last_ms, epoch, remembered, .. } = *self;
        ProducerV1 { last_ms, epoch, remembered, batches }
    }

    /// Whether a state of a snapshot could be the result of `record`.
    pub(crate) fn is_sound(&self, next_offset: Offset) -> bool {
        let remembered = usize::from(self.remembered);
        self.epoch >= 0
            && (1..=PRODUCER_BATCHES_REMEMBERED).contains(&remembered)
            && self
                .remembered_batches()
                .iter()
                .all(|batch| batch.first >= 0 && batch.last >= 0 && batch.base_offset < next_offset)
    }
}

impl From<ProducerV1> for ProducerState {
    fn from(stored: ProducerV1) -> Self {
        let ProducerV1 { last_ms, epoch, remembered, batches } = stored;
        let batches =
            batches.map(|(first, last, base_offset)| RememberedBatch { first, last, base_offset });
        Self { last_ms, epoch, remembered, batches }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SequenceRefusal::{Fenced, OutOfOrder};
    use SequenceVerdict::{Duplicate, New};

    fn batch(epoch: i16, first: i32, span: u32) -> BatchSequence {
        BatchSequence::new(epoch, first, span)
    }

    /// Batches of 10 from sequence 0 and offset 100 on.
    fn after(batches: i32) -> ProducerState {
        let mut state = ProducerState::started(batch(0, 0, 10), 100, 0);
        for n in 1..batches {
            state.record(batch(0, n * 10, 10), 100 + n as u64 * 10, 0);
        }
        state
    }

    #[test]
    fn unknown_producer_may_start_at_any_sequence() {
        assert_eq!(ProducerState::check_unknown(batch(3, 0, 1)), Ok(New));
        assert_eq!(ProducerState::check_unknown(batch(0, 17, 1)), Ok(New));
        let refused = ProducerState::check_unknown(batch(0, -1, 1));
        assert_eq!(refused, Err(OutOfOrder { expected: 0, got: -1 }));
        let refused = ProducerState::check_unknown(batch(-1, 0, 1));
        assert_eq!(refused, Err(Fenced { current: 0, got: -1 }));
    }

    #[test]
    fn next_sequence_is_accepted_and_a_gap_is_refused() {
        let state = after(1);
        assert_eq!(state.check(batch(0, 10, 5)), Ok(New));
        assert_eq!(state.check(batch(0, 11, 5)), Err(OutOfOrder { expected: 10, got: 11 }));
    }

    #[test]
    fn last_five_batches_are_duplicates_and_the_sixth_is_out_of_order() {
        let state = after(6);
        for n in 1..6 {
            let base_offset = 100 + n as u64 * 10;
            assert_eq!(state.check(batch(0, n * 10, 10)), Ok(Duplicate { base_offset }));
        }
        assert_eq!(state.check(batch(0, 0, 10)), Err(OutOfOrder { expected: 60, got: 0 }));
    }

    #[test]
    fn a_batch_that_only_overlaps_a_known_one_is_out_of_order() {
        let state = after(2);
        assert_eq!(state.check(batch(0, 10, 9)), Err(OutOfOrder { expected: 20, got: 10 }));
    }

    #[test]
    fn a_new_epoch_starts_at_zero_and_fences_the_old_one() {
        let mut state = after(2);
        assert_eq!(state.check(batch(1, 20, 1)), Err(OutOfOrder { expected: 0, got: 20 }));
        // The same range as a known batch, but of another epoch: new.
        assert_eq!(state.check(batch(1, 0, 10)), Ok(New));
        state.record(batch(1, 0, 10), 120, 0);
        assert_eq!(state.check(batch(1, 0, 10)), Ok(Duplicate { base_offset: 120 }));
        assert_eq!(state.check(batch(0, 10, 10)), Err(Fenced { current: 1, got: 0 }));
        assert_eq!(state.check(batch(1, 10, 1)), Ok(New));
    }

    #[test]
    fn sequences_wrap_to_zero() {
        let max = i32::MAX;
        assert_eq!(batch(0, max - 1, 2).last, max);
        assert_eq!(batch(0, max - 1, 4).last, 1);
        let ends_at_max = ProducerState::started(batch(0, max - 1, 2), 0, 0);
        assert_eq!(ends_at_max.check(batch(0, 0, 1)), Ok(New));
        let ends_beyond = ProducerState::started(batch(0, max - 1, 4), 0, 0);
        assert_eq!(ends_beyond.check(batch(0, 2, 1)), Ok(New));
        assert_eq!(ends_beyond.check(batch(0, max - 1, 4)), Ok(Duplicate { base_offset: 0 }));
    }
}
