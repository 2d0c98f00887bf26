//! What the machine will know once all that is under way is applied, where it differs.

use base::{HashMap, Offset, PartitionId, TopicId};
use machine::partition::Partition;
use machine::producer::{BatchSequence, ProducerState, SequenceRefusal, SequenceVerdict};

/// Each value carries the ticket of the last proposal that changed it.
#[derive(Default)]
pub(super) struct Ahead {
    ends: HashMap<PartitionId, (Offset, u64)>,
    producers: HashMap<(PartitionId, i64), (ProducerState, u64)>,
    /// Topics that are being deleted.
    deleted: HashMap<TopicId, u64>,
}

/// What a proposal put into [`Ahead`], to be taken out once it is applied.
#[derive(Default)]
pub(super) struct Touched {
    partitions: Vec<PartitionId>,
    producers: Vec<(PartitionId, i64)>,
    topics: Vec<TopicId>,
}

impl Ahead {
    pub(super) fn end(&self, partition: PartitionId) -> Option<Offset> {
        self.ends.get(&partition).map(|(end, _)| *end)
    }

    /// Whether its deletion is under way: what is appended now would come after that.
    pub(super) fn is_deleted(&self, topic: TopicId) -> bool {
        !self.deleted.is_empty() && self.deleted.contains_key(&topic)
    }

    pub(super) fn check(
        &self,
        producer: (PartitionId, i64),
        found: &Partition,
        sequence: BatchSequence,
    ) -> Result<SequenceVerdict, SequenceRefusal> {
        let ahead = self.producers.get(&producer).map(|(state, _)| state);
        match ahead.or_else(|| found.producer(producer.1)) {
            Some(known) => known.check(sequence),
            None => ProducerState::check_unknown(sequence),
        }
    }

    pub(super) fn record_end(
        &mut self,
        partition: PartitionId,
        end: Offset,
        ticket: u64,
        touched: &mut Touched,
    ) {
        self.ends.insert(partition, (end, ticket));
        touched.partitions.push(partition);
    }

    pub(super) fn record_deletion(&mut self, topic: TopicId, ticket: u64, touched: &mut Touched) {
        self.deleted.insert(topic, ticket);
        touched.topics.push(topic);
    }

    pub(super) fn record_producer(
        &mut self,
        producer: (PartitionId, i64),
        found: &Partition,
        sequence: BatchSequence,
        base_offset: Offset,
        ticket: u64,
        touched: &mut Touched,
    ) {
        // When it was last heard of matters to the machine only, which knows the time.
        const UNTIMED: i64 = 0;
        let known = self.producers.get(&producer).map(|(state, _)| *state);
        let state = match known.or_else(|| found.producer(producer.1).copied()) {
            Some(mut state) => {
                state.record(sequence, base_offset, UNTIMED);
                state
            }
            None => ProducerState::started(sequence, base_offset, UNTIMED),
        };
        self.producers.insert(producer, (state, ticket));
        touched.producers.push(producer);
    }

    /// The machine knows it now.
    pub(super) fn forget(&mut self, ticket: u64, touched: &Touched) {
        for partition in &touched.partitions {
            if self.ends.get(partition).is_some_and(|(_, last)| *last == ticket) {
                self.ends.remove(partition);
            }
        }
        for key in &touched.producers {
            if self.producers.get(key).is_some_and(|(_, last)| *last == ticket) {
                self.producers.remove(key);
            }
        }
        for topic in &touched.topics {
            if self.deleted.get(topic).is_some_and(|last| *last == ticket) {
                self.deleted.remove(topic);
            }
        }
    }
}
