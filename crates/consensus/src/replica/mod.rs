//! openraft's state machine: applies committed entries to the shard's machine, in log order, on openraft's worker
//! task, and saves its state.
//!
//! * `snapshots`: scheduling and writing of snapshots
//!
//! It depends on `log_store`, `retention` and `transfer`, and knows neither roles nor members.

mod snapshots;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use journal::Journal;
use journal::transfer::{Import, ReceivedSections, ReceiverState};
use openraft::entry::EntryPayload;
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{OptionalSend, RaftLogReader, RaftSnapshotBuilder};
use tasks::Task;
use tokio::sync::watch;
use world::World;

use crate::encoding;
use crate::engine::{LogId, SnapshotMeta, StoredMembership, TypeConfig};
use crate::error::SnapshotError;
use crate::log_store::LogStore;
use crate::machine::{CommittedEntry, Payload, Replace, StateMachine};

use snapshots::CapturedState;

pub(crate) use snapshots::Snapshots;

/// Cost of reading and passing on an entry at a restart, in addition to its content.
const CHANGES_PER_ENTRY: u64 = 10;

pub(crate) struct Replica {
    world: World,
    machine: Arc<dyn StateMachine>,
    journal: Journal,
    log: LogStore,
    snapshots: Arc<Snapshots>,
    applied: Option<LogId>,
    members: StoredMembership,
    begun: watch::Sender<FirstEntry>,
}

/// The applied entry with which a leader begins its term. Everything committed before comes before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FirstEntry {
    pub(crate) term: u64,
    leader: u64,
    /// The first of the terms up to this one in which no other node led.
    pub(crate) since: u64,
}

/// A snapshot of another member, complete and not installed yet.
pub(crate) struct ReadySnapshot {
    pub(crate) import: Import,
    pub(crate) received: ReceivedSections,
    pub(crate) replace: Replace,
}

/// The engine's type of a snapshot's content. It is empty: a leader offers its newest, and only a fetched snapshot
/// is ever installed.
pub(crate) struct Image(Option<Box<ReadySnapshot>>);

impl Image {
    pub(crate) fn of(ready: ReadySnapshot) -> Self {
        Self(Some(Box::new(ready)))
    }
}

impl Replica {
    /// The machine has the state of `meta`: a restored snapshot's, or none yet.
    pub(crate) fn new(
        world: &World,
        machine: Arc<dyn StateMachine>,
        journal: Journal,
        log: LogStore,
        snapshots: Arc<Snapshots>,
        meta: SnapshotMeta,
    ) -> Self {
        let SnapshotMeta { last_log_id, last_membership } = meta;
        Self {
            world: world.clone(),
            machine,
            journal,
            log,
            snapshots,
            applied: last_log_id,
            members: last_membership,
            begun: watch::Sender::default(),
        }
    }

    pub(crate) fn begun(&self) -> watch::Receiver<FirstEntry> {
        self.begun.subscribe()
    }

    /// Records a leader's first entry, or another one without content.
    fn begins(&self, id: LogId) {
        let term = id.committed_leader_id().term;
        let leader = self.journal.entry_id(id.index()).map_or(0, |id| id.leader);
        self.begun.send_if_modified(|last| {
            let begins = term > last.term;
            if begins {
                let since = if leader == last.leader { last.since } else { term };
                *last = FirstEntry { term, leader, since };
            }
            begins
        });
    }

    /// Records a term after terms that this member missed.
    fn restart_terms(&self, last: LogId) {
        let term = last.committed_leader_id().term;
        let leader = self.journal.entry_id(last.index()).map_or(0, |id| id.leader);
        self.begun.send_replace(FirstEntry { term, leader, since: term });
    }

    async fn install(&self, ready: ReadySnapshot) -> io::Result<()> {
        let ReadySnapshot { import, received, replace } = ready;
        let applied = self.applied.map(|id| id.index);
        let Replace { renewed, put } = replace;
        let put = move |switch: &mut dyn FnMut()| {
            let _entered = tasks::enter(Task::Apply);
            put(switch);
        };
        let here = ReceiverState { applied, renewed: renewed() };
        let installed = self.journal.install(&self.world, import, received, here, put).await;
        installed.map_err(io::Error::other)
    }

    /// Applies the log up to here.
    async fn apply_own(&mut self, last: LogId) -> io::Result<()> {
        let first = self.applied.map_or(0, |id| id.index + 1);
        let mut log = self.log.clone();
        let entries = log.entries_stream(first..last.index + 1).await;
        self.apply(Box::pin(entries.map(|entry| Ok((entry?, None))))).await
    }

    fn apply_command(&self, id: LogId, payload: &Payload) -> io::Result<u64> {
        let id = self.log.entry_id(id);
        let committed = CommittedEntry {
            id,
            head: &payload.head,
            bodies: &payload.bodies,
            ticket: self.log.take_ticket(id.index),
            replay: self.log.was_recovered(id.index),
        };
        let _entered = tasks::enter(Task::Apply);
        // Half an applied entry is a state that no other replica has: no entry may follow it. In a server the
        // process ends before the stack is unwound, so that no reader sees it either.
        let index = id.index;
        catch_unwind(AssertUnwindSafe(|| self.machine.apply(committed)))
            .map_err(|_| io::Error::other(format!("the machine panicked at entry {index}")))?
            .map_err(|error| io::Error::other(format!("entry {index} cannot be applied: {error}")))
    }

    /// Captures the present state; `None` if another snapshot would have the same content and free no more of the
    /// log, unless `force` is set.
    pub(crate) fn capture(&self, force: bool) -> Result<Option<CapturedState>, SnapshotError> {
        let Some(applied) = self.applied else { return Ok(None) };
        let is_newest = self.snapshots.newest().and_then(|meta| meta.last_log_id) == Some(applied);
        let id = self.log.entry_id(applied);
        if is_newest && !force && !self.journal.would_claim_less(id) {
            return Ok(None);
        }
        let machine = catch_unwind(AssertUnwindSafe(|| self.machine.capture()))
            .map_err(|_| SnapshotError::Panicked)?;
        let changes = self.snapshots.changes();
        let meta =
            SnapshotMeta { last_log_id: Some(applied), last_membership: self.members.clone() };
        let head = encoding::encode_snapshot_meta(&meta);
        let pending = self.journal.begin_snapshot(id, head);
        Ok(Some(CapturedState { meta, machine, changes, pending }))
    }
}

impl RaftStateMachine<TypeConfig> for Replica {
    type SnapshotData = Image;
    type SnapshotBuilder = NewestSnapshot;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        Ok((self.applied, self.members.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<TypeConfig>>> + Unpin + OptionalSend,
    {
        let mut changes = 0;
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            changes += CHANGES_PER_ENTRY;
            match entry.payload {
                EntryPayload::Blank => {
                    self.begins(entry.log_id);
                    self.machine.passed(entry.log_id.index);
                }
                EntryPayload::Normal(payload) => {
                    // The disks of other nodes may have made the quorum while ours is still busy with the frame
                    // before. The machine needs the place, and must not wait for it: it is locked while it
                    // applies.
                    self.journal.placed(entry.log_id.index).await.map_err(io::Error::other)?;
                    changes += self.apply_command(entry.log_id, &payload)?;
                }
                EntryPayload::Membership(members) => {
                    self.members = StoredMembership::new(Some(entry.log_id), members);
                    self.machine.passed(entry.log_id.index);
                }
            }
            self.applied = Some(entry.log_id);
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        self.snapshots.consider(changes);
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<NewestSnapshot> {
        Some(self.get_snapshot_builder().await)
    }

    async fn get_snapshot_builder(&mut self) -> NewestSnapshot {
        NewestSnapshot(self.snapshots.newest())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<TypeConfig>,
        snapshot: Image,
    ) -> io::Result<()> {
        let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "a snapshot of nothing");
        let last = meta.last_log_id.ok_or_else(nothing)?;
        let ready = snapshot.0.ok_or_else(nothing)?;
        let own = self.journal.entry_id(last.index).filter(|own| own.term == last.leader_id.term);
        if own.is_some() && self.journal.purged_id().map(|id| id.index) < Some(last.index) {
            // The log has received these entries meanwhile: they only have to be applied.
            drop(ready);
            return self.apply_own(last).await;
        }
        let installed = self.install(*ready).await;
        self.log.install_ended();
        installed?;
        self.applied = Some(last);
        self.members = meta.last_membership.clone();
        self.restart_terms(last);
        self.snapshots.installed(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<TypeConfig, Image>>> {
        Ok(self.snapshots.newest().map(|meta| openraft::Snapshot { meta, snapshot: Image(None) }))
    }
}

/// "Builds" the snapshot that [`Snapshots`] has written already. An error from here would stop the node, and a
/// full disk must not do that. So openraft gets a snapshot once it exists.
pub(crate) struct NewestSnapshot(Option<SnapshotMeta>);

impl RaftSnapshotBuilder<TypeConfig> for NewestSnapshot {
    type SnapshotData = Image;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<TypeConfig, Image>> {
        let meta = self.0.clone().ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "the log was purged and no snapshot is there")
        })?;
        Ok(openraft::Snapshot { meta, snapshot: Image(None) })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::stream;
    use journal::{Body, Options};
    use openraft::entry::RaftEntry;
    use openraft::storage::{IOFlushed, RaftLogStorage};
    use tokio::time::timeout;
    use world::SimulatedDisk;

    use super::*;
    use crate::engine::Entry;
    use crate::engine::log_id;
    use crate::machine::{Encode, Replace};
    use crate::options::ConsensusOptions;
    use crate::retention::Retention;
    use crate::transfer::OutgoingSnapshots;
    use crate::{ApplyError, RestoreError};

    /// Gets the place of applied bodies from the journal, as the broker's machine does.
    struct Machine {
        journal: Journal,
        applied: AtomicU64,
    }

    impl StateMachine for Machine {
        fn apply(&self, entry: CommittedEntry<'_>) -> Result<u64, ApplyError> {
            self.journal.accept(entry.id.index, 0);
            self.applied.store(entry.id.index, Ordering::SeqCst);
            Ok(1)
        }

        fn capture(&self) -> Encode {
            Box::new(Bytes::new)
        }

        fn restore(&self, _: &[u8]) -> Result<(), RestoreError> {
            Ok(())
        }

        fn replace(self: Arc<Self>, _: u64, _: &[u8]) -> Result<Replace, RestoreError> {
            Ok(Replace::new(|switch| switch()))
        }
    }

    fn entry(index: u64) -> Entry {
        let body = Body {
            stream: 1,
            base_offset: index,
            span: 1,
            max_timestamp: 0,
            bytes: Bytes::from_static(b"body"),
        };
        let payload = Payload { head: Bytes::new(), bodies: vec![body], ticket: 0 };
        Entry::new(log_id(1, index), EntryPayload::Normal(payload))
    }

    /// The other two of three nodes make a quorum without this one's disk.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn entry_committed_by_others_is_applied_once_it_has_its_place_here() {
        let disk = SimulatedDisk::new();
        let opened = Journal::open(
            &World::on(Arc::new(disk.clone())),
            Path::new("/data"),
            Options::default(),
        )
        .unwrap();
        let journal = opened.journal;
        let machine = Arc::new(Machine { journal: journal.clone(), applied: AtomicU64::new(0) });
        let mut log = LogStore::new(journal.clone(), Default::default()).unwrap();
        let options = ConsensusOptions::default();
        let (workers, retention) = (Default::default(), Arc::new(Retention::new(0)));
        let sending = Arc::new(OutgoingSnapshots::new(0));
        let snapshots =
            Arc::new(Snapshots::new(journal.clone(), workers, &options, None, retention, sending));
        let mut replica = Replica::new(
            &World::on(Arc::new(disk.clone())),
            Arc::clone(&machine) as Arc<dyn StateMachine>,
            journal.clone(),
            log.clone(),
            snapshots,
            SnapshotMeta::default(),
        );
        disk.hang_syncs(true);
        // The first has its place and hangs in its sync; the second waits behind it.
        log.append([entry(1)], IOFlushed::noop()).await.unwrap();
        journal.placed(1).await.unwrap();
        log.append([entry(2)], IOFlushed::noop()).await.unwrap();

        let committed = stream::iter([1, 2].map(|index| Ok((entry(index), None))));
        let mut applying = std::pin::pin!(replica.apply(committed));
        assert!(timeout(Duration::from_millis(100), &mut applying).await.is_err());
        assert_eq!(machine.applied.load(Ordering::SeqCst), 1, "the machine is not asked to wait");
        disk.hang_syncs(false);
        timeout(Duration::from_secs(10), applying).await.expect("it is applied").unwrap();
        assert_eq!(machine.applied.load(Ordering::SeqCst), 2);
    }
}
