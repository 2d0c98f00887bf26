//! Commands of transactions, and the rules for their batches and markers.

use std::collections::BTreeSet;

use base::{Offset, PartitionId, ShardId};

use super::ids::PlannedEnd;
use super::partition::PartitionTransactions;
use crate::command::{EndCause, EndedPart, ProducerKey, TransactionCommand};
use crate::entry::{Append, BatchKind};
use crate::group_name::validate_group_name;
use crate::limits::{ABORTED_PER_SHARD_MAX, OFFSET_GROUPS_BYTES_MAX, TRANSACTION_PARTITIONS_MAX};
use crate::outcome::{AppendOutcome, Outcome, Refusal, TransactionRefusal};
use crate::rows::Rows;
use crate::rows::group::validate_commit;

/// A decision in its unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) id: &'a str,
    pub(crate) producer: ProducerKey,
    pub(crate) commit: bool,
    pub(crate) cause: EndCause,
    pub(crate) fresh: i64,
}

impl<'a> Decision<'a> {
    pub(crate) fn of(command: &'a TransactionCommand) -> Option<Self> {
        match command {
            TransactionCommand::End { id, producer, commit, cause, fresh } => {
                let (producer, commit, cause, fresh) = (*producer, *commit, *cause, *fresh);
                Some(Self { id, producer, commit, cause, fresh })
            }
            _ => None,
        }
    }
}

// --------------------------------------------------------------------------- batches and markers

impl Rows {
    /// Whether a batch of this kind may be appended. `ending`: the end of a transaction that its unit has.
    pub(crate) fn check_kind(
        &self,
        append: &Append,
        ending: Option<&EndedPart>,
    ) -> Result<(), AppendOutcome> {
        let checked = match append.kind {
            BatchKind::Plain => self.check_plain(append),
            BatchKind::Transactional => self.check_transactional(append),
            BatchKind::Commit | BatchKind::Abort => {
                let ends = ending.is_some_and(|part| append.is_marker_of(part));
                if ends { Ok(()) } else { Err(TransactionRefusal::Markers) }
            }
        };
        checked.map_err(AppendOutcome::Transaction)
    }

    /// Between the batches of a producer's transaction it may write no others.
    fn check_plain(&self, append: &Append) -> Result<(), TransactionRefusal> {
        let transactions = &self.transactions;
        let mixes = !transactions.participations.is_empty()
            && append.has_producer()
            && transactions.is_open(append.partition, append.producer_id);
        if mixes { Err(TransactionRefusal::InvalidState) } else { Ok(()) }
    }

    fn check_transactional(&self, append: &Append) -> Result<(), TransactionRefusal> {
        let ProducerKey { id, .. } = append.producer();
        let transactions = &self.transactions;
        transactions.participations.check_epoch(append.producer())?;
        if transactions.is_open(append.partition, id) {
            return Ok(());
        }
        let partitions = transactions.participation(id).map_or(0, |it| it.partitions.len());
        if partitions >= TRANSACTION_PARTITIONS_MAX {
            return Err(TransactionRefusal::TooManyPartitions);
        }
        let known = transactions.partition(append.partition);
        let has_room = known.is_none_or(|it| it.has_room());
        match has_room && transactions.aborted < ABORTED_PER_SHARD_MAX {
            true => Ok(()),
            false => Err(TransactionRefusal::TooManyAborted),
        }
    }

    /// Records the effect of an accepted batch on the transactions of its partition.
    pub(crate) fn note_kind(&mut self, append: &Append) {
        let (partition, producer) = (append.partition, append.producer_id);
        let transactions = &mut self.transactions;
        match append.kind {
            BatchKind::Plain => {}
            BatchKind::Transactional => {
                if transactions.is_open(partition, producer) {
                    return;
                }
                let known = transactions.partitions.get_or_insert_with(partition, Default::default);
                std::sync::Arc::make_mut(known).begin(producer, append.base_offset);
                transactions.participations.note_partition(producer, partition);
            }
            kind @ (BatchKind::Commit | BatchKind::Abort) => {
                let commit = kind == BatchKind::Commit;
                transactions
                    .change_partition(partition, |it| it.end(producer, append.base_offset, commit));
                transactions.participations.change(producer, |it| {
                    it.partitions.remove(&partition);
                });
            }
        }
    }

    /// Whether the appends outside of channels are the markers that an end needs here, one for each partition.
    /// Those for partitions that are not here are left out.
    pub(crate) fn has_markers_of(&self, part: &EndedPart, appends: &[Append]) -> bool {
        let mut seen = BTreeSet::new();
        let mut markers = appends.iter().filter(|it| it.partition.as_channel().is_none());
        let are_markers = markers.all(|append| {
            append.is_marker_of(part)
                && (self.partition(append.partition).is_none() || seen.insert(append.partition))
        });
        let open = self.transactions.participations.partitions_ended_by(part);
        are_markers && open.map_or(seen.is_empty(), |open| *open == seen)
    }

    /// The end of a transaction in this shard, after its markers.
    pub(crate) fn end_part(&mut self, part: &EndedPart, home: ShardId, now_ms: i64) {
        let pending = self.transactions.participations.end(part, home, now_ms);
        for (group, offsets) in pending.iter() {
            for commit in offsets {
                self.offsets.commit_reserved(group, commit, now_ms);
            }
        }
    }
}

// -------------------------------------------------------------------------------------- commands

impl Rows {
    /// Transactions of Kafka's producers.
    pub fn transactions(&self) -> &super::Transactions {
        &self.transactions
    }

    /// Whether a decision would be accepted. Changes nothing.
    pub(crate) fn plan_end(&self, decision: Decision<'_>) -> Result<PlannedEnd, Refusal> {
        let Decision { id, producer, commit, cause, fresh } = decision;
        let planned = self.transactions.ids.plan_end(id, producer, commit, cause, fresh);
        planned.map_err(Refusal::Transaction)
    }

    /// Applies a decision, after its markers and messages.
    pub(crate) fn end_transaction(
        &mut self,
        decision: Decision<'_>,
        messages: Vec<(ShardId, Offset)>,
        own: ShardId,
        now_ms: i64,
    ) -> Result<Outcome, Refusal> {
        let planned = self.plan_end(decision)?;
        if let Some(part) = &planned.part {
            self.end_part(part, own, now_ms);
        }
        let Decision { id, commit, .. } = decision;
        self.transactions.ids.end(id, &planned, commit, messages, now_ms);
        Ok(Outcome::Producer { producer: planned.next })
    }

    /// Whether a command may be in a unit. Changes nothing.
    pub(crate) fn check_transaction(
        &self,
        command: &TransactionCommand,
        own: ShardId,
    ) -> Result<(), Refusal> {
        let transactions = &self.transactions;
        let checked = match command {
            TransactionCommand::Join { id, producer, shard, added, requires } => {
                if shard.is_none() && added.is_empty() {
                    return Err(Refusal::Transaction(TransactionRefusal::InvalidState));
                }
                let number = transactions.ids.check_join(id, *producer, added, *requires);
                number.and_then(|number| match *shard == Some(own) {
                    true => transactions.participations.check_open(*producer, number),
                    false => Ok(()),
                })
            }
            TransactionCommand::Open { producer, number, .. } => {
                transactions.participations.check_open(*producer, *number)
            }
            _ => return Err(Refusal::NotInUnit),
        };
        checked.map_err(Refusal::Transaction)
    }

    pub(crate) fn transaction(
        &mut self,
        command: &TransactionCommand,
        own: ShardId,
        now_ms: i64,
    ) -> Result<Outcome, Refusal> {
        match command {
            TransactionCommand::Initialize { id, expect, fresh, timeout_ms } => {
                let ids = &mut self.transactions.ids;
                let producer = ids.initialize(id, *expect, *fresh, *timeout_ms, now_ms);
                Ok(Outcome::Producer { producer: producer.map_err(Refusal::Transaction)? })
            }
            TransactionCommand::Join { id, producer, shard, added, requires } => {
                self.check_transaction(command, own)?;
                let transactions = &mut self.transactions;
                let number = transactions.ids.check_join(id, *producer, added, *requires);
                let number = number.map_err(Refusal::Transaction)?;
                if *shard == Some(own) {
                    let opened = transactions
                        .participations
                        .open_transaction(*producer, number, own, now_ms);
                    opened.map_err(Refusal::Transaction)?;
                }
                transactions.ids.join(id, *shard, added, now_ms);
                Ok(Outcome::Joined { number })
            }
            TransactionCommand::Open { producer, number, home } => {
                let participations = &mut self.transactions.participations;
                let opened = participations.open_transaction(*producer, *number, *home, now_ms);
                opened.map_err(Refusal::Transaction)?;
                Ok(Outcome::Done)
            }
            TransactionCommand::Pending { producer, group, offsets } => {
                self.note_pending(*producer, group, offsets, now_ms)
            }
            // Its unit applies it.
            TransactionCommand::End { .. } => {
                Err(Refusal::Transaction(TransactionRefusal::Markers))
            }
            TransactionCommand::Forget { ids, before_ms } => {
                Ok(Outcome::Expired { count: self.transactions.ids.forget(ids, *before_ms) })
            }
        }
    }

    fn note_pending(
        &mut self,
        producer: ProducerKey,
        group: &str,
        offsets: &[crate::command::CommitOffset],
        now_ms: i64,
    ) -> Result<Outcome, Refusal> {
        validate_group_name(group)?;
        let participations = &mut self.transactions.participations;
        participations.check_epoch(producer).map_err(Refusal::Transaction)?;
        let mut refused = Vec::new();
        for commit in offsets {
            let more = participations.pending_growth(producer.id, group, commit);
            let held = participations.pending_bytes() + self.offsets.bytes();
            let checked = match more > 0 && held + more > OFFSET_GROUPS_BYTES_MAX {
                true => Err(Refusal::TooManyOffsets { groups: self.offsets.len(), bytes: held }),
                false => validate_commit(commit),
            };
            match checked {
                Ok(()) => participations.note_pending(producer.id, group, commit, now_ms),
                Err(refusal) => refused.push((commit.partition, refusal)),
            }
        }
        Ok(Outcome::Committed { refused })
    }

    /// Aborted ranges of a partition, in the form that is sent to the shard to which it moves.
    pub fn moved_aborted(&self, partition: PartitionId) -> Vec<(i64, Offset, Offset)> {
        let known = self.transactions.partition(partition);
        let ranges = known.map_or(&[][..], |it| it.aborted()).iter();
        ranges.map(|it| (it.producer, it.first, it.last)).collect()
    }

    /// Takes over the aborted ranges of a partition that arrived.
    pub(crate) fn import_aborted(
        &mut self,
        partition: PartitionId,
        imported: PartitionTransactions,
    ) {
        self.transactions.drop_partition(partition);
        if !imported.is_empty() {
            self.transactions.aborted += imported.aborted().len();
            self.transactions.partitions.insert(partition, std::sync::Arc::new(imported));
        }
    }
}
