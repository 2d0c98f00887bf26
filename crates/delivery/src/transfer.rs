//! Settles and appends that take effect together, all or nothing: a transaction, or a move to another topic.
//!
//! The rejects of a transfer become dead letters in its own log entry. Their records must be in memory when the
//! entry is built, so a transfer waits for them before it changes anything. If that is impossible (no router
//! yet, too many records, a read error) they are appended afterwards: once the entry is in the log, so that a
//! refused transfer dead-letters nothing, and before the reply.

use std::collections::BTreeMap;

use crate::limits::{DEAD_LETTERS_PER_ENTRY, LEASE_BATCH_CACHE_BYTES};
use base::limits::PROPOSAL_BYTES_MAX;
use base::{HashMap, LeaseGroupId, Offset, PartitionId, ShardId};
use dispatch::SessionId;
use machine::GroupSettle;
use record::SharedRecord;
use shard::append::AppendBatch;
use shard::delivery::error::TransferError;
use shard::delivery::handle::{SettlesElsewhere, TransferResult, WithholdResult};
use shard::delivery::options::Settle;
use shard::error::Unavailable;
use tokio::sync::oneshot;

use crate::commit::settles::settles_of;
use crate::dead_letter_batches::DeadLetterBatches;
use crate::dead_lettering::DeadLetterTarget;
use crate::dead_letters::PendingLetter;
use crate::groups::Groups;
use crate::groups::group::Group;
use crate::reading::{Reader, RecordLookup};

/// Limit of concurrent reads for a transfer.
const READS_MAX: usize = 16;
/// Limit of batches that its dead letters keep in memory, in addition to the cache.
const PINNED_BYTES_MAX: usize = LEASE_BATCH_CACHE_BYTES / 4;

/// A transfer that has not begun: the records that it dead-letters are being read.
#[derive(Debug)]
pub(crate) struct PendingTransfer {
    pub(crate) session: SessionId,
    pub(crate) settles: Vec<Settle>,
    pub(crate) batches: Vec<AppendBatch>,
    pub(crate) decision: Decision,
    pub(crate) rejected: RejectedRecords,
    reading: Vec<(PartitionId, Offset)>,
}

/// The entry by which a transfer takes effect, and the receiver of the result.
#[derive(Debug)]
pub(crate) enum Decision {
    /// An entry of this shard. It sends messages to the other shards that withhold settles for it.
    Here { elsewhere: BTreeMap<ShardId, SettlesElsewhere>, reply: oneshot::Sender<TransferResult> },
    /// An entry of another shard.
    Elsewhere { reply: oneshot::Sender<WithholdResult> },
}

impl Decision {
    pub(crate) fn refuse(self, why: TransferError) {
        match self {
            Self::Here { reply, .. } => drop(reply.send(Err(why))),
            Self::Elsewhere { reply } => drop(reply.send(Err(why))),
        }
    }
}

/// Records that become dead letters; `None`: the record is gone.
#[derive(Debug, Default)]
pub(crate) struct RejectedRecords {
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

/// A transfer whose entry is in flight.
#[derive(Debug)]
pub(crate) struct Transfer {
    /// Number of results of its own batches; those of dead letters follow.
    pub(crate) own_rows: usize,
    /// Records that it settles. They are not delivered meanwhile.
    pub(crate) withheld: Vec<WithheldRecords>,
    /// Dead letters in the entry.
    pub(crate) dead_lettered: Vec<GroupDeadLetters>,
    /// Dead letters that are not in the entry.
    pub(crate) to_dead_letter: Vec<GroupDeadLetters>,
    /// Attempts of records that were released with it: durable also if it is refused.
    pub(crate) attempts: Vec<GroupSettle>,
    /// Records of this group were removed, and cannot be restored one by one: if the transfer is refused, the
    /// group's engine is rebuilt.
    pub(crate) removed_from: Option<LeaseGroupId>,
    /// `None`: another shard decides, and its entry has the reply.
    pub(crate) reply: Option<oneshot::Sender<TransferResult>>,
}

/// Records of a group that an entry in flight settles.
#[derive(Debug)]
pub(crate) struct WithheldRecords {
    pub(crate) group: LeaseGroupId,
    /// The engine that withholds them.
    pub(crate) engine: u64,
    /// Partition and offset.
    pub(crate) records: Vec<(u32, Offset)>,
}

/// Dead letters of one group.
#[derive(Debug)]
pub(crate) struct GroupDeadLetters {
    pub(crate) group: LeaseGroupId,
    /// The engine in which they died.
    pub(crate) engine: u64,
    pub(crate) pending: Vec<PendingLetter>,
}

/// Transfers whose records are being read.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    pending: Vec<PendingTransfer>,
}

impl Transfers {
    pub(crate) fn wait(&mut self, transfer: PendingTransfer) {
        self.pending.push(transfer);
    }

    /// Takes all transfers, each of which may be ready.
    pub(crate) fn take(&mut self) -> Vec<PendingTransfer> {
        std::mem::take(&mut self.pending)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// A record cannot be read: transfers that wait for it dead-letter in separate entries.
    pub(crate) fn on_unreadable(&mut self, partition: PartitionId, offset: Offset) {
        for transfer in &mut self.pending {
            if transfer.reading.contains(&(partition, offset)) {
                transfer.rejected.separate();
            }
        }
    }
}

impl PendingTransfer {
    pub(crate) fn new(
        session: SessionId,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
        decision: Decision,
    ) -> Self {
        let (rejected, reading) = (RejectedRecords::default(), Vec::new());
        Self { session, settles, batches, decision, rejected, reading }
    }

    /// Collects the records that become dead letters with it; returns whether all are in memory.
    pub(crate) fn gather(&mut self, groups: &Groups, reader: &mut Reader) -> bool {
        self.reading.clear();
        for settle in &self.settles {
            let Some(group) = groups.get(settle.group) else { continue };
            let dies =
                group.dispatch.dead_letters_of_settle(self.session, settle.what, settle.settlement);
            for (index, offset) in dies {
                let at = (group.partition(index), offset);
                if self.rejected.apart {
                    return true;
                }
                if self.rejected.records.contains_key(&at) {
                    continue;
                }
                match reader.find_or_read(at.0, at.1) {
                    RecordLookup::Here(record) => self.rejected.add(at, Some(record)),
                    RecordLookup::Gone => self.rejected.add(at, None),
                    RecordLookup::Unread => {
                        self.reading.push(at);
                        if self.reading.len() >= READS_MAX {
                            return false;
                        }
                    }
                }
            }
        }
        self.reading.is_empty()
    }
}

impl RejectedRecords {
    /// Adds dead letters of a group to `letters`, and their settles to `changes`. Returns the letters that are
    /// included and those that are not.
    pub(crate) fn include(
        &self,
        group: &Group,
        dead: Vec<PendingLetter>,
        target: &DeadLetterTarget,
        time_ms: i64,
        letters: &mut DeadLetterBatches,
        changes: &mut Vec<GroupSettle>,
    ) -> (Vec<PendingLetter>, Vec<PendingLetter>) {
        let at = |pending: &PendingLetter| {
            (group.partition(pending.letter.partition), pending.letter.offset)
        };
        let (included, rest): (Vec<PendingLetter>, Vec<PendingLetter>) =
            dead.into_iter().partition(|pending| self.records.contains_key(&at(pending)));
        for pending in &included {
            if let Some(Some(record)) = self.records.get(&at(pending)) {
                target.add(letters, group.dead_record(*pending, record.clone(), time_ms));
            }
        }
        changes.extend(settles_of(group.id, places_of(&included)));
        (included, rest)
    }
}

impl Transfer {
    /// The outcome is unknown.
    pub(crate) fn fail(self, why: &Unavailable) {
        if let Some(reply) = self.reply {
            let _ = reply.send(Err(why.clone().into()));
        }
    }

    /// The engines that withhold its records are gone; no engine has number 0.
    pub(crate) fn forget_engines(&mut self) {
        self.withheld.iter_mut().for_each(|withheld| withheld.engine = 0);
        let letters = self.dead_lettered.iter_mut().chain(&mut self.to_dead_letter);
        letters.for_each(|letters| letters.engine = 0);
    }

    /// Takes all records that it was to settle, after a refusal.
    pub(crate) fn take_withheld(&mut self) -> Vec<WithheldRecords> {
        let mut withheld = std::mem::take(&mut self.withheld);
        let dead = std::mem::take(&mut self.dead_lettered).into_iter();
        let dead = dead.chain(std::mem::take(&mut self.to_dead_letter));
        withheld.extend(dead.map(|GroupDeadLetters { group, engine, pending }| WithheldRecords {
            group,
            engine,
            records: places_of(&pending),
        }));
        withheld
    }
}

/// Partition and offset of each.
fn places_of(letters: &[PendingLetter]) -> Vec<(u32, Offset)> {
    letters.iter().map(|it| (it.letter.partition, it.letter.offset)).collect()
}
