//! Partitions of a topic that move between shards: the state of each ([`crate::moves`]). A topic without moves has none.

use std::sync::Arc;

use base::{Offset, PartitionId, ShardId, SharedMap, Stripe, TopicId};
use serde::{Deserialize, Serialize};

use super::Rows;
use super::partition::Partition;
use super::topic::TopicRows;
use super::transactions::partition::{AbortedRange, PartitionTransactions};
use crate::entry::Append;
use crate::moves::{MOVES_SINCE, MoveStep, MovedRow, Step};
use crate::outcome::{AppendOutcome, EntryEffects, Outcome, Refusal, TransactionRefusal};

/// Moves of one topic in one shard.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TopicMoves {
    /// Partitions that arrived and have no row in the stripe.
    pub(crate) guests: SharedMap<u32, Partition>,
    /// Arrival of each partition that is here by a move.
    pub(crate) arrived: SharedMap<u32, IncomingMove>,
    pub(crate) imports: SharedMap<u32, Import>,
    pub(crate) leaving: SharedMap<u32, OutgoingMove>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IncomingMove {
    pub id: u64,
    /// Added to the term: leader epochs that clients see only rise.
    pub epoch_base: i32,
}

/// Import of a partition that is moving here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Import {
    pub id: u64,
    pub start: Offset,
    /// Everything below is imported.
    pub next: Offset,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutgoingMove {
    pub id: u64,
    /// Unused if the move was cancelled.
    pub to: ShardId,
    pub phase: Phase,
}

/// Also sent between nodes: a variant is only ever added at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Phase {
    /// Served, but refuses appends.
    Frozen,
    /// Served: this move is over for good.
    Cancelled,
    /// Not served: the other shard serves it, or will.
    HandedOver,
    /// Its bytes are dropped, too.
    Away,
}

base::levels!(Phase {
    MOVES_SINCE => Frozen | Cancelled | HandedOver | Away;
});

impl Phase {
    /// Whether the partition belongs to the other shard.
    pub fn is_gone(self) -> bool {
        matches!(self, Self::HandedOver | Self::Away)
    }
}

impl TopicMoves {
    pub(crate) fn is_empty(&self) -> bool {
        self.guests.is_empty()
            && self.arrived.is_empty()
            && self.imports.is_empty()
            && self.leaving.is_empty()
    }

    /// Arrival of a partition that is here.
    pub fn arrived(&self, index: u32) -> Option<IncomingMove> {
        self.arrived.get(&index).copied()
    }

    pub(super) fn is_gone(&self, index: u32) -> bool {
        self.leaving.get(&index).is_some_and(|leaving| leaving.phase.is_gone())
    }

    /// Place after the last partition with bytes here beyond the stripe.
    pub(super) fn end(&self) -> u32 {
        let guest = self.guests.last_key_value().map_or(0, |(index, _)| index + 1);
        guest.max(self.imports.last_key_value().map_or(0, |(index, _)| index + 1))
    }

    /// Whether the steps can have led to this state, in a shard with these of the topic's partitions.
    pub(crate) fn is_sound(&self, rows: usize, stripe: Stripe) -> bool {
        let of_row = |index: &u32| stripe.row(*index).is_some_and(|row| row < rows);
        let here = |index: &u32| of_row(index) || self.guests.contains_key(index);
        self.guests.iter().all(|(index, guest)| {
            !of_row(index) && guest.is_sound() && self.arrived.contains_key(index)
        }) && self.arrived.iter().all(|(index, it)| here(index) && it.epoch_base >= 0)
            && self.imports.iter().all(|(index, it)| {
                it.start <= it.next && it.next <= i64::MAX as u64 && {
                    !here(index) || self.is_gone(*index)
                }
            })
            && self.leaving.iter().all(|(index, it)| here(index) || it.phase == Phase::Away)
    }
}

impl TopicRows {
    /// Partitions of the topic that move or moved.
    pub fn moves(&self) -> Option<&TopicMoves> {
        self.moves.as_deref()
    }

    /// State of a partition's departure.
    pub fn leaving(&self, index: u32) -> Option<OutgoingMove> {
        self.moves.as_ref()?.leaving.get(&index).copied()
    }

    pub(crate) fn restore_moves(&mut self, moves: TopicMoves) {
        self.moves = Some(Arc::new(moves));
    }

    fn moves_mut(&mut self) -> &mut TopicMoves {
        Arc::make_mut(self.moves.get_or_insert_with(Arc::default))
    }

    /// Also returns a partition that was handed over, as long as its bytes are here.
    fn row(&self, index: u32) -> Option<&Partition> {
        let guest = self.moves.as_ref().and_then(|moves| moves.guests.get(&index));
        guest.or_else(|| self.partitions.get(self.stripe.row(index)?))
    }

    pub(super) fn row_mut(&mut self, index: u32) -> Option<&mut Partition> {
        if self.moves.as_ref().is_some_and(|moves| moves.guests.contains_key(&index)) {
            return self.moves_mut().guests.get_mut(&index);
        }
        self.partitions.get_mut(self.stripe.row(index)?)
    }
}

// ------------------------------------------------------------------------------------- queries

impl Rows {
    fn leaving(&self, partition: PartitionId) -> Option<OutgoingMove> {
        if self.moving.is_empty() {
            return None;
        }
        self.topics.get(&partition.topic)?.leaving(partition.index)
    }

    /// Whether the partition is served here, but refuses appends.
    pub fn is_frozen(&self, partition: PartitionId) -> bool {
        self.leaving(partition).is_some_and(|leaving| leaving.phase == Phase::Frozen)
    }

    /// The shard to which the partition was handed over from here.
    pub fn gone_to(&self, partition: PartitionId) -> Option<ShardId> {
        self.leaving(partition).filter(|leaving| leaving.phase.is_gone()).map(|it| it.to)
    }

    /// Added to the term for leader epochs of this partition.
    pub fn epoch_base(&self, partition: PartitionId) -> i32 {
        if self.moving.is_empty() {
            return 0;
        }
        let moves = self.topics.get(&partition.topic).and_then(|topic| topic.moves.as_ref());
        let arrived = moves.and_then(|moves| moves.arrived.get(&partition.index));
        arrived.map_or(0, |arrived| arrived.epoch_base)
    }

    /// Import of a partition that is moving here.
    pub fn import(&self, partition: PartitionId) -> Option<Import> {
        let moves = self.topics.get(&partition.topic)?.moves.as_ref()?;
        moves.imports.get(&partition.index).copied()
    }

    /// A partition that is served here, or was handed over and still has its bytes here.
    pub fn known(&self, partition: PartitionId) -> Option<&Partition> {
        let topic = self.topics.get(&partition.topic)?;
        let is_away = topic.leaving(partition.index).is_some_and(|it| it.phase == Phase::Away);
        if is_away { None } else { topic.row(partition.index) }
    }

    /// The same in the form that is sent to the destination.
    pub fn moved_row(&self, partition: PartitionId) -> Option<MovedRow> {
        self.known(partition).map(MovedRow::of)
    }

    /// Partitions that are leaving or left this shard, with their moves, by topic and number.
    pub fn all_leaving(&self) -> impl Iterator<Item = (PartitionId, OutgoingMove)> {
        self.moving_topics().flat_map(|(topic, moves)| {
            let of = move |(&index, &leaving): (&u32, &OutgoingMove)| {
                (PartitionId::new(topic.id, index), leaving)
            };
            moves.leaving.iter().map(of)
        })
    }

    /// Partitions being imported into this shard, by topic and number.
    pub fn all_imports(&self) -> impl Iterator<Item = (PartitionId, Import)> {
        self.moving_topics().flat_map(|(topic, moves)| {
            let of = move |(&index, &import): (&u32, &Import)| {
                (PartitionId::new(topic.id, index), import)
            };
            moves.imports.iter().map(of)
        })
    }

    /// Topics of which any partition moved to or from this shard.
    pub fn moving_topics(&self) -> impl Iterator<Item = (&TopicRows, &TopicMoves)> {
        let topics = self.moving.iter().filter_map(|id| self.topics.get(id));
        topics.filter_map(|topic| Some((&**topic, topic.moves.as_deref()?)))
    }

    /// Updates whether the topic has state of moves.
    pub(crate) fn note_moving(&mut self, topic: TopicId) {
        match self.topics.get(&topic).is_some_and(|topic| topic.moves.is_some()) {
            true => self.moving.insert(topic),
            false => self.moving.remove(&topic),
        };
    }
}

// ----------------------------------------------------------------------------------------- steps

impl Rows {
    pub(crate) fn move_step(
        &mut self,
        step: &MoveStep,
        applied: &mut EntryEffects,
    ) -> Result<Outcome, Refusal> {
        let &MoveStep { partition, id, ref what } = step;
        let outcome = match what {
            Step::Freeze { to } => self.freeze(partition, id, *to),
            Step::Thaw => self.unless_gone(partition, id, Phase::Frozen),
            Step::Cancel => self.cancel(partition, id),
            Step::HandOver { end } => self.hand_over(partition, id, *end, applied),
            Step::Leave => self.leave(partition, id, applied),
            Step::Forget => self.unless_gone(partition, id, Phase::Cancelled),
            Step::Import { from, to } => {
                self.import_part(partition, id, (*from, *to), &[], applied)
            }
            Step::Activate { row, epoch_base } => {
                self.activate(partition, id, row, *epoch_base, &[], applied)
            }
            Step::ActivateWith { row, epoch_base, aborted } => {
                self.activate(partition, id, row, *epoch_base, aborted, applied)
            }
            Step::Discard => self.discard(partition, id, applied),
            Step::ImportIds(ids) => self.import_ids(partition, id, ids),
        };
        self.note_moving(partition.topic);
        outcome
    }

    /// Whether a move with this id may begin, or be cancelled before it began.
    fn may_leave(&self, partition: PartitionId, id: u64) -> Result<Option<OutgoingMove>, Refusal> {
        let out_of_turn = Err(Refusal::MoveOutOfTurn { partition });
        let topic = self.topic(partition.topic);
        let Some(topic) = topic.filter(|it| it.row(partition.index).is_some()) else {
            return Err(Refusal::UnknownPartition { partition });
        };
        let arrived = topic.moves().and_then(|moves| moves.arrived.get(&partition.index));
        // A partition that arrived by a later move belonged to an earlier stay.
        if arrived.is_some_and(|arrived| arrived.id >= id) {
            return out_of_turn;
        }
        match topic.leaving(partition.index) {
            Some(known) if known.phase.is_gone() || known.id > id => out_of_turn,
            known => Ok(known),
        }
    }

    fn set_leaving(&mut self, partition: PartitionId, leaving: Option<OutgoingMove>) {
        let Some(topic) = self.topics.get_mut(&partition.topic) else { return };
        let topic = Arc::make_mut(topic);
        match leaving {
            Some(leaving) => drop(topic.moves_mut().leaving.insert(partition.index, leaving)),
            None => drop(topic.moves_mut().leaving.remove(&partition.index)),
        }
        self.forget_if_empty(partition);
    }

    fn freeze(&mut self, partition: PartitionId, id: u64, to: ShardId) -> Result<Outcome, Refusal> {
        let transactions = self.transactions.partition(partition);
        if transactions.is_some_and(|it| it.first_open().is_some()) {
            return Err(Refusal::Transaction(TransactionRefusal::OpenInPartition));
        }
        match self.may_leave(partition, id)? {
            Some(OutgoingMove { id: known, phase: Phase::Cancelled, .. }) if known == id => {
                Err(Refusal::MoveOutOfTurn { partition })
            }
            _ => {
                self.set_leaving(partition, Some(OutgoingMove { id, to, phase: Phase::Frozen }));
                Ok(Outcome::Done)
            }
        }
    }

    fn cancel(&mut self, partition: PartitionId, id: u64) -> Result<Outcome, Refusal> {
        self.may_leave(partition, id)?;
        let to = ShardId::CATALOG;
        self.set_leaving(partition, Some(OutgoingMove { id, to, phase: Phase::Cancelled }));
        Ok(Outcome::Done)
    }

    /// Removes the state of a departure unless it was handed over; repeating it changes nothing.
    fn unless_gone(
        &mut self,
        partition: PartitionId,
        id: u64,
        phase: Phase,
    ) -> Result<Outcome, Refusal> {
        if self.leaving(partition).is_some_and(|it| it.id == id && it.phase == phase) {
            self.set_leaving(partition, None);
        }
        Ok(Outcome::Done)
    }

    fn hand_over(
        &mut self,
        partition: PartitionId,
        id: u64,
        end: Offset,
        applied: &mut EntryEffects,
    ) -> Result<Outcome, Refusal> {
        let out_of_turn = Refusal::MoveOutOfTurn { partition };
        let known = self.leaving(partition).filter(|known| known.id == id).ok_or(out_of_turn)?;
        if known.phase.is_gone() {
            return Ok(Outcome::Done);
        }
        let ends = self.partition(partition).map(Partition::next_offset);
        if known.phase != Phase::Frozen || ends != Some(end) {
            return Err(Refusal::MoveOutOfTurn { partition });
        }
        self.set_leaving(partition, Some(OutgoingMove { phase: Phase::HandedOver, ..known }));
        applied.handed_over.push(partition);
        Ok(Outcome::Done)
    }

    fn leave(
        &mut self,
        partition: PartitionId,
        id: u64,
        applied: &mut EntryEffects,
    ) -> Result<Outcome, Refusal> {
        let out_of_turn = Refusal::MoveOutOfTurn { partition };
        let known = self.leaving(partition).filter(|known| known.id == id).ok_or(out_of_turn)?;
        match known.phase {
            Phase::Away => return Ok(Outcome::Done),
            Phase::HandedOver => {}
            _ => return Err(Refusal::MoveOutOfTurn { partition }),
        }
        if let Some(topic) = self.topics.get_mut(&partition.topic) {
            let topic = Arc::make_mut(topic);
            if let Some(row) = topic.row_mut(partition.index) {
                *row = Partition::default();
            }
            let moves = topic.moves_mut();
            moves.guests.remove(&partition.index);
            moves.arrived.remove(&partition.index);
        }
        self.transactions.drop_partition(partition);
        self.set_leaving(partition, Some(OutgoingMove { phase: Phase::Away, ..known }));
        applied.left.push(partition);
        Ok(Outcome::Done)
    }

    /// Imports a partition's range of offsets, if it is the next one.
    pub(crate) fn import_part(
        &mut self,
        partition: PartitionId,
        id: u64,
        (from, to): (Offset, Offset),
        appends: &[Append],
        applied: &mut EntryEffects,
    ) -> Result<Outcome, Refusal> {
        // Bytes of an earlier stay may be here until it has left.
        let leaves = self.leaving(partition).is_some_and(|leaving| leaving.phase != Phase::Away);
        let is_here = leaves || self.partition(partition).is_some();
        let known = self.import(partition);
        // The bytes of an earlier attempt are dropped before new ones arrive: one entry would do it
        // in reverse order.
        let others = known.is_some_and(|it| it.id > id || (it.id < id && !appends.is_empty()));
        if is_here || others || to < from || to > i64::MAX as u64 {
            applied.appends.extend(appends.iter().map(|_| AppendOutcome::UnitRefused));
            return Err(Refusal::MoveOutOfTurn { partition });
        }
        let import = match known {
            Some(known) if known.id == id => known,
            former => {
                if former.is_some() {
                    applied.left.push(partition);
                }
                let import = Import { id, start: from, next: from };
                self.set_import(partition, Some(import));
                import
            }
        };
        let mut end = from;
        let fits = import.next == from
            && appends.iter().all(|append| {
                let fits = append.partition == partition
                    && append.span > 0
                    && (end..to).contains(&append.base_offset)
                    && append.end() <= to;
                end = append.end();
                fits
            });
        if !fits {
            applied.appends.extend(appends.iter().map(|_| AppendOutcome::UnitRefused));
            return Ok(Outcome::Imported { next: import.next });
        }
        let taken = |append: &Append| AppendOutcome::Taken { base_offset: append.base_offset };
        applied.appends.extend(appends.iter().map(taken));
        self.set_import(partition, Some(Import { next: to, ..import }));
        Ok(Outcome::Imported { next: to })
    }

    fn set_import(&mut self, partition: PartitionId, import: Option<Import>) {
        if !self.topics.contains_key(&partition.topic) {
            // The shard has no other partition of it: the catalog supplies the rest.
            self.insert_topic(partition.topic, Stripe::NONE, Vec::new().into(), false);
        }
        let Some(topic) = self.topics.get_mut(&partition.topic) else { return };
        let moves = Arc::make_mut(topic).moves_mut();
        match import {
            Some(import) => drop(moves.imports.insert(partition.index, import)),
            None => drop(moves.imports.remove(&partition.index)),
        }
        self.note_moving(partition.topic);
    }

    fn activate(
        &mut self,
        partition: PartitionId,
        id: u64,
        MovedRow(stored): &MovedRow,
        epoch_base: i32,
        aborted: &[(i64, Offset, Offset)],
        applied: &mut EntryEffects,
    ) -> Result<Outcome, Refusal> {
        let topic = self.topic(partition.topic);
        let arrived = topic.and_then(|it| it.moves()?.arrived.get(&partition.index).copied());
        if let Some(IncomingMove { epoch_base, .. }) = arrived.filter(|arrived| arrived.id == id) {
            return Ok(Outcome::Activated { epoch_base });
        }
        let mut row = Partition::from(stored.clone());
        // Nothing in this journal has been compacted yet.
        row.forget_compaction();
        let known = self.import(partition).filter(|known| known.id == id);
        let Some(import) = known.filter(|known| known.next == row.next_offset()) else {
            return Err(Refusal::MoveOutOfTurn { partition });
        };
        let range = |&(producer, first, last)| AbortedRange { producer, first, last };
        let aborted = PartitionTransactions::new(vec![], aborted.iter().map(range).collect());
        let are_sound = aborted.is_empty() || aborted.is_sound(row.next_offset());
        if !row.is_sound() || epoch_base < 0 || !are_sound {
            return Err(Refusal::MoveOutOfTurn { partition });
        }
        if row.log_start() > import.start {
            applied.trimmed.push((partition, row.log_start()));
        }
        let Some(topic) = self.topics.get_mut(&partition.topic) else {
            return Err(Refusal::UnknownPartition { partition });
        };
        let topic = Arc::make_mut(topic);
        let of_row = topic.stripe.row(partition.index).filter(|row| *row < topic.partitions.len());
        match of_row.and_then(|at| topic.partitions.get_mut(at)) {
            Some(own) => *own = row,
            None => drop(topic.moves_mut().guests.insert(partition.index, row)),
        }
        let moves = topic.moves_mut();
        moves.arrived.insert(partition.index, IncomingMove { id, epoch_base });
        moves.imports.remove(&partition.index);
        moves.leaving.remove(&partition.index);
        self.import_aborted(partition, aborted);
        Ok(Outcome::Activated { epoch_base })
    }

    fn discard(
        &mut self,
        partition: PartitionId,
        id: u64,
        applied: &mut EntryEffects,
    ) -> Result<Outcome, Refusal> {
        if self.import(partition).is_some_and(|import| import.id == id) {
            self.set_import(partition, None);
            applied.left.push(partition);
            self.forget_if_empty(partition);
        }
        Ok(Outcome::Done)
    }

    /// Removes the state of moves from a topic that has none left, and then perhaps the topic.
    fn forget_if_empty(&mut self, partition: PartitionId) {
        let Some(topic) = self.topics.get(&partition.topic) else { return };
        if topic.moves.as_ref().is_none_or(|moves| !moves.is_empty()) {
            return;
        }
        if topic.stripe == Stripe::NONE {
            self.topics.remove(&partition.topic);
            self.record_ids.drop_topic(partition.topic);
        } else if let Some(topic) = self.topics.get_mut(&partition.topic) {
            Arc::make_mut(topic).moves = None;
        }
    }
}
