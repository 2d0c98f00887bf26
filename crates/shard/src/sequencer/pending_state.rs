//! Differences between the machine's state and that after all pending proposals.

use base::{HashMap, Offset, PartitionId, ShardId, TopicId};
use machine::partition::Partition;
use machine::producer::{BatchSequence, ProducerState, SequenceRefusal, SequenceVerdict};
use machine::{Command, MoveStep, Origin, RowSequence, Step, TransactionCommand};

use super::transactions::PendingTransaction;
use crate::pending_proposals::PendingProposals;

/// Each value has the ticket of the last proposal that changed it.
#[derive(Default)]
pub(super) struct PendingState {
    ends: HashMap<PartitionId, (Offset, u64)>,
    producers: HashMap<(PartitionId, i64), (ProducerState, u64)>,
    /// Topics that are being deleted.
    deleted: HashMap<TopicId, u64>,
    /// Partitions that are being frozen, and the shards that they move to.
    frozen: HashMap<PartitionId, (ShardId, u64)>,
    /// Number and bytes of the pending messages to an outbox.
    sent: HashMap<ShardId, (usize, u64)>,
    /// The number of the next message from a shard.
    expected: HashMap<ShardId, (Offset, u64)>,
    /// Nodes with pending rows.
    brings: HashMap<u32, u64>,
    /// Producers with something of a transaction in flight.
    transactions: HashMap<i64, (PendingTransaction, u64)>,
}

/// Keys that a proposal put into [`PendingState`], to be removed once it is applied.
#[derive(Default)]
pub(super) struct TouchedKeys {
    partitions: Vec<PartitionId>,
    producers: Vec<(PartitionId, i64)>,
    topics: Vec<TopicId>,
    frozen: Vec<PartitionId>,
    /// With the bytes of each message.
    sent: Vec<(ShardId, u64)>,
    sources: Vec<ShardId>,
    nodes: Vec<u32>,
    transactions: Vec<i64>,
}

impl PendingState {
    pub(super) fn end(&self, partition: PartitionId) -> Option<Offset> {
        self.ends.get(&partition).map(|(end, _)| *end)
    }

    /// Whether its deletion is pending: an append now would come after that.
    pub(super) fn is_deleted(&self, topic: TopicId) -> bool {
        !self.deleted.is_empty() && self.deleted.contains_key(&topic)
    }

    /// Returns the target shard of a partition that is being frozen.
    pub(super) fn freezes(&self, partition: PartitionId) -> Option<ShardId> {
        if self.frozen.is_empty() {
            return None;
        }
        self.frozen.get(&partition).map(|(to, _)| *to)
    }

    /// Returns the number and bytes of the pending messages to an outbox.
    pub(super) fn sent(&self, to: ShardId) -> (usize, u64) {
        self.sent.get(&to).copied().unwrap_or_default()
    }

    /// Returns the number of the next message from a shard, if it differs from the machine's.
    pub(super) fn expected(&self, from: ShardId) -> Option<Offset> {
        self.expected.get(&from).map(|(number, _)| *number)
    }

    pub(super) fn record_sent(&mut self, to: ShardId, bytes: u64, touched: &mut TouchedKeys) {
        let sent = self.sent.entry(to).or_default();
        *sent = (sent.0 + 1, sent.1 + bytes);
        touched.sent.push((to, bytes));
    }

    pub(super) fn record_message(
        &mut self,
        origin: Origin,
        ticket: u64,
        touched: &mut TouchedKeys,
    ) {
        self.expected.insert(origin.shard, (origin.next, ticket));
        touched.sources.push(origin.shard);
    }

    /// Whether forwarded rows of the node are pending.
    pub(super) fn brings(&self, node: u32) -> bool {
        self.brings.contains_key(&node)
    }

    pub(super) fn record_brought(
        &mut self,
        from: RowSequence,
        ticket: u64,
        touched: &mut TouchedKeys,
    ) {
        self.brings.insert(from.node, ticket);
        touched.nodes.push(from.node);
    }

    /// Returns the pending state of a producer's transaction, if it differs from the machine's. A client ends its
    /// transaction as soon as it has the reply to its last batch, and this state may not know yet that it was applied.
    pub(super) fn transaction(
        &self,
        producer: i64,
        proposals: &PendingProposals,
    ) -> Option<PendingTransaction> {
        if self.transactions.is_empty() {
            return None;
        }
        let (pending, ticket) = self.transactions.get(&producer)?;
        proposals.is_pending(*ticket).then_some(*pending)
    }

    pub(super) fn record_transaction(
        &mut self,
        producer: i64,
        pending: PendingTransaction,
        ticket: u64,
        touched: &mut TouchedKeys,
    ) {
        let known = self.transactions.entry(producer).or_insert((pending, ticket));
        // Batches that follow its opening need that until both are applied.
        if pending != PendingTransaction::Writes {
            known.0 = pending;
        }
        if known.1 != ticket || touched.transactions.last() != Some(&producer) {
            touched.transactions.push(producer);
        }
        known.1 = ticket;
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
        touched: &mut TouchedKeys,
    ) {
        self.ends.insert(partition, (end, ticket));
        touched.partitions.push(partition);
    }

    /// Notes the pending effects of a command against which others are validated.
    pub(super) fn record_command(
        &mut self,
        command: &Command,
        ticket: u64,
        touched: &mut TouchedKeys,
    ) {
        match command {
            Command::Adopt(adoption) => {
                for &topic in &adoption.topics_gone {
                    self.deleted.insert(topic, ticket);
                    touched.topics.push(topic);
                }
            }
            Command::Move(MoveStep { partition, what: Step::Freeze { to }, .. }) => {
                self.frozen.insert(*partition, (*to, ticket));
                touched.frozen.push(*partition);
            }
            Command::Transaction(
                TransactionCommand::Open { producer, .. }
                | TransactionCommand::Join { producer, .. },
            ) => {
                let opens = PendingTransaction::Opens(producer.epoch);
                self.record_transaction(producer.id, opens, ticket, touched);
            }
            Command::Transaction(TransactionCommand::End { producer, .. }) => {
                self.record_transaction(producer.id, PendingTransaction::Ends, ticket, touched);
            }
            _ => {}
        }
    }

    pub(super) fn record_producer(
        &mut self,
        producer: (PartitionId, i64),
        found: &Partition,
        sequence: BatchSequence,
        base_offset: Offset,
        ticket: u64,
        touched: &mut TouchedKeys,
    ) {
        // The time of the producer's last batch matters to the machine only, which knows the time.
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

    /// Removes the values of an applied proposal: the machine has them now.
    pub(super) fn forget(&mut self, ticket: u64, touched: &TouchedKeys) {
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
        for partition in &touched.frozen {
            if self.frozen.get(partition).is_some_and(|(_, last)| *last == ticket) {
                self.frozen.remove(partition);
            }
        }
        for (to, bytes) in &touched.sent {
            if let Some(sent) = self.sent.get_mut(to) {
                *sent = (sent.0 - 1, sent.1 - bytes);
                if sent.0 == 0 {
                    self.sent.remove(to);
                }
            }
        }
        for node in &touched.nodes {
            if self.brings.get(node).is_some_and(|last| *last == ticket) {
                self.brings.remove(node);
            }
        }
        for producer in &touched.transactions {
            if self.transactions.get(producer).is_some_and(|(_, last)| *last == ticket) {
                self.transactions.remove(producer);
            }
        }
        for from in &touched.sources {
            if self.expected.get(from).is_some_and(|(_, last)| *last == ticket) {
                self.expected.remove(from);
            }
        }
    }
}
