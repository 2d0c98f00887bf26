//! Keeps the rows of a shard as the catalog wants them: which topics there are, how many partitions they
//! have, and which lease groups.
//!
//! The shard's log says up to which version of the catalog that is so ([`machine::catalog::feed`]). What
//! changed since then goes into the log in one entry, or in some if it is much.

use std::sync::{Arc, Weak};
use std::time::Duration;

use machine::{Command, Refusal};
use tokio::time::timeout;

use crate::error::{ExecuteError, Unavailable};
use crate::local_shard::LocalShard;
use crate::shard::Shard;

/// Changes that one entry takes over.
const CHANGES_PER_ENTRY: usize = 20_000;
/// Before another try, when the shard's log takes nothing.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Runs until either is gone.
pub(crate) async fn run(catalog: Arc<Shard>, local: Weak<LocalShard>) {
    let mut versions = catalog.versions.subscribe();
    drop(catalog);
    loop {
        versions.borrow_and_update();
        let Some(local) = local.upgrade() else { return };
        let goes_on = keep_up(&local).await;
        drop(local);
        if !goes_on {
            // The part that failed reports the reason; this task must not report another one first.
            while versions.changed().await.is_ok() {}
            return;
        }
        if versions.changed().await.is_err() {
            return;
        }
    }
}

/// Takes over all that changed. False once the shard takes no more requests.
async fn keep_up(local: &LocalShard) -> bool {
    loop {
        let seen = local.adopted.borrow().version;
        let next = local.read(|view| {
            let mut adoption = view.catalog.adoption(local.id(), seen, CHANGES_PER_ENTRY)?;
            // Nothing between the two was for this shard.
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
            // The shard's leader does it, and this node sees that in its copy.
            let mut done = local.shard.adopted.subscribe();
            let there = *done.borrow_and_update();
            if there > seen {
                local.adopted.send_modify(|adopted| adopted.version = there);
                continue;
            }
            // Or this node leads by then.
            let _ = timeout(AGAIN_AFTER, done.changed()).await;
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
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(ExecuteError::Unavailable(Unavailable::NotLeader | Unavailable::Unanswered)) => {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            // The log takes no more entries: end the wait of callers, too.
            Err(ExecuteError::Unavailable(Unavailable::Stopping | Unavailable::Failed(_))) => {
                local.adopted.send_modify(|adopted| adopted.ended = true);
                return false;
            }
        }
    }
}
