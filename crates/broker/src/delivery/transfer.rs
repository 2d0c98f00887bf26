//! Settles and appends that take effect together, all or nothing: a transaction, a move to another
//! topic.
//!
//! What a transfer rejects becomes dead letters in its own log entry. For that the records must be in
//! memory when the entry is made; so a transfer waits until they are, and nothing of it is done yet.
//! Where that cannot be (their router is not there, they are too many, the disk does not give them)
//! they are appended afterwards: once the entry is in the log, so that a transfer that is refused
//! dead-letters nothing, and before the transfer is answered.

use base::limits::{DEAD_LETTERS_PER_ENTRY, LEASE_BATCH_CACHE_BYTES, PROPOSAL_BYTES_MAX};
use base::{HashMap, LeaseGroupId, Offset, PartitionId};
use dispatch::{SessionId, Settlement};
use machine::GroupSettle;
use record::SharedRecord;
use tokio::sync::oneshot;

use crate::append::{AppendBatch, Appended};
use crate::error::AppendError;

use super::commit::{Reject, Reply, UnderWay, Waiter};
use super::dead_lettering::{DeadLetterBatches, cause, settles_of};
use super::driver::Driver;
use super::error::TransferError;
use super::group::PendingLetter;
use super::options::Settle;

/// Records that are read for a transfer at a time.
const READS_MAX: usize = 16;
/// Batches that its dead letters keep in memory, beside what is there anyway.
const PINNED_BYTES_MAX: usize = LEASE_BATCH_CACHE_BYTES / 4;

pub(super) type Transferred = Result<Vec<Appended>, TransferError>;

/// Not begun: what it makes dead letters of is being read.
#[derive(Debug)]
pub(super) struct PendingTransfer {
    session: SessionId,
    settles: Vec<Settle>,
    batches: Vec<AppendBatch>,
    reply: oneshot::Sender<Transferred>,
    rejected: RejectedRecords,
    reading: Vec<(PartitionId, Offset)>,
}

/// Records that become dead letters; `None`: nothing is left of it.
#[derive(Debug, Default)]
struct RejectedRecords {
    records: HashMap<(PartitionId, Offset), Option<SharedRecord>>,
    bytes: usize,
    pinned_bytes: usize,
    last_batch: Option<(PartitionId, Offset)>,
    /// They are too many, or cannot be read: they are appended by entries of their own.
    apart: bool,
}

impl RejectedRecords {
    fn add(&mut self, at: (PartitionId, Offset), record: Option<SharedRecord>) {
        if let Some(record) = &record {
            self.bytes += record.encoded_len();
            let batch = (at.0, record.batch().header().base_offset);
            if self.last_batch.replace(batch) != Some(batch) {
                self.pinned_bytes += record.batch().bytes();
            }
        }
        self.records.insert(at, record);
        if self.bytes > PROPOSAL_BYTES_MAX
            || self.pinned_bytes > PINNED_BYTES_MAX
            || self.records.len() > DEAD_LETTERS_PER_ENTRY
        {
            self.separate();
        }
    }

    fn separate(&mut self) {
        *self = Self { apart: true, ..Self::default() };
    }
}

/// A transfer whose entry is under way.
#[derive(Debug)]
pub(super) struct Transfer {
    /// How many results its own batches have; those of dead letters follow.
    own_rows: usize,
    /// Records that it settles. They are not delivered meanwhile.
    withheld: Vec<Withheld>,
    /// In the entry: appended with it.
    dead_lettered: Vec<Letters>,
    /// Not in it.
    to_dead_letter: Vec<Letters>,
    /// How often records came back that were released with it: durable also if it is refused.
    attempts: Vec<GroupSettle>,
    /// Records of this group were removed, and cannot be given back one by one: if the transfer is
    /// refused, the group is made anew.
    removed_from: Option<LeaseGroupId>,
    pub(super) reply: oneshot::Sender<Transferred>,
}

/// Records of a group that are settled by an entry under way.
#[derive(Debug)]
struct Withheld {
    group: LeaseGroupId,
    /// The engine that withholds them.
    engine: u64,
    /// Partition and offset.
    records: Vec<(u32, Offset)>,
}

/// Dead letters of one group.
#[derive(Debug)]
struct Letters {
    group: LeaseGroupId,
    /// The engine in which they died.
    engine: u64,
    pending: Vec<PendingLetter>,
}

impl Driver {
    pub(super) fn transfer(
        &mut self,
        session: SessionId,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Transferred>,
    ) {
        let (rejected, reading) = (RejectedRecords::default(), Vec::new());
        let transfer = PendingTransfer { session, settles, batches, reply, rejected, reading };
        self.go_on_with(transfer);
    }

    /// Carries transfers out whose records have been read meanwhile.
    pub(super) fn go_on_transferring(&mut self) {
        for transfer in std::mem::take(&mut self.pending_transfers) {
            self.go_on_with(transfer);
        }
    }

    /// A record cannot be read: whoever waits for it does without.
    pub(super) fn dead_letter_separately(&mut self, partition: PartitionId, offset: Offset) {
        for transfer in &mut self.pending_transfers {
            if transfer.reading.contains(&(partition, offset)) {
                transfer.rejected.separate();
            }
        }
    }

    fn go_on_with(&mut self, mut transfer: PendingTransfer) {
        if self.gather(&mut transfer) {
            self.carry_out(transfer);
        } else {
            self.pending_transfers.push(transfer);
        }
    }

    /// Takes into memory what the transfer makes dead letters of; whether all of it is there.
    fn gather(&mut self, transfer: &mut PendingTransfer) -> bool {
        transfer.reading.clear();
        for settle in &transfer.settles {
            let Some(group) = self.groups.get(&settle.group) else { continue };
            let dies = group.dispatch.dies(transfer.session, settle.what, settle.settlement);
            let places: Vec<_> =
                dies.into_iter().map(|(index, offset)| (group.partition(index), offset)).collect();
            for at in places {
                if transfer.rejected.apart {
                    return true;
                }
                if transfer.rejected.records.contains_key(&at) {
                    continue;
                }
                match self.batches.record(at.0, at.1) {
                    Some(found) => transfer.rejected.add(at, found.ok()),
                    None if self.lost.contains(&at) => transfer.rejected.add(at, None),
                    None => {
                        self.read_record(at.0, at.1);
                        transfer.reading.push(at);
                        if transfer.reading.len() >= READS_MAX {
                            return false;
                        }
                    }
                }
            }
        }
        transfer.reading.is_empty()
    }

    fn carry_out(&mut self, transfer: PendingTransfer) {
        let PendingTransfer { session, settles, batches, reply, rejected, .. } = transfer;
        // What was settled before goes before, and is answered by itself.
        self.commit_all();
        let withheld = match self.settle_all(session, &settles, &batches) {
            Ok(withheld) => withheld,
            Err(error) => return drop(reply.send(Err(error))),
        };
        let mut groups: Vec<LeaseGroupId> = settles.iter().map(|settle| settle.group).collect();
        groups.sort_unstable();
        groups.dedup();
        self.transfer_changes(groups, rejected, withheld, batches, None, reply);
    }

    /// Puts what changed in a group and the batches into one log entry.
    pub(super) fn transfer_group(
        &mut self,
        group: LeaseGroupId,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Transferred>,
    ) {
        let (rejected, withheld) = (RejectedRecords::default(), Vec::new());
        self.transfer_changes(vec![group], rejected, withheld, batches, Some(group), reply);
    }

    fn transfer_changes(
        &mut self,
        groups: Vec<LeaseGroupId>,
        rejected: RejectedRecords,
        withheld: Vec<Withheld>,
        mut batches: Vec<AppendBatch>,
        removed_from: Option<LeaseGroupId>,
        reply: oneshot::Sender<Transferred>,
    ) {
        let mut changes = Vec::new();
        for Withheld { group, records, .. } in &withheld {
            changes.extend(settles_of(*group, records.clone()));
        }
        let mut letters = DeadLetterBatches::default();
        let (mut dead_lettered, mut to_dead_letter) = (Vec::new(), Vec::new());
        for &id in &groups {
            self.changed.retain(|changed| *changed != id);
            let dead = self.take_changes(id, &mut changes);
            let Some(group) = self.groups.get(&id).filter(|_| !dead.is_empty()) else { continue };
            let engine = group.engine;
            let (included, rest) =
                self.include_dead_letters(id, dead, &rejected, &mut letters, &mut changes);
            let letters = |pending: Vec<PendingLetter>| {
                (!pending.is_empty()).then_some(Letters { group: id, engine, pending })
            };
            dead_lettered.extend(letters(included));
            to_dead_letter.extend(letters(rest));
        }
        let own_rows = batches.iter().map(AppendBatch::rows).sum();
        batches.extend(letters.batches());
        let attempts = attempts_of(&changes);
        let transfer = Transfer {
            own_rows,
            withheld,
            dead_lettered,
            to_dead_letter,
            attempts,
            removed_from,
            reply,
        };
        self.execute_with(groups, changes, batches, UnderWay::Transfer(transfer));
    }

    /// Adds dead letters to `letters`, and their settles into `changes`; which of them are there,
    /// and which are not.
    fn include_dead_letters(
        &mut self,
        id: LeaseGroupId,
        dead: Vec<PendingLetter>,
        rejected: &RejectedRecords,
        letters: &mut DeadLetterBatches,
        changes: &mut Vec<GroupSettle>,
    ) -> (Vec<PendingLetter>, Vec<PendingLetter>) {
        let Some(target) = self.dead_letter_target(id) else { return (Vec::new(), dead) };
        let Some(group) = self.groups.get(&id) else { return (Vec::new(), dead) };
        let now_ms = self.clock.now_ms();
        let at = |pending: &PendingLetter| {
            (group.partition(pending.letter.partition), pending.letter.offset)
        };
        let (included, rest): (Vec<PendingLetter>, Vec<PendingLetter>) =
            dead.into_iter().partition(|pending| rejected.records.contains_key(&at(pending)));
        for pending in &included {
            if let Some(Some(record)) = rejected.records.get(&at(pending)) {
                target.add(letters, group.dead_record(*pending, record.clone(), now_ms));
            }
        }
        let settled =
            included.iter().map(|pending| (pending.letter.partition, pending.letter.offset));
        changes.extend(settles_of(id, settled.collect()));
        (included, rest)
    }

    /// It took effect.
    pub(super) fn transferred(&mut self, transfer: Transfer, mut appended: Vec<Appended>) {
        let Transfer { own_rows, withheld, dead_lettered, to_dead_letter, reply, .. } = transfer;
        appended.truncate(own_rows);
        for Withheld { group: id, engine, records } in withheld {
            let group = self.groups.get_mut(&id).filter(|group| group.engine == engine);
            let Some(group) = group else { continue };
            for &(partition, offset) in &records {
                group.dispatch.ended(partition, offset);
            }
            group.counts.settled += records.len() as u64;
            self.enqueue(id);
        }
        for Letters { group: id, engine, pending } in dead_lettered {
            let group = self.groups.get_mut(&id).filter(|group| group.engine == engine);
            let Some(group) = group else { continue };
            for PendingLetter { letter, .. } in &pending {
                group.dispatch.ended(letter.partition, letter.offset);
            }
            group.counts.dead_letters += pending.len() as u64;
            group.counts.settled += pending.len() as u64;
            self.enqueue(id);
        }
        let (mut rejects, mut groups) = (Vec::new(), Vec::new());
        for Letters { group: id, engine, pending } in to_dead_letter {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            if group.engine == engine {
                group.add_dead(pending);
                self.groups_with_dead.insert(id);
            }
            rejects.push(Reject { group: id, engine, dead_lettered: group.died });
            groups.push(id);
        }
        self.answer(Waiter { reply: Reply::Transfer(appended, reply), groups, rejects });
    }

    /// It was refused, so nothing of it is done: its records are available again. What else is
    /// leased of their groups is not touched.
    pub(super) fn undo(&mut self, transfer: Transfer, rows: Vec<Result<Appended, AppendError>>) {
        let Transfer {
            withheld, dead_lettered, to_dead_letter, attempts, removed_from, reply, ..
        } = transfer;
        let letters = dead_lettered.into_iter().chain(to_dead_letter).map(|letters| Withheld {
            group: letters.group,
            engine: letters.engine,
            records: letters
                .pending
                .iter()
                .map(|it| (it.letter.partition, it.letter.offset))
                .collect(),
        });
        for Withheld { group: id, engine, records } in withheld.into_iter().chain(letters) {
            let Some(group) = self.groups.get_mut(&id) else { continue };
            if group.engine == engine {
                self.give_back(id, records);
            } else {
                // The new engine took them for settled, since their entry was under way.
                self.reload(id);
            }
        }
        if let Some(id) = removed_from {
            self.reload(id);
        }
        if !attempts.is_empty() {
            self.settles_under_way += 1;
            let groups = attempts.iter().map(|settle| settle.group).collect();
            self.execute(groups, attempts, UnderWay::Settles(Vec::new()));
        }
        let batch = rows.iter().position(Result::is_err).unwrap_or(0);
        let source = cause(rows).unwrap_or(AppendError::UnitRefused);
        let _ = reply.send(Err(TransferError::Append { batch, source }));
    }

    fn give_back(&mut self, id: LeaseGroupId, records: Vec<(u32, Offset)>) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        for (partition, offset) in records {
            group.dispatch.give_back(partition, offset);
        }
        self.enqueue(id);
    }

    /// All of the settles, or none.
    fn settle_all(
        &mut self,
        session: SessionId,
        settles: &[Settle],
        batches: &[AppendBatch],
    ) -> Result<Vec<Withheld>, TransferError> {
        let unknown = self.shard.read(|state| {
            let rows = batches.iter().flat_map(AppendBatch::partitions).enumerate();
            rows.into_iter().find(|(_, partition)| state.rows.partition(*partition).is_none())
        });
        if let Some((batch, partition)) = unknown {
            let source = AppendError::UnknownPartition(partition);
            return Err(TransferError::Append { batch, source });
        }
        // Whether it holds them all is found out by renewing them, which harms nobody.
        let renew = Settlement::Renew { lease_ms: None };
        for (item, settle) in settles.iter().enumerate() {
            let probe = Settle { settlement: renew, ..*settle };
            self.settle_one(session, &probe)
                .map_err(|source| TransferError::Settle { item, source })?;
        }
        let mut withheld: Vec<Withheld> = Vec::new();
        for (item, settle) in settles.iter().enumerate() {
            let refused = |source| TransferError::Settle { item, source };
            let Some(group) = self.groups.get(&settle.group) else { continue };
            let (id, engine) = (settle.group, group.engine);
            let ends = match settle.settlement {
                Settlement::Accept => true,
                Settlement::Reject => !group.dispatch.policy().dead_letters,
                Settlement::Release { .. } | Settlement::Renew { .. } => false,
            };
            if !ends {
                self.settle_one(session, settle).map_err(refused)?;
                continue;
            }
            let mut records = match self.withhold_one(session, settle) {
                Ok(records) => records,
                Err(source) => {
                    // The same record twice: it was held when that was looked at.
                    for Withheld { group, records, .. } in withheld {
                        self.give_back(group, records);
                    }
                    return Err(refused(source));
                }
            };
            match withheld.iter_mut().find(|known| known.group == id) {
                Some(known) => known.records.append(&mut records),
                None => withheld.push(Withheld { group: id, engine, records }),
            }
        }
        Ok(withheld)
    }
}

/// What of these settles stays true if they are not settled.
fn attempts_of(settles: &[GroupSettle]) -> Vec<GroupSettle> {
    let counted = settles.iter().filter(|settle| !settle.attempts.is_empty());
    counted.map(|settle| GroupSettle { settled: Vec::new(), ..settle.clone() }).collect()
}
