//! Applies entries of the log to the state.
//!
//! A unit is validated before any part of it takes effect. Each append is checked at the end that
//! earlier appends of the unit leave, each command against the state before the unit. Commands that
//! cannot be validated this way are not allowed in a unit.
//!
//! A message from another shard is a unit, too. It is accepted in order, and a repeated message is
//! skipped. Its parts for deleted topics are left out. The leader validated the unit as well, but
//! without the entries in flight before it (such as the deletion of a topic). The result here is
//! authoritative, and equal on every replica.

use std::collections::{BTreeMap, BTreeSet};

use base::{Offset, PartitionId};

use crate::command::{Command, EndedPart, MessageCommand, TransactionCommand};
use crate::entry::{Append, Entry, Origin};
use crate::moves::{MoveStep, Step};
use crate::outcome::{AppendOutcome, EntryEffects, Outcome, Refusal, TransactionRefusal};
use crate::rows::channels::{ArrivalOrder, Channels};
use crate::rows::transactions::Decision;
use crate::sequence::RowSequence;
use crate::state::{Role, State};

/// Why a unit is refused: the part at fault, by its place in the unit.
enum UnitFault {
    Append(usize, AppendOutcome),
    Command(usize, Refusal),
    /// It binds appends or commands that the entry does not have, or that are invalid together.
    Senseless,
}

impl State {
    /// Applies one entry, in the order of the log. `applied` is cleared first.
    pub fn apply(&mut self, entry: &Entry<'_>, applied: &mut EntryEffects) {
        applied.clear();
        self.last_ms = self.last_ms.max(entry.now_ms);
        let (mut appends, mut commands) = (entry.appends, entry.commands);
        for unit in entry.units {
            let lone = (unit.first_append as usize).saturating_sub(applied.appends.len());
            self.apply_standalone(take(&mut appends, lone), entry, applied);
            let bound = take(&mut appends, unit.appends as usize);
            let with = take(&mut commands, unit.commands as usize);
            let whole =
                bound.len() == unit.appends as usize && with.len() == unit.commands as usize;
            if let [Command::Move(step @ MoveStep { what: Step::Import { from, to }, .. })] = with
                && whole
                && unit.origin.is_none()
            {
                let outcome = self.check_home(&with[0]).and_then(|()| {
                    let (rows, range) = (&mut self.rows, (*from, *to));
                    rows.import_part(step.partition, step.id, range, bound, applied)
                });
                applied.commands.push(outcome);
                continue;
            }
            if let Some(from) = unit.brought
                && whole
                && with.is_empty()
            {
                self.apply_brought(from, bound, entry, applied);
                continue;
            }
            match unit.origin {
                Some(origin) if whole => self.apply_message(origin, bound, with, entry, applied),
                _ => self.apply_unit(bound, with, whole, entry, applied),
            }
        }
        self.apply_standalone(appends, entry, applied);
        self.apply_commands(commands, entry, applied);
    }

    /// Applies appends outside of units: none of them may go to a channel.
    fn apply_standalone(
        &mut self,
        appends: &[Append],
        entry: &Entry<'_>,
        applied: &mut EntryEffects,
    ) {
        let now_ms = self.last_ms;
        let outcomes = appends.iter().map(|append| match append.partition.as_channel() {
            None => self.rows.append(append, None, entry.leader_epoch, now_ms),
            Some(_) => AppendOutcome::UnknownPartition,
        });
        applied.appends.extend(outcomes);
    }

    /// Applies rows that another node brought: each on its own, and once.
    fn apply_brought(
        &mut self,
        from: RowSequence,
        appends: &[Append],
        entry: &Entry<'_>,
        applied: &mut EntryEffects,
    ) {
        if !self.rows.requests.is_next(from) {
            return applied.appends.extend(appends.iter().map(|_| AppendOutcome::PassedOver));
        }
        let first = applied.appends.len();
        self.apply_standalone(appends, entry, applied);
        let rows = appends.iter().zip(&applied.appends[first..]);
        let places = rows.map(|(append, outcome)| match outcome {
            AppendOutcome::Taken { base_offset } | AppendOutcome::Duplicate { base_offset } => {
                Some((*base_offset, append.span))
            }
            _ => None,
        });
        self.rows.requests.note(from, places, self.last_ms);
    }

    /// Applies the validated appends of a unit. `ending`: the end of a transaction that it has.
    fn apply_appends(
        &mut self,
        appends: &[Append],
        ending: Option<&EndedPart>,
        entry: &Entry<'_>,
        applied: &mut EntryEffects,
    ) {
        let now_ms = self.last_ms;
        let append = |append: &Append| self.rows.append(append, ending, entry.leader_epoch, now_ms);
        applied.appends.extend(appends.iter().map(append));
    }

    fn apply_commands(
        &mut self,
        commands: &[Command],
        entry: &Entry<'_>,
        applied: &mut EntryEffects,
    ) {
        for command in commands {
            let outcome = match command {
                Command::RecordIds(change) => self.check_home(command).map(|()| {
                    let (appends, outcomes) = (entry.appends, &applied.appends[..]);
                    self.rows.change_record_ids(change, appends, outcomes, self.last_ms);
                    Outcome::Done
                }),
                command => self.command(command, applied),
            };
            applied.commands.push(outcome);
        }
    }

    fn apply_unit(
        &mut self,
        appends: &[Append],
        commands: &[Command],
        whole: bool,
        entry: &Entry<'_>,
        applied: &mut EntryEffects,
    ) {
        let judged = match whole {
            true => self.validate(appends, commands, entry.leader_epoch),
            false => Err(UnitFault::Senseless),
        };
        let fault = match judged {
            Ok(ending) => {
                self.apply_valid_unit(appends, commands, ending.as_ref(), entry, applied);
                return;
            }
            Err(fault) => fault,
        };
        let (first_append, first_command) = (applied.appends.len(), applied.commands.len());
        applied.appends.extend(appends.iter().map(|_| AppendOutcome::UnitRefused));
        applied.commands.extend(commands.iter().map(|_| Err(Refusal::UnitRefused)));
        match fault {
            UnitFault::Append(at, outcome) => applied.appends[first_append + at] = outcome,
            UnitFault::Command(at, refusal) => applied.commands[first_command + at] = Err(refusal),
            UnitFault::Senseless => {}
        }
    }

    fn apply_valid_unit(
        &mut self,
        appends: &[Append],
        commands: &[Command],
        ending: Option<&EndedPart>,
        entry: &Entry<'_>,
        applied: &mut EntryEffects,
    ) {
        // Before their batches, which start at the message's number.
        let mut messages = Vec::new();
        for command in commands {
            if let Some((to, message)) = command.sends() {
                messages.push((to, self.rows.channels.send(to, message.to_message())));
            }
        }
        self.apply_appends(appends, ending, entry, applied);
        let (own, now_ms) = (self.role.shard(), self.last_ms);
        for command in commands {
            let outcome = match command {
                Command::Send { .. } | Command::SendWith { .. } => Ok(Outcome::Done),
                Command::Transaction(end) if let Some(decision) = Decision::of(end) => {
                    messages.sort_unstable();
                    self.rows.end_transaction(decision, std::mem::take(&mut messages), own, now_ms)
                }
                command => self.command(command, applied),
            };
            applied.commands.push(outcome);
        }
    }

    /// Applies a unit from another shard once, in order. Parts for deleted topics are left out.
    fn apply_message(
        &mut self,
        origin: Origin,
        appends: &[Append],
        commands: &[Command],
        entry: &Entry<'_>,
        applied: &mut EntryEffects,
    ) {
        let appends: Vec<Append> = appends.iter().map(|it| it.message_form()).collect();
        let arrival = match self.role {
            Role::Rows(own) if own != origin.shard => self.rows.channels.arrival(origin),
            _ => ArrivalOrder::OutOfOrder,
        };
        let refused = match arrival {
            ArrivalOrder::Next => self.validate_message(&appends, commands, entry.leader_epoch),
            ArrivalOrder::Duplicate => Some(AppendOutcome::PassedOver),
            ArrivalOrder::OutOfOrder => Some(AppendOutcome::UnitRefused),
        };
        match refused {
            Some(refused) => {
                applied.appends.extend(appends.iter().map(|_| refused));
                applied.commands.extend(commands.iter().map(|_| Err(Refusal::UnitRefused)));
            }
            None => {
                let ending = commands.iter().find_map(ended_by_message);
                self.apply_message_commands(commands, applied);
                self.apply_appends(&appends, ending, entry, applied);
                if let Some(part) = ending {
                    self.rows.end_part(part, origin.shard, self.last_ms);
                }
                self.rows.channels.take(origin);
            }
        }
    }

    /// Applies the commands of a message, and forwards the parts of it for partitions that moved
    /// away to their new shards.
    fn apply_message_commands(&mut self, commands: &[Command], applied: &mut EntryEffects) {
        for command in commands {
            if let Some((to, message)) = command.sends() {
                self.rows.channels.send(to, message.to_message());
            }
            if let Command::FromMessage(MessageCommand::Settle { settles }) = command {
                self.rows.settle(settles, applied);
            }
            applied.commands.push(Ok(Outcome::Done));
        }
    }

    /// Why a message cannot be applied. Deleted topics are no reason. Batches for partitions that
    /// move, or moved, are not left out: the leader forwards them once it knows.
    fn validate_message(
        &self,
        appends: &[Append],
        commands: &[Command],
        leader_epoch: Option<i32>,
    ) -> Option<AppendOutcome> {
        let mut ends: BTreeMap<PartitionId, Offset> = BTreeMap::new();
        let ending = commands.iter().find_map(ended_by_message);
        if let Some(part) = ending
            && !self.rows.has_markers_of(part, appends)
        {
            return Some(AppendOutcome::UnitRefused);
        }
        for append in appends {
            if self.rows.is_frozen(append.partition)
                || self.rows.gone_to(append.partition).is_some()
                || self.rows.check_kind(append, ending).is_err()
            {
                return Some(AppendOutcome::UnitRefused);
            }
            let Some(partition) = self.rows.partition(append.partition) else { continue };
            let leader_epoch = self.leader_epoch_of(append.partition, leader_epoch);
            let end = ends.entry(append.partition).or_insert_with(|| partition.next_offset());
            if partition.validate(append, leader_epoch, *end).is_err() {
                return Some(AppendOutcome::UnitRefused);
            }
            *end = append.end();
        }
        let mut unsent = Channels::appends_by_shard(appends);
        let mut goes_on = |command: &Command| match command {
            Command::Send { to, batches } => {
                let targets = batches.iter().flat_map(|batch| &batch.targets);
                let moved = |target: &PartitionId| self.rows.gone_to(*target) == Some(*to);
                unsent.remove(to) == Some(batches.len()) && targets.into_iter().all(moved)
            }
            // It skips records that it does not find.
            Command::FromMessage(MessageCommand::Settle { .. }) => true,
            Command::FromMessage(MessageCommand::EndTransaction(part)) => ending == Some(part),
            _ => false,
        };
        let goes_on = commands.iter().all(&mut goes_on) && unsent.is_empty();
        (!goes_on).then_some(AppendOutcome::UnitRefused)
    }

    /// The leader epoch of a partition's batches in this term.
    fn leader_epoch_of(&self, partition: PartitionId, term: Option<i32>) -> Option<i32> {
        term.map(|term| term.saturating_add(self.rows.epoch_base(partition)))
    }

    /// Validates all of a unit. Changes nothing.
    ///
    /// A second batch of one producer for one partition cannot be validated against the state
    /// before the unit: it is out of place. Returns the end of a transaction that the unit has.
    fn validate(
        &self,
        appends: &[Append],
        commands: &[Command],
        leader_epoch: Option<i32>,
    ) -> Result<Option<EndedPart>, UnitFault> {
        let ending = self.validate_end(appends, commands)?;
        let mut ends: BTreeMap<PartitionId, Offset> = BTreeMap::new();
        let mut producers = BTreeSet::new();
        for (at, append) in appends.iter().enumerate() {
            let unknown = UnitFault::Append(at, AppendOutcome::UnknownPartition);
            if self.rows.is_frozen(append.partition)
                || self.rows.gone_to(append.partition).is_some()
            {
                return Err(UnitFault::Append(at, AppendOutcome::Moving));
            }
            let leader_epoch = self.leader_epoch_of(append.partition, leader_epoch);
            let append = &match append.partition.as_channel() {
                Some(_) => append.without_producer(),
                None => *append,
            };
            let partition = self.rows.partition(append.partition).ok_or(unknown)?;
            if append.partition.as_channel().is_none() {
                let checked = self.rows.check_kind(append, ending.as_ref());
                checked.map_err(|outcome| UnitFault::Append(at, outcome))?;
            }
            let end = ends.entry(append.partition).or_insert_with(|| partition.next_offset());
            partition
                .validate(append, leader_epoch, *end)
                .map_err(|outcome| UnitFault::Append(at, outcome))?;
            let is_numbered = append.has_producer() && !append.kind.is_marker();
            if is_numbered && !producers.insert((append.partition, append.producer_id)) {
                let expected = partition.next_offset();
                return Err(UnitFault::Append(at, AppendOutcome::NotSequenced { expected }));
            }
            *end = append.end();
        }
        let mut unsent = Channels::appends_by_shard(appends);
        let mut documents = 0;
        for (at, command) in commands.iter().enumerate() {
            let refused = |refusal| UnitFault::Command(at, refusal);
            self.check_home(command).map_err(refused)?;
            match command {
                // Skips records that it does not find.
                Command::Settle { .. } => continue,
                Command::Send { .. } | Command::SendWith { .. } => {
                    let Some((to, message)) = command.sends() else { continue };
                    let own = self.role.shard();
                    self.rows.channels.check_send(own, to, message, appends).map_err(refused)?;
                    if let Command::SendWith { preparation, commands, .. } = command
                        && commands.iter().any(MessageCommand::needs_preparation)
                    {
                        self.rows.channels.check_fence(to, *preparation).map_err(refused)?;
                    }
                    // One message to each shard.
                    unsent.remove(&to).ok_or(refused(Refusal::NotAMessage))?;
                    continue;
                }
                Command::PutDocument { space, name, body, expect } => {
                    self.catalog
                        .documents
                        .check_put(space, name, body, *expect)
                        .map_err(refused)?;
                }
                Command::DeleteDocument { space, name, expect } => {
                    self.catalog.documents.check_delete(space, name, *expect).map_err(refused)?;
                }
                Command::Transaction(TransactionCommand::End { .. }) => continue,
                Command::Transaction(command) if appends.is_empty() && commands.len() == 1 => {
                    let own = self.role.shard();
                    self.rows.check_transaction(command, own).map_err(refused)?;
                    continue;
                }
                _ => return Err(refused(Refusal::NotInUnit)),
            }
            documents += 1;
            // Each may be valid alone and not together.
            if documents > 1 {
                return Err(refused(Refusal::NotInUnit));
            }
        }
        // Batches without a `Send` would never be pushed.
        if unsent.is_empty() { Ok(ending) } else { Err(UnitFault::Senseless) }
    }

    /// Validates the end of a transaction, if a unit has one: its markers are those that this shard needs, and its
    /// messages go to the other participants. It has nothing else.
    fn validate_end(
        &self,
        appends: &[Append],
        commands: &[Command],
    ) -> Result<Option<EndedPart>, UnitFault> {
        let end_of = |command: &'_ Command| matches!(command, Command::Transaction(it) if Decision::of(it).is_some());
        let Some(at) = commands.iter().position(end_of) else { return Ok(None) };
        let refused = |refusal| UnitFault::Command(at, refusal);
        let Command::Transaction(end) = &commands[at] else { return Ok(None) };
        let Some(decision) = Decision::of(end) else { return Ok(None) };
        self.check_home(&commands[at]).map_err(refused)?;
        let planned = self.rows.plan_end(decision).map_err(refused)?;
        let mut others = planned.shards.clone();
        others.remove(&self.role.shard());
        for (place, command) in commands.iter().enumerate().filter(|(place, _)| *place != at) {
            let is_message = command.sends().is_some_and(|(to, message)| {
                others.remove(&to) && message.only_end() == planned.part.as_ref()
            });
            if !is_message {
                return Err(UnitFault::Command(place, Refusal::NotInUnit));
            }
        }
        let has_markers = match &planned.part {
            Some(part) => self.rows.has_markers_of(part, appends),
            None => appends.is_empty(),
        };
        match has_markers && others.is_empty() {
            true => Ok(planned.part),
            false => Err(refused(Refusal::Transaction(TransactionRefusal::Markers))),
        }
    }
}

/// The end of a transaction that a message has.
fn ended_by_message(command: &Command) -> Option<&EndedPart> {
    match command {
        Command::FromMessage(command) => command.as_end(),
        _ => None,
    }
}

/// Splits off the first `count` items, or as many as there are.
fn take<'a, T>(rest: &mut &'a [T], count: usize) -> &'a [T] {
    let (taken, left) = rest.split_at(count.min(rest.len()));
    *rest = left;
    taken
}
