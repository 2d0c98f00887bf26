//! Keeps the rows of a shard in line with the catalog: its topics, their partition counts and its lease groups.
//!
//! The shard's log records up to which version it has adopted the catalog ([`machine::catalog::feed`]). Later changes
//! go into the log in one entry, or in several if there are many.

use std::future::pending;
use std::sync::{Arc, Weak};
use std::time::Duration;

use consensus::Role;
use machine::{Command, Refusal};
use shard::LocalShard;
use shard::Shard;
use shard::error::{ExecuteError, Unavailable};
use shard::local_shard::NewestReport;
use tokio::sync::watch;
use tokio::time::timeout;

/// Changes adopted by one log entry.
const CHANGES_PER_ENTRY: usize = 20_000;
/// Delay before a retry while the shard's log accepts no entries.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Runs until the catalog or the shard is gone.
pub(crate) async fn run(catalog: Arc<Shard>, local: Weak<LocalShard>) {
    let mut versions = catalog.versions.subscribe();
    drop(catalog);
    let mut membership = None;
    loop {
        versions.borrow_and_update();
        let Some(local) = local.upgrade() else { return };
        let membership: &mut Membership = membership.get_or_insert_with(|| Membership::of(&local));
        membership.mark_seen();
        let goes_on = match local.has_rows() {
            true => keep_up(&local).await,
            // A node without a replica has no rows to keep in line.
            false => true,
        };
        drop(local);
        if !goes_on {
            // The part that failed reports the reason; this task must not report another one first.
            while versions.changed().await.is_ok() {}
            return;
        }
        tokio::select! {
            biased;
            changed = versions.changed() => if changed.is_err() { return },
            () = membership.changed() => {}
        }
    }
}

/// Events by which a node may become a member of a shard's group: its role changes, it learns of a leader or of its
/// membership, or it receives rows.
struct Membership {
    role: Option<watch::Receiver<Role>>,
    reports: watch::Receiver<Option<NewestReport>>,
    rows: watch::Receiver<u64>,
}

impl Membership {
    fn of(local: &LocalShard) -> Self {
        let (reports, rows) = (local.newest_report.subscribe(), local.shard.adopted.subscribe());
        Self { role: local.role(), reports, rows }
    }

    fn mark_seen(&mut self) {
        self.role.iter_mut().for_each(watch::Receiver::mark_unchanged);
        self.reports.mark_unchanged();
        self.rows.mark_unchanged();
    }

    async fn changed(&mut self) {
        let role = async {
            match &mut self.role {
                Some(role) => changed(role).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            () = role => {}
            () = changed(&mut self.reports) => {}
            () = changed(&mut self.rows) => {}
        }
    }
}

/// Waits for a change, and for ever once the sender is gone: the end of the shard shows in the catalog's watch.
async fn changed<T>(watched: &mut watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        pending().await
    }
}

/// Adopts all pending changes. False once the shard accepts no more requests.
async fn keep_up(local: &LocalShard) -> bool {
    loop {
        let seen = local.adopted.borrow().version;
        let next = local.read(|view| {
            let mut adoption = view.catalog.adoption(local.id(), seen, CHANGES_PER_ENTRY)?;
            // No change between the two versions was for this shard.
            adoption.from = view.rows.adopted();
            Some(view.rows.without_unknown(adoption))
        });
        let Some(adoption) = next else { return true };
        let to = adoption.to;
        if adoption.is_empty() {
            local.adopted.send_modify(|adopted| adopted.version = to);
            continue;
        }
        if !local.is_led_here() {
            // The shard's leader adopts the change, and this node sees that in its replica.
            let mut done = local.shard.adopted.subscribe();
            let there = *done.borrow_and_update();
            if there > seen {
                local.adopted.send_modify(|adopted| adopted.version = there);
                continue;
            }
            // The wait is bounded because this node may become the leader meanwhile.
            let _ = timeout(RETRY_DELAY, done.changed()).await;
            if !local.has_rows() {
                return true;
            }
            if local.adopted.borrow().ended {
                return false;
            }
            continue;
        }
        match local.execute(Command::Adopt(adoption)).await {
            Ok(_) => {
                local.adopted.send_modify(|adopted| adopted.version = to);
            }
            Err(ExecuteError::Refused(Refusal::AdoptionConflict { version, .. })) => {
                local.adopted.send_modify(|adopted| adopted.version = version);
            }
            Err(ExecuteError::Refused(refusal)) => {
                tracing::error!(%refusal, "a change of the catalog cannot be taken over");
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(ExecuteError::Unavailable(Unavailable::NotLeader | Unavailable::Unanswered)) => {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            // The log accepts no more entries: end the wait of callers, too.
            Err(ExecuteError::Unavailable(Unavailable::Stopping | Unavailable::Failed(_))) => {
                local.adopted.send_modify(|adopted| adopted.ended = true);
                return false;
            }
        }
    }
}
