//! Notifies waiting requests of this gateway that a shard's leader changed.
//!
//! Without it, a fetch from a partition that another node now leads would wait in vain, and so would a member
//! of a group that this node no longer coordinates.

use std::future::pending;
use std::sync::Weak;

use broker::{Broker, LeaderChanges};
use consumer_groups::Coordinators;
use tasks::Task;
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug)]
pub(crate) struct LeaderWatch {
    /// Number of changes; `None` on a single node.
    changes: Option<watch::Receiver<u64>>,
    task: Option<JoinHandle<()>>,
}

impl LeaderWatch {
    /// Must be called within a runtime.
    pub(crate) fn start(broker: &Broker, coordinators: Weak<Coordinators>) -> Self {
        if broker.is_alone() {
            return Self { changes: None, task: None };
        }
        let (count, changes) = watch::channel(0);
        let watching = notify(broker.leader_changes(), coordinators, count);
        let task = broker.vital(Task::KafkaLeaders, watching);
        Self { changes: Some(changes), task: Some(task) }
    }

    /// Subscribes to changes from now on.
    pub(crate) fn changes(&self) -> Changes {
        Changes(self.changes.clone().map(|mut changes| {
            changes.mark_unchanged();
            changes
        }))
    }
}

impl Drop for LeaderWatch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Runs until it is cancelled.
async fn notify(
    mut changes: LeaderChanges,
    coordinators: Weak<Coordinators>,
    count: watch::Sender<u64>,
) {
    loop {
        changes.next().await;
        // Dropping the groups cancels this task too.
        let Some(coordinators) = coordinators.upgrade() else { return pending().await };
        coordinators.forget_lost();
        count.send_modify(|count| *count += 1);
    }
}

/// A subscription of a waiting request.
#[derive(Debug)]
pub(crate) struct Changes(Option<watch::Receiver<u64>>);

impl Changes {
    /// Returns once some shard has another leader, or none. Never returns on a single node.
    pub(crate) async fn next(&mut self) {
        if let Some(changes) = &mut self.0
            && changes.changed().await.is_ok()
        {
            return;
        }
        pending().await
    }
}
