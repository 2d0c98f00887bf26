//! openraft's log, on the journal.
//!
//! The two fit by design: an append is readable at once and reports later that it is durable, so the engine
//! accepts proposals while a sync is in progress. This file adds the order (a vote is written only after every
//! append before it is durable), a bound on the bytes of each read, and the tickets, which are not stored and
//! bypass the log.

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::limits::APPEND_BYTES_MAX;
use base::limits::PROPOSAL_BYTES_MAX;
use futures_util::stream::{self, Stream};
use journal::{Encoded, EntryId, EntryKind, Journal, ReadError};
use openraft::entry::{EntryPayload, RaftEntry};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use tasks::{Task, Workers};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::encoding::{self, DecodeError};
use crate::engine::Entry;
use crate::engine::{LogId, TypeConfig, Vote, log_id_of};
use crate::machine::{Payload, StateMachine};

/// Pause between two requests for damaged entries.
const DAMAGED_PAUSE: Duration = Duration::from_millis(50);
/// Bytes of entries read from the journal at once.
const READ_BYTES_MAX: usize = PROPOSAL_BYTES_MAX;

/// Clones share the log: openraft needs one writer and several readers.
#[derive(Clone, Debug)]
pub(crate) struct LogStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    journal: Journal,
    workers: Workers,
    /// The last entry when the journal was opened.
    recovered: Option<u64>,
    /// While the engine starts it looks for members in the log and applies nothing: bodies are dropped as they are
    /// read, because it would only hold them in memory.
    starting: AtomicBool,
    vote: Mutex<Option<Vote>>,
    /// Whether this node is the whole group, by the newest members in the log.
    alone: AtomicBool,
    tickets: Mutex<VecDeque<Ticket>>,
    /// The last index whose write was reported to the machine.
    told: AtomicU64,
    unsynced: UnsyncedAppends,
    installing: SnapshotInstallation,
}

/// The engine orders a snapshot before the entries behind it, but appends these at once.
#[derive(Debug, Default)]
struct SnapshotInstallation {
    /// The last index of a snapshot that was given to the engine; 0: none.
    index: AtomicU64,
    ended: Notify,
}

#[derive(Debug)]
struct Ticket {
    index: u64,
    number: u64,
}

/// Counts appends that are not durable yet.
#[derive(Debug, Default)]
struct UnsyncedAppends {
    appends: AtomicUsize,
    none_left: Notify,
}

impl LogStore {
    pub(crate) fn new(journal: Journal, workers: Workers) -> Result<Self, DecodeError> {
        let vote = journal.vote().map(|bytes| encoding::decode_vote(&bytes)).transpose()?;
        Ok(Self(Arc::new(Shared {
            recovered: journal.last_id().map(|id| id.index),
            journal,
            workers,
            starting: AtomicBool::new(false),
            vote: Mutex::new(vote),
            alone: AtomicBool::new(false),
            tickets: Mutex::default(),
            told: AtomicU64::new(0),
            unsynced: UnsyncedAppends::default(),
            installing: SnapshotInstallation::default(),
        })))
    }

    pub(crate) fn set_starting(&self, starting: bool) {
        self.0.starting.store(starting, Ordering::Release);
    }

    /// Has neither a vote nor an entry, and no snapshot instead of entries: never been in a group.
    pub(crate) fn is_pristine(&self) -> bool {
        self.0.vote.lock().is_none() && self.0.journal.last_id().is_none()
    }

    /// Whether the entry is from before this process.
    pub(crate) fn was_recovered(&self, index: u64) -> bool {
        self.0.recovered.is_some_and(|last| index <= last)
    }

    /// The journal's id of an entry. The leader is known while its term lasts, and from the log; the term alone
    /// identifies it, so that 0 is no loss.
    pub(crate) fn entry_id(&self, id: LogId) -> EntryId {
        let term = id.committed_leader_id().term;
        let voted = (*self.0.vote.lock()).filter(|vote| vote.leader_id.term == term);
        let leader = voted.map(|vote| vote.leader_id.voted_for).or_else(|| {
            let stored = self.0.journal.entry_id(id.index())?;
            (stored.term == term).then_some(stored.leader)
        });
        EntryId { term, leader: leader.unwrap_or(0), index: id.index() }
    }

    /// Announces a snapshot up to this index, which the engine may accept or not.
    pub(crate) fn expect_install(&self, index: u64) {
        self.0.installing.index.store(index, Ordering::SeqCst);
    }

    /// The install is complete, or the journal has failed.
    pub(crate) fn install_ended(&self) {
        self.0.installing.index.store(0, Ordering::SeqCst);
        self.0.installing.ended.notify_waiters();
    }

    /// Waits until the log can have an entry of this index, if it comes behind a snapshot that is being installed.
    async fn behind_install(&self, first: u64) {
        let SnapshotInstallation { index, ended } = &self.0.installing;
        loop {
            let ended = ended.notified();
            let up_to = index.load(Ordering::SeqCst);
            let last = self.0.journal.last_id().map(|id| id.index);
            if up_to == 0 || first <= up_to || last >= Some(up_to) {
                return;
            }
            ended.await;
        }
    }

    pub(crate) fn set_alone(&self, alone: bool) {
        self.0.alone.store(alone, Ordering::Release);
    }

    /// The ticket of the proposal that became the entry; to be called in log order.
    pub(crate) fn take_ticket(&self, index: u64) -> u64 {
        let mut tickets = self.0.tickets.lock();
        while let Some(next) = tickets.front() {
            if next.index > index {
                break;
            }
            let Ticket { index: at, number } = *next;
            tickets.pop_front();
            if at == index {
                return number;
            }
        }
        0
    }

    /// Reports every written proposal to the machine, in a group of one. In a larger group the page cache of one
    /// node survives neither the node nor its term. For the journal's hook.
    pub(crate) fn report_written(&self, machine: &Arc<dyn StateMachine>) {
        // Weak, both: the journal keeps the hook, and the log and the machine keep the journal.
        let shared = Arc::downgrade(&self.0);
        let machine = Arc::downgrade(machine);
        self.0.journal.on_written(move |index| {
            let Some((shared, machine)) = shared.upgrade().zip(machine.upgrade()) else { return };
            let last_told = shared.told.swap(index, Ordering::Relaxed);
            if !shared.alone.load(Ordering::Acquire) {
                return;
            }
            let tickets = shared.tickets.lock();
            let written = tickets.iter().filter(|ticket| ticket.index > last_told);
            for ticket in written.take_while(|ticket| ticket.index <= index) {
                machine.written(ticket.number);
            }
        });
    }

    fn keep_tickets(&self, entries: &[Entry]) {
        let mut tickets = self.0.tickets.lock();
        for entry in entries {
            if let EntryPayload::Normal(Payload { ticket: number @ 1.., .. }) = entry.payload {
                tickets.push_back(Ticket { index: entry.index(), number });
            }
        }
    }

    fn stored(&self, entry: Entry) -> journal::Entry {
        let id = self.entry_id(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => journal::Entry {
                id,
                kind: EntryKind::Blank,
                head: Default::default(),
                bodies: vec![],
            },
            EntryPayload::Normal(Payload { head, bodies, ticket: _ }) => {
                journal::Entry { id, kind: EntryKind::Command, head, bodies }
            }
            EntryPayload::Membership(members) => {
                let head = encoding::encode_members(&members);
                journal::Entry { id, kind: EntryKind::Membership, head, bodies: vec![] }
            }
        }
    }

    /// Reads at least one entry of `range`, which is not empty, and at most about `READ_BYTES_MAX` bytes.
    async fn read(&self, range: Range<u64>) -> io::Result<Vec<Entry>> {
        let held = self.0.journal.held_entries(range.clone(), READ_BYTES_MAX);
        let read = move |journal: Journal| journal.entries(range, READ_BYTES_MAX);
        let entries = self.held_or_read(held, read).await?;
        let keep_commands = !self.0.starting.load(Ordering::Acquire);
        entries.into_iter().map(|entry| loaded(entry, keep_commands)).collect()
    }

    /// The same for another node: with their encodings, and no more than one message holds.
    async fn read_encoded(&self, range: Range<u64>) -> io::Result<Vec<Entry>> {
        let held = self.0.journal.held_encoded_entries(range.clone(), APPEND_BYTES_MAX);
        let read = move |journal: Journal| journal.encoded_entries(range, APPEND_BYTES_MAX);
        let entries = self.held_or_read(held, read).await?;
        entries.into_iter().map(encoded).collect()
    }

    /// Returns the entries in memory; if there are none, a worker reads.
    async fn held_or_read<T: Send + 'static>(
        &self,
        held: Result<Option<Vec<T>>, ReadError>,
        read: impl FnOnce(Journal) -> Result<Vec<T>, ReadError> + Send + 'static,
    ) -> io::Result<Vec<T>> {
        if let Some(held) = held.map_err(io::Error::other)? {
            return Ok(held);
        }
        let journal = self.0.journal.clone();
        let read = self.0.workers.blocking(Task::ConsensusDisk, move || read(journal)).await?;
        read.map_err(io::Error::other)
    }

    /// The part of `range` that the log has.
    fn clamp<R: RangeBounds<u64>>(&self, range: &R) -> Range<u64> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&last) => last.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => u64::MAX,
        };
        let journal = &self.0.journal;
        let first = journal.purged_id().map_or(0, |id| id.index + 1);
        let end = end.min(journal.last_id().map_or(0, |id| id.index + 1));
        // The first index is present, unless a log begins above 0 with nothing purged.
        let present = (start.max(first)..end).find(|index| journal.entry_id(*index).is_some());
        present.unwrap_or(end)..end
    }
}

fn loaded(entry: journal::Entry, keep_commands: bool) -> io::Result<Entry> {
    let payload = match entry.kind {
        EntryKind::Command if keep_commands => {
            EntryPayload::Normal(Payload { head: entry.head, bodies: entry.bodies, ticket: 0 })
        }
        EntryKind::Command | EntryKind::Blank => EntryPayload::Blank,
        EntryKind::Membership => {
            let members = encoding::decode_members(&entry.head).map_err(|error| {
                let at = entry.id.index;
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("members in entry {at}: {error}"),
                )
            })?;
            EntryPayload::Membership(members)
        }
    };
    Ok(Entry { log_id: log_id_of(entry.id), payload, encoded: None })
}

/// The entry, with its encoding.
pub(crate) fn encoded(encoded: Encoded) -> io::Result<Entry> {
    let entry = loaded(encoded.entry().clone(), true)?;
    Ok(Entry { encoded: Some(encoded), ..entry })
}

/// Whether entries have changed on disk, or are unreadable.
fn is_damage(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<ReadError>());
    error.is_some_and(ReadError::is_loss)
}

/// Whether an entry was in the log, and only snapshots have it now.
fn is_purged(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<ReadError>());
    matches!(error, Some(ReadError::NoSuchEntry { index, first, .. }) if index < first)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<R>(&mut self, range: R) -> io::Result<Vec<Entry>>
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let Range { mut start, end } = self.clamp(&range);
        let mut entries = Vec::new();
        while start < end {
            entries.append(&mut self.read(start..end).await?);
            start = entries.last().map_or(end, |entry: &Entry| entry.index() + 1);
        }
        Ok(entries)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        if start >= end {
            return Ok(Vec::new());
        }
        match self.read_encoded(start..end).await {
            // An error would stop the engine permanently. The engine treats an empty result as a heartbeat. The
            // log is released up to behind the damage, and a member without these entries receives a snapshot.
            Err(error) if is_damage(&error) => {
                tracing::warn!(%error, "entries of the log are not sent");
                sleep(DAMAGED_PAUSE).await;
                Ok(Vec::new())
            }
            // The engine releases entries that only a just removed member still lacks, and the task that sends
            // them may not know of the removal yet.
            Err(error) if is_purged(&error) => Ok(Vec::new()),
            read => read,
        }
    }

    /// The input of the machine: a restart replays gigabytes through it, in bounded pieces.
    async fn entries_stream<R>(
        &mut self,
        range: R,
    ) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        R: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let Range { start, end } = self.clamp(&range);
        let pieces =
            EntryReader { log: self.clone(), next: start, end, piece: Vec::new().into_iter() };
        stream::try_unfold(pieces, |mut pieces| async move {
            let entry = pieces.next().await?;
            Ok(entry.map(|entry| (entry, pieces)))
        })
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(*self.0.vote.lock())
    }

    /// The last entry of each leader, from the journal's memory instead of its files.
    async fn get_key_log_ids(&mut self, range: RangeInclusive<LogId>) -> io::Result<Vec<LogId>> {
        let mut last_of_each: Vec<LogId> = Vec::new();
        for index in range.start().index()..=range.end().index() {
            let id = self.0.journal.entry_id(index).map(log_id_of).ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("entry {index} is not in the log"))
            })?;
            match last_of_each.last_mut() {
                Some(last) if last.committed_leader_id() == id.committed_leader_id() => *last = id,
                _ => last_of_each.push(id),
            }
        }
        Ok(last_of_each)
    }
}

struct EntryReader {
    log: LogStore,
    next: u64,
    end: u64,
    piece: std::vec::IntoIter<Entry>,
}

impl EntryReader {
    async fn next(&mut self) -> io::Result<Option<Entry>> {
        if self.next >= self.end {
            return Ok(None);
        }
        if self.piece.len() == 0 {
            self.piece = self.log.read(self.next..self.end).await?.into_iter();
        }
        self.next += 1;
        Ok(self.piece.next())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> io::Result<LogState<TypeConfig>> {
        Ok(LogState {
            last_purged_log_id: self.0.journal.purged_id().map(log_id_of),
            last_log_id: self.0.journal.last_id().map(log_id_of),
        })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        // The engine concludes from a durable vote that all appends before it are durable too.
        self.0.unsynced.settle().await;
        let journal = self.0.journal.clone();
        let bytes = encoding::encode_vote(vote);
        let save = move || journal.save_vote(&bytes);
        self.0.workers.blocking(Task::ConsensusDisk, save).await??;
        *self.0.vote.lock() = Some(*vote);
        Ok(())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry> = entries.into_iter().collect();
        if let Some(first) = entries.first() {
            self.behind_install(first.index()).await;
        }
        self.keep_tickets(&entries);
        for entry in &entries {
            if let EntryPayload::Membership(members) = &entry.payload {
                self.set_alone(members.voter_ids().count() == 1);
            }
        }
        let encoded = |mut entry: Entry| {
            entry.encoded.take().unwrap_or_else(|| Encoded::new(self.stored(entry)))
        };
        let entries = entries.into_iter().map(encoded).collect();
        let unsynced = UnsyncedAppend::new(&self.0);
        let durable = move |result: Result<(), _>| {
            callback.io_completed(result.map_err(io::Error::other));
            drop(unsynced);
        };
        self.0.journal.append_encoded(entries, durable).map_err(io::Error::other)
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> io::Result<()> {
        let last = last.map(|id| id.index());
        let behind = last.map_or(0, |last| last + 1);
        self.0.tickets.lock().retain(|ticket| ticket.index < behind);
        // Only groups of several nodes truncate.
        self.set_alone(false);
        let journal = self.0.journal.clone();
        let cut = move || journal.truncate_after(last);
        let cut = self.0.workers.blocking(Task::ConsensusDisk, cut).await?;
        self.0.told.fetch_min(behind.saturating_sub(1), Ordering::Relaxed);
        cut.map_err(io::Error::other)
    }

    async fn purge(&mut self, id: LogId) -> io::Result<()> {
        let known = self.0.journal.entry_id(id.index());
        self.0.journal.purge(known.unwrap_or_else(|| self.entry_id(id)));
        Ok(())
    }
}

/// Counted until it is dropped, whether the append succeeded or not.
struct UnsyncedAppend(Arc<Shared>);

impl UnsyncedAppend {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.unsynced.appends.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(shared))
    }
}

impl Drop for UnsyncedAppend {
    fn drop(&mut self) {
        if self.0.unsynced.appends.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.unsynced.none_left.notify_waiters();
        }
    }
}

impl UnsyncedAppends {
    async fn settle(&self) {
        loop {
            let none_left = self.none_left.notified();
            if self.appends.load(Ordering::SeqCst) == 0 {
                return;
            }
            none_left.await;
        }
    }
}
