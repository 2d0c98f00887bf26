//! What an entry of the log does to the state.
//!
//! A unit is judged before anything of it is done: each append where those before it in the unit
//! end, each command against the state as the unit finds it. What could not be judged so has no
//! place in a unit. The leader judged it too, but it did not know what was under way before it (a
//! topic that is being deleted); this verdict is the one that holds, on every replica alike.

use std::collections::{BTreeMap, BTreeSet};

use base::{Offset, PartitionId};

use crate::command::Command;
use crate::entry::{Append, Entry};
use crate::outcome::{AppendOutcome, Applied, Refusal};
use crate::state::State;

/// Why a unit is refused: what of it stands in the way, by its place in the unit.
enum Fault {
    Append(usize, AppendOutcome),
    Command(usize, Refusal),
    /// It binds appends or commands that the entry does not have.
    Senseless,
}

impl State {
    /// Applies one entry, in the order of the log. `applied` is cleared first.
    pub fn apply(&mut self, entry: &Entry<'_>, applied: &mut Applied) {
        applied.clear();
        self.last_ms = self.last_ms.max(entry.now_ms);
        let (mut appends, mut commands) = (entry.appends, entry.commands);
        for unit in entry.units {
            let lone = (unit.first_append as usize).saturating_sub(applied.appends.len());
            self.apply_appends(take(&mut appends, lone), entry, applied);
            let bound = take(&mut appends, unit.appends as usize);
            let with = take(&mut commands, unit.commands as usize);
            let whole =
                bound.len() == unit.appends as usize && with.len() == unit.commands as usize;
            self.apply_unit(bound, with, whole, entry, applied);
        }
        self.apply_appends(appends, entry, applied);
        self.apply_commands(commands, applied);
    }

    fn apply_appends(&mut self, appends: &[Append], entry: &Entry<'_>, applied: &mut Applied) {
        let now_ms = self.last_ms;
        let outcomes =
            appends.iter().map(|append| self.rows.append(append, entry.leader_epoch, now_ms));
        applied.appends.extend(outcomes);
    }

    fn apply_commands(&mut self, commands: &[Command], applied: &mut Applied) {
        for command in commands {
            let outcome = self.command(command, applied);
            applied.commands.push(outcome);
        }
    }

    fn apply_unit(
        &mut self,
        appends: &[Append],
        commands: &[Command],
        whole: bool,
        entry: &Entry<'_>,
        applied: &mut Applied,
    ) {
        let judged = match whole {
            true => self.judge(appends, commands, entry.leader_epoch),
            false => Err(Fault::Senseless),
        };
        let Err(fault) = judged else {
            self.apply_appends(appends, entry, applied);
            self.apply_commands(commands, applied);
            return;
        };
        let (first_append, first_command) = (applied.appends.len(), applied.commands.len());
        applied.appends.extend(appends.iter().map(|_| AppendOutcome::UnitRefused));
        applied.commands.extend(commands.iter().map(|_| Err(Refusal::UnitRefused)));
        match fault {
            Fault::Append(at, outcome) => applied.appends[first_append + at] = outcome,
            Fault::Command(at, refusal) => applied.commands[first_command + at] = Err(refusal),
            Fault::Senseless => {}
        }
    }

    /// Whether all of a unit would be done. Changes nothing.
    ///
    /// A second batch of one producer for one partition cannot be judged by what is known before the
    /// unit: it is out of place.
    fn judge(
        &self,
        appends: &[Append],
        commands: &[Command],
        leader_epoch: Option<i32>,
    ) -> Result<(), Fault> {
        let mut ends: BTreeMap<PartitionId, Offset> = BTreeMap::new();
        let mut producers = BTreeSet::new();
        for (at, append) in appends.iter().enumerate() {
            let unknown = Fault::Append(at, AppendOutcome::UnknownPartition);
            let partition = self.rows.partition(append.partition).ok_or(unknown)?;
            let end = ends.entry(append.partition).or_insert_with(|| partition.next_offset());
            partition
                .judge(append, leader_epoch, *end)
                .map_err(|outcome| Fault::Append(at, outcome))?;
            if append.has_producer() && !producers.insert((append.partition, append.producer_id)) {
                let expected = partition.next_offset();
                return Err(Fault::Append(at, AppendOutcome::NotSequenced { expected }));
            }
            *end = append.end();
        }
        let mut documents = 0;
        for (at, command) in commands.iter().enumerate() {
            let refused = |refusal| Fault::Command(at, refusal);
            self.check_home(command).map_err(refused)?;
            match command {
                // Passes over what it does not find.
                Command::Settle { .. } => continue,
                Command::PutDocument { space, name, body, expect } => {
                    self.catalog
                        .documents
                        .judge_put(space, name, body, *expect)
                        .map_err(refused)?;
                }
                Command::DeleteDocument { space, name, expect } => {
                    self.catalog.documents.judge_delete(space, name, *expect).map_err(refused)?;
                }
                _ => return Err(refused(Refusal::NotInUnit)),
            }
            documents += 1;
            // Both might pass alone and not together.
            if documents > 1 {
                return Err(refused(Refusal::NotInUnit));
            }
        }
        Ok(())
    }
}

/// Takes the first `count` off, or as many as there are.
fn take<'a, T>(rest: &mut &'a [T], count: usize) -> &'a [T] {
    let (taken, left) = rest.split_at(count.min(rest.len()));
    *rest = left;
    taken
}
