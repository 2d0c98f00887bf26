//! Scheduling and writing of snapshots.
//!
//! A snapshot bounds the replay of a restart, and frees the log's claim on older segments. It is due once the log
//! has grown by a segment, or by eight times the last snapshot if that is more. So a large state is not rewritten
//! for little log: at most an eighth of the log's bytes is written again as snapshots, whatever their content. It
//! is also due once replaying the log would take about a second, however short it is: an entry of some kilobytes
//! may settle a thousand scattered records. Here too a large state waits for more. The state is captured between
//! two applied entries, and encoded and written while more are applied.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use journal::{Journal, PendingSnapshot};
use openraft::Raft;
use openraft::async_runtime::WatchReceiver;
use parking_lot::Mutex;
use tasks::{Task, Workers};
use tokio::sync::{Notify, oneshot};
use tokio::time::MissedTickBehavior;
use world::Instant;

use super::Replica;
use crate::engine::{SnapshotMeta, TypeConfig};
use crate::error::{Failure, SnapshotError};
use crate::machine::Encode;
use crate::options::ConsensusOptions;
use crate::retention::Retention;
use crate::transfer::OutgoingSnapshots;

/// Growth of the log in last snapshots that is worth another.
const LOG_PER_SNAPSHOT: u64 = 8;
/// A replayed change costs as much as saving this many bytes of state, eight times over.
const STATE_BYTES_PER_CHANGE: u64 = 32;
/// How often a member of a group checks which part of the log all others have.
const LET_GO_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failure, most likely a full disk.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Snapshots {
    journal: Journal,
    workers: Workers,
    log_bytes_min: u64,
    changes_min: u64,
    /// Changes that were applied since the start, and the ones among them that the newest snapshot has.
    changes: AtomicU64,
    changes_saved: AtomicU64,
    /// Size of the last snapshot: the machine's state and the journal's table of runs.
    snapshot_bytes: AtomicU64,
    /// The newest snapshot on disk.
    newest: Mutex<Option<SnapshotMeta>>,
    due: Notify,
    one_at_a_time: tokio::sync::Mutex<()>,
    /// In a group `retention` decides which part of the log stays. Alone a snapshot frees all that it covers.
    in_a_group: bool,
    retention: Arc<Retention>,
    sending: Arc<OutgoingSnapshots>,
}

/// A fixed state, neither encoded nor on disk yet.
pub(crate) struct CapturedState {
    pub(crate) meta: SnapshotMeta,
    pub(crate) machine: Encode,
    /// Changes applied since the start.
    pub(crate) changes: u64,
    pub(crate) pending: PendingSnapshot,
}

impl Snapshots {
    pub(crate) fn new(
        journal: Journal,
        workers: Workers,
        options: &ConsensusOptions,
        newest: Option<(SnapshotMeta, u64)>,
        retention: Arc<Retention>,
        sending: Arc<OutgoingSnapshots>,
    ) -> Self {
        if let Some((meta, _)) = &newest {
            retention.covered(meta.last_log_id.map_or(0, |id| id.index), 0);
        }
        let (newest, snapshot_bytes) =
            newest.map_or((None, 0), |(meta, bytes)| (Some(meta), bytes));
        Self {
            journal,
            workers,
            log_bytes_min: options.snapshot_log_bytes_min,
            changes_min: options.snapshot_changes_min,
            changes: AtomicU64::new(0),
            changes_saved: AtomicU64::new(0),
            snapshot_bytes: AtomicU64::new(snapshot_bytes),
            newest: Mutex::new(newest),
            due: Notify::new(),
            one_at_a_time: tokio::sync::Mutex::new(()),
            in_a_group: options.group.is_some(),
            retention,
            sending,
        }
    }

    pub(crate) fn newest(&self) -> Option<SnapshotMeta> {
        self.newest.lock().clone()
    }

    /// Another member's snapshot is on disk and installed.
    pub(crate) fn installed(&self, meta: SnapshotMeta) {
        self.snapshot_bytes.store(self.journal.snapshot_bytes(), Ordering::Relaxed);
        self.changes_saved.store(self.changes(), Ordering::Relaxed);
        if let Some(last) = meta.last_log_id {
            self.retention.covered(last.index, self.journal.stats().bytes);
        }
        *self.newest.lock() = Some(meta);
    }

    /// Called after each run of applied entries, with the number of their changes.
    pub(crate) fn consider(&self, changes: u64) {
        self.changes.fetch_add(changes, Ordering::Relaxed);
        if self.is_due() {
            self.due.notify_one();
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn is_due(&self) -> bool {
        let snapshot_bytes = self.snapshot_bytes.load(Ordering::Relaxed);
        let log_bytes = self.log_bytes_min.max(snapshot_bytes.saturating_mul(LOG_PER_SNAPSHOT));
        let changes = self.changes_min.max(snapshot_bytes / STATE_BYTES_PER_CHANGE);
        self.journal.bytes_since_snapshot() > log_bytes
            || self.changes() - self.changes_saved.load(Ordering::Relaxed) > changes
    }

    /// Takes a snapshot now, and allows a purge of the log up to it.
    pub(crate) async fn take(&self, raft: &Raft<TypeConfig, Replica>) -> Result<(), SnapshotError> {
        self.take_if(raft, false).await
    }

    /// The same although nothing was applied since the last one: that one is damaged, or records an earlier begin
    /// of recovery than necessary.
    pub(crate) async fn take_forced(
        &self,
        raft: &Raft<TypeConfig, Replica>,
    ) -> Result<(), SnapshotError> {
        self.take_if(raft, true).await
    }

    async fn take_if(
        &self,
        raft: &Raft<TypeConfig, Replica>,
        force: bool,
    ) -> Result<(), SnapshotError> {
        let _one_at_a_time = self.one_at_a_time.lock().await;
        let begun = Instant::now();
        let captured = raft
            .with_state_machine(move |replica| {
                let captured = replica.capture(force);
                Box::pin(async move { captured })
            })
            .await
            .map_err(Failure::from)?;
        let Some(CapturedState { meta, machine, changes, pending }) = captured? else {
            return Ok(());
        };
        let log_bytes = self.journal.stats().bytes;
        let fixed = begun.elapsed();
        if self.in_a_group {
            self.durable().await?;
        }
        let write = move || pending.write(machine());
        let written = self.workers.blocking(Task::SnapshotWriting, write).await;
        let bytes = written.map_err(|_| SnapshotError::Panicked)??;
        tracing::debug!(
            index = meta.last_log_id.map(|id| id.index()),
            bytes,
            fixed_ms = fixed.as_millis(),
            written_ms = (begun.elapsed() - fixed).as_millis(),
            "snapshot taken"
        );
        self.snapshot_bytes.store(bytes, Ordering::Relaxed);
        self.changes_saved.store(changes, Ordering::Relaxed);
        if self.in_a_group
            && let Some(last) = meta.last_log_id
        {
            self.retention.covered(last.index, log_bytes);
        }
        {
            // A snapshot from another member may have arrived in between.
            let mut newest = self.newest.lock();
            let later = |known: &SnapshotMeta| known.last_log_id >= meta.last_log_id;
            if newest.as_ref().is_some_and(later) {
                return Ok(());
            }
            *newest = Some(meta);
        }
        raft.trigger().snapshot().await.map_err(Failure::from)?;
        Ok(())
    }

    /// Waits until everything now in the log is durable. The majority that committed the applied entries may not
    /// include this node: they may still be in flight to this disk, and must not be missing under a snapshot that
    /// covers them.
    pub(crate) async fn durable(&self) -> io::Result<()> {
        let (durable, told) = oneshot::channel();
        let appended = self.journal.append(Vec::new(), move |result| drop(durable.send(result)));
        appended.map_err(io::Error::other)?;
        told.await.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    /// Purges the part of the log that snapshots cover and no member needs.
    async fn release_log(&self, raft: &Raft<TypeConfig, Replica>) -> Result<(), Failure> {
        self.sending.expire();
        let server = raft.server_metrics();
        let here = server.borrow_watched().id;
        let known = {
            let data = raft.data_metrics();
            let seen = data.borrow_watched();
            if let Some(matched) = &seen.replication {
                let members = Arc::clone(&server.borrow_watched().membership_config);
                let members = members.membership();
                let others = members.nodes().map(|(id, _)| *id).filter(|id| *id != here).collect();
                let own = raft.watch_log_progress().get().and_then(|durable| durable.last_log_id);
                self.retention.matched(own.map(|id| id.index), &others, matched);
            } else {
                self.retention.clear_catching_up();
            }
            seen.snapshot.map(|id| id.index)
        };
        let purged = self.journal.purged_id().map(|id| id.index);
        // The engine refuses an index that it does not know to be covered.
        let up_to = self.retention.purge_up_to(self.journal.stats().bytes).min(known);
        match up_to {
            Some(index) if up_to > purged => self.purge(raft, index).await,
            _ => Ok(()),
        }
    }

    /// Purges the log up to this entry, unless the engine does not know yet that a snapshot covers it.
    pub(crate) async fn purge(
        &self,
        raft: &Raft<TypeConfig, Replica>,
        index: u64,
    ) -> Result<(), Failure> {
        self.retention.purge_begins(index);
        raft.trigger().purge_log(index).await.map_err(Failure::from)
    }

    /// Takes snapshots whenever one is due, and purges the log at intervals. Does not return.
    pub(crate) async fn keep_up(self: Arc<Self>, raft: Raft<TypeConfig, Replica>) {
        let mut release = tokio::time::interval(LET_GO_EVERY);
        release.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // First: snapshots may be due more often than it is time for a purge.
                _ = release.tick(), if self.in_a_group => {
                    if self.release_log(&raft).await.is_err() {
                        return std::future::pending().await;
                    }
                    continue;
                }
                () = self.due.notified() => {}
            }
            if !self.is_due() {
                continue;
            }
            match self.take(&raft).await {
                Ok(()) => {}
                // The end of consensus is reported separately.
                Err(SnapshotError::Failed(_)) => return std::future::pending().await,
                Err(error) => {
                    tracing::warn!(%error, "no snapshot; the log keeps growing until one succeeds");
                    tokio::time::sleep(TRY_AGAIN_AFTER).await;
                }
            }
        }
    }
}
