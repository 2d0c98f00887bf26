//! A shard's replicated state machine: the machine, the journal's index beside it, and on the leader the requests
//! that wait for a reply.
//!
//! One lock protects the machine. Consensus takes it once per entry, to apply; a reader takes it shared for the
//! length of a query. It is never taken per record.

pub mod changes;
pub mod compaction_progress;
pub mod record_id_memory;
mod replacement;
pub mod state_lock;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::{ClusterLevel, PartitionId, ShardId};
use bytes::Bytes;
use consensus::{ApplyError, CommittedEntry, Encode, Replace, RestoreError, StateMachine};
use journal::{Body, Journal};
use machine::outcome::{AppendOutcome, EntryEffects};
use machine::{Append, BatchKind, Catalog, Command, Entry, Head, Role, Rows, State};
use parking_lot::Mutex;
use record::BatchHeader;
use record::marker::Marker;
use tasks::Task;
use tokio::sync::{Notify, watch};

use crate::delivery::handle::Handle;
use crate::document_watch::DocumentWatchers;
use crate::pending_proposals::PendingProposals;
use crate::receipts::PendingReceipts;
use crate::state_machine::changes::Changes;
use crate::state_machine::compaction_progress::CompactionProgress;
use crate::state_machine::record_id_memory::Memory;
use crate::state_machine::state_lock::{Rank, StateLock, StateReadGuard};
use crate::undeliverable::UndeliverableRecords;
use crate::watch::{MarkedWatches, Watchers};

/// The state for a shard leader's decisions: its rows, and the catalog as this node knows it.
#[derive(Debug)]
pub struct View<'a> {
    pub catalog: &'a Catalog,
    pub rows: &'a Rows,
    /// The time of the shard's log: see [`State::last_ms`].
    pub last_ms: i64,
    pub shard: ShardId,
}

impl View<'_> {
    /// Returns the other shard that has the partition. `None` if this one has it, or it does not exist.
    pub fn elsewhere(&self, partition: PartitionId) -> Option<ShardId> {
        if self.rows.partition(partition).is_some() {
            return None;
        }
        if let Some(to) = self.rows.gone_to(partition) {
            return Some(to);
        }
        self.placed(partition).filter(|shard| *shard != self.shard)
    }

    /// Whether the catalog places the partition in this shard, which may not have adopted that yet.
    pub(crate) fn is_placed_here(&self, partition: PartitionId) -> bool {
        self.placed(partition) == Some(self.shard)
    }

    fn placed(&self, partition: PartitionId) -> Option<ShardId> {
        let topic = self.catalog.topic(partition.topic)?;
        let known = topic.has_partition(partition.index);
        known.then(|| topic.placement.shard_of(partition.index))
    }
}

#[derive(Debug)]
pub struct Shard {
    pub journal: Journal,
    /// The cluster's level, which limits what may be written, and the levels that can be applied.
    pub level: Arc<ClusterLevel>,
    /// The node's copy of the catalog, for a shard with rows; its own is empty.
    catalog: Option<Arc<Shard>>,
    /// The catalog's version, for the tasks that adopt its changes.
    pub versions: watch::Sender<u64>,
    /// The version of the catalog that the rows have adopted, for those waiting for it.
    pub adopted: watch::Sender<u64>,
    /// The index of the last entry applied since the node was started.
    applied: AtomicU64,
    /// Whether the last settle in the log marks a clean end: see `delivery/driver/shutdown_mark.rs`.
    ended_cleanly: AtomicBool,
    /// Number of waiters for an index, and their wake-up.
    applied_awaited: AtomicUsize,
    applied_more: Notify,
    /// Shards with rows that follow this catalog, and are notified of its changes.
    followers: Mutex<Vec<Weak<Shard>>>,
    /// Notified of changed documents of this catalog.
    pub document_watchers: DocumentWatchers,
    pub watchers: Arc<Watchers>,
    /// Changes that housekeeping has not examined.
    pub changes: Changes,
    /// Offset up to which each partition is compacted on this disk, where the shard has other members.
    pub compacted: CompactionProgress,
    /// Messages from this shard to others.
    pub outgoing: PendingReceipts,
    /// Records from other shards whose topic was deleted.
    pub unplaced: UndeliverableRecords,
    /// Set once the node leads: until then there are no sessions.
    pub delivery: OnceLock<Handle>,
    /// Number of record ids in the state, readable without its lock.
    record_ids: AtomicU64,
    state: StateLock,
    pub pending: PendingProposals,
    /// Reused by every apply; entries are applied one at a time.
    scratch: Mutex<Scratch>,
}

#[derive(Debug, Default)]
struct Scratch {
    appends: Vec<Append>,
    applied: EntryEffects,
    marked: MarkedWatches,
}

/// Decrements the number of waiters when dropped.
struct WaiterGuard<'a>(&'a AtomicUsize);

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shard {
    pub fn new(
        journal: Journal,
        level: Arc<ClusterLevel>,
        role: Role,
        catalog: Option<Arc<Shard>>,
        watchers: Arc<Watchers>,
    ) -> Self {
        let rank = if catalog.is_some() { Rank::Rows } else { Rank::Catalog };
        Self {
            journal,
            level,
            catalog,
            versions: watch::Sender::new(0),
            adopted: watch::Sender::new(0),
            applied: AtomicU64::new(0),
            ended_cleanly: AtomicBool::new(false),
            applied_awaited: AtomicUsize::new(0),
            applied_more: Notify::new(),
            followers: Mutex::default(),
            document_watchers: DocumentWatchers::default(),
            watchers,
            changes: Changes::default(),
            compacted: CompactionProgress::default(),
            outgoing: PendingReceipts::default(),
            unplaced: UndeliverableRecords::default(),
            delivery: OnceLock::new(),
            record_ids: AtomicU64::new(0),
            state: StateLock::new(State::of(role), rank),
            pending: PendingProposals::default(),
            scratch: Mutex::default(),
        }
    }

    /// The catalog is locked before the rows, here and everywhere.
    pub fn read<R>(&self, question: impl FnOnce(&View<'_>) -> R) -> R {
        let catalog = self.catalog.as_ref().map(|catalog| catalog.state.read());
        let state = self.state.read();
        let catalog = catalog.as_ref().map_or(&state.catalog, |catalog| &catalog.catalog);
        let (last_ms, shard) = (state.last_ms(), state.role().shard());
        question(&View { catalog, rows: &state.rows, last_ms, shard })
    }

    pub fn role(&self) -> Role {
        self.state.read().role()
    }

    /// Sets a state without an entry. The next snapshot has it.
    pub fn replace(&self, state: State) {
        self.note_record_ids(&state);
        *self.state.write() = state;
    }

    fn note_record_ids(&self, state: &State) {
        self.record_ids.store(state.rows.record_ids().len(), Ordering::Relaxed);
    }

    /// Number of record ids in all shards of the node.
    pub fn record_ids_of_node(&self) -> Memory {
        let Some(catalog) = &self.catalog else { return Memory::default() };
        let mut memory = Memory::default();
        for shard in catalog.followers.lock().iter().filter_map(Weak::upgrade) {
            memory.ids += shard.record_ids.load(Ordering::Relaxed);
            memory.shards += 1;
        }
        memory
    }

    /// Sets another state, and calls `switch` under the lock, so that no reader sees one without the other. Returns
    /// the former state.
    pub(crate) fn exchange(&self, state: State, switch: &mut dyn FnMut()) -> State {
        let version = state.catalog.version();
        self.note_record_ids(&state);
        let former = {
            let mut own = self.state.write();
            switch();
            std::mem::replace(&mut *own, state)
        };
        self.versions.send_replace(version);
        self.document_watchers.note_all();
        former
    }

    pub(crate) fn followers(&self) -> Vec<Weak<Shard>> {
        self.followers.lock().clone()
    }

    #[cfg(test)]
    pub(crate) fn is_locked(&self) -> bool {
        self.state.is_locked()
    }

    /// Registers a shard that follows this catalog.
    pub fn add_follower(&self, follower: &Arc<Shard>) {
        self.followers.lock().push(Arc::downgrade(follower));
    }

    /// Notifies the delivery and housekeeping of each shard with rows of a change of the catalog.
    fn notify_followers(&self, commands: &[Command], applied: &EntryEffects) {
        self.document_watchers.note(commands, applied);
        let version = self.state.read().catalog.version();
        self.versions.send_if_modified(|known| std::mem::replace(known, version) != version);
        for follower in self.followers.lock().iter().filter_map(Weak::upgrade) {
            follower.changes.note(&[], commands, applied);
            if let Some(delivery) = follower.delivery.get() {
                delivery.applied(commands, applied);
            }
        }
    }

    /// Whether the shard's former process ended after it had returned all leases.
    pub fn ended_cleanly(&self) -> bool {
        self.ended_cleanly.load(Ordering::Acquire)
    }

    /// Index up to which the log is applied; 0 before the first one since the start.
    #[inline]
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Index up to which this node's copy of the shard's catalog is applied.
    #[inline]
    pub fn catalog_applied(&self) -> u64 {
        self.catalog.as_ref().map_or(0, |catalog| catalog.applied())
    }

    /// Waits until the catalog is applied up to this index.
    pub async fn catalog_applied_to(&self, index: u64) {
        if let Some(catalog) = &self.catalog {
            catalog.applied_to(index).await;
        }
    }

    /// Waits until this node's copy of the catalog has the version that the rows have adopted. A new leader may have
    /// rows of topics and lease groups that its copy does not have yet.
    pub async fn catalog_has_rows(&self) {
        let Some(catalog) = &self.catalog else { return };
        let adopted = self.state.read().rows.adopted();
        let mut versions = catalog.versions.subscribe();
        while catalog.state.read().catalog.version() < adopted {
            if versions.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until the log is applied up to this committed index.
    pub async fn applied_to(&self, index: u64) {
        self.applied_awaited.fetch_add(1, Ordering::SeqCst);
        let _leaves = WaiterGuard(&self.applied_awaited);
        loop {
            let mut more = pin!(self.applied_more.notified());
            more.as_mut().enable();
            if self.applied.load(Ordering::SeqCst) >= index {
                return;
            }
            more.await;
        }
    }

    pub(crate) fn note_applied(&self, index: u64) {
        self.applied.store(index, Ordering::SeqCst);
        if self.applied_awaited.load(Ordering::SeqCst) > 0 {
            self.applied_more.notify_waiters();
        }
    }

    pub(crate) fn note_adopted(&self) {
        let version = self.state.read().rows.adopted();
        self.adopted.send_if_modified(|known| std::mem::replace(known, version) != version);
    }

    /// Reads the rows alone; an apply waits until the guard is dropped.
    #[inline]
    pub fn rows(&self) -> StateReadGuard<'_, Rows> {
        self.state.read().map(|state| &state.rows)
    }

    /// Reads the state; an apply waits until the guard is dropped.
    #[inline]
    pub fn state(&self) -> StateReadGuard<'_, State> {
        self.state.read()
    }

    /// Reads an entry's bodies into `appends`, as the machine describes them.
    fn describe(bodies: &[Body], appends: &mut Vec<Append>) {
        appends.clear();
        appends.extend(bodies.iter().map(|body| {
            let header = BatchHeader::parse(&body.bytes)
                .expect("a batch in the log was validated before it was proposed");
            let marker = Marker::read(&header, &body.bytes).map(|marker| marker.commit);
            Append {
                partition: PartitionId::from_stream(body.stream),
                base_offset: body.base_offset,
                span: body.span,
                leader_epoch: header.leader_epoch,
                max_timestamp: body.max_timestamp,
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                base_sequence: header.base_sequence,
                kind: BatchKind::of(header.attributes.is_transactional(), marker),
            }
        }));
    }

    /// Carries out the machine's decisions about bytes: which are live, and which are dead.
    fn settle_bytes(&self, index: u64, applied: &EntryEffects) {
        for (body, outcome) in applied.appends.iter().enumerate() {
            match outcome {
                AppendOutcome::Taken { .. } => self.journal.accept(index, body),
                _ => self.journal.refuse(index, body),
            }
        }
        for (partition, start) in &applied.trimmed {
            self.journal.trim(partition.stream(), *start);
        }
        for (partition, from, to) in &applied.punched {
            self.journal.punch(partition.stream(), *from, *to);
        }
        for (topic, partitions) in &applied.removed {
            let first = PartitionId::new(*topic, 0).stream();
            self.journal.remove(first..first + u64::from(*partitions));
        }
        for partition in &applied.left {
            let stream = partition.stream();
            self.journal.remove(stream..stream + 1);
            self.compacted.forget_partition(*partition);
        }
    }

    /// Announces messages before the pusher can see them, so that their receipts are awaited.
    fn announce_sent(&self, rows: &Rows, appends: &[Append], applied: &EntryEffects) {
        for (append, outcome) in appends.iter().zip(&applied.appends) {
            let taken = matches!(outcome, AppendOutcome::Taken { .. });
            let Some(to) = append.partition.as_channel().filter(|_| taken) else { continue };
            let outbox = rows.channels().outbox(to);
            let sent = outbox.and_then(|outbox| outbox.message(append.base_offset));
            // Nothing waits for the receipt of an end: see [`PendingReceipts::arrived`].
            if sent.is_some_and(|message| !message.ends_a_transaction()) {
                self.outgoing.announce(to, append.base_offset);
            }
        }
    }

    fn wake(&self, appends: &[Append], applied: &EntryEffects) {
        let gone = applied.removed.iter().flat_map(|&(topic, partitions)| {
            (0..partitions).map(move |index| PartitionId::new(topic, index))
        });
        let trimmed = applied.trimmed.iter().map(|(partition, _)| *partition);
        let appended = appends.iter().map(|append| append.partition);
        let handed_over = applied.handed_over.iter().copied();
        self.watchers.wake(appended.chain(trimmed).chain(gone).chain(handed_over));
    }
}

impl StateMachine for Shard {
    fn apply(&self, entry: CommittedEntry<'_>) -> Result<u64, ApplyError> {
        let mut scratch = self.scratch.lock();
        let Scratch { appends, applied, marked } = &mut *scratch;
        let Head { now_ms, commands, units, epochs_are_terms } =
            machine::decode_head_within(self.level.can(), entry.head)
                .map_err(|error| ApplyError(error.to_string()))?;
        let leader_epoch = epochs_are_terms.then_some(entry.id.term as i32);
        Self::describe(entry.bodies, appends);
        {
            let mut state = self.state.write();
            let (commands, units) = (&commands[..], &units[..]);
            state.apply(&Entry { now_ms, leader_epoch, appends, commands, units }, applied);
            self.note_record_ids(&state);
            tasks::inject::point(Task::Apply);
            let sends = commands.iter().any(Command::is_message);
            if sends && entry.ticket != 0 {
                self.announce_sent(&state.rows, appends, applied);
            }
            if let Some(delivery) = self.delivery.get() {
                delivery.received(commands, applied);
            }
            // Under the lock: a reader of the new end must find its batches in the index.
            self.settle_bytes(entry.id.index, applied);
            // Under the lock, for the same reason: a reader that learns of a record finds it delivered.
            let trimmed = applied.trimmed.iter().map(|(partition, _)| *partition);
            let appended = appends.iter().map(|append| append.partition);
            self.watchers.mark_topics(appended.chain(trimmed), marked);
        }
        for command in &commands {
            if let Command::Settle { settles } = command {
                self.ended_cleanly.store(settles.is_empty(), Ordering::Release);
            }
        }
        if commands.iter().any(|command| matches!(command, Command::Adopt(_))) {
            self.note_adopted();
        }
        self.changes.note(appends, &commands, applied);
        if let Some(delivery) = self.delivery.get() {
            delivery.applied(&commands, applied);
        }
        // Only a catalog has followers.
        if self.catalog.is_none() && !commands.is_empty() {
            self.notify_followers(&commands, applied);
        }
        if entry.ticket != 0
            && let Some(feed) = self.delivery.get().and_then(|delivery| delivery.feed.as_ref())
        {
            feed.send_appends(now_ms, appends);
        }
        if entry.ticket != 0
            && let Some(pending) = self.pending.take(entry.ticket)
        {
            let state = self.state.read();
            pending.answer(&state.rows, applied, &self.outgoing, &self.unplaced);
        }
        // After the replies: by then the receipts are awaited.
        if commands.iter().any(Command::is_message) {
            self.outgoing.note_sent();
        }
        marked.wake();
        self.wake(appends, applied);
        self.note_applied(entry.id.index);
        Ok(changes(appends, &commands))
    }

    fn passed(&self, index: u64) {
        self.note_applied(index);
    }

    fn written(&self, ticket: u64) {
        self.pending.written(ticket, |pending| pending.answer_early(&self.state.read().rows));
    }

    fn capture(&self) -> Encode {
        let (image, level) = (self.state.read().capture(), self.level.now());
        Box::new(move || Bytes::from(image.encode_at(level)))
    }

    fn restore(&self, machine: &[u8]) -> Result<(), RestoreError> {
        let state = self.decode(machine)?;
        self.exchange(state, &mut || {});
        self.note_adopted();
        Ok(())
    }

    fn replace(self: Arc<Self>, index: u64, machine: &[u8]) -> Result<Replace, RestoreError> {
        self.replacement(index, machine)
    }
}

/// Approximate work of an entry, in microseconds. Most commands are rare; a settle may concern a thousand records,
/// each with its own change.
fn changes(appends: &[Append], commands: &[Command]) -> u64 {
    const PER_BATCH: usize = 2;
    const IDS_PER_MICROSECOND: usize = 4;
    let changes = |command: &Command| match command {
        Command::Settle { settles } => {
            settles.iter().map(|settle| settle.settled.len() + settle.attempts.len()).sum()
        }
        Command::CreateTopics { topics } => topics.len(),
        Command::RecordIds(change) => change.len().div_ceil(IDS_PER_MICROSECOND),
        _ => 1,
    };
    (appends.len() * PER_BATCH + commands.iter().map(changes).sum::<usize>()) as u64
}
