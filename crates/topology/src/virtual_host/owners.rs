//! Open owners of exclusive queues.

use std::sync::Arc;

use base::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::queue::{OwnerId, Queue};

/// A vhost and one of its queues.
type QueueName = (Arc<str>, Arc<str>);

/// Open owners, and the queues that are deleted with each.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    open: Mutex<HashMap<OwnerId, HashSet<QueueName>>>,
    /// Queues whose deletion with their owners failed.
    left: Mutex<Vec<(OwnerId, QueueName)>>,
    more_left: Notify,
}

impl Owners {
    pub(crate) fn open(&self, owner: OwnerId) {
        self.open.lock().insert(owner, HashSet::default());
    }

    /// Removes an owner. Returns its queues.
    pub(crate) fn close(&self, owner: OwnerId) -> Vec<QueueName> {
        self.open.lock().remove(&owner).into_iter().flatten().collect()
    }

    /// Keeps a queue whose deletion failed, for a retry.
    pub(crate) fn leave(&self, owner: OwnerId, queue: QueueName) {
        self.left.lock().push((owner, queue));
        self.more_left.notify_one();
    }

    pub(crate) fn take_left(&self) -> Vec<(OwnerId, QueueName)> {
        std::mem::take(&mut *self.left.lock())
    }

    /// Waits until a deletion has failed; may return spuriously.
    pub(crate) async fn left(&self) {
        self.more_left.notified().await;
    }

    /// Returns false if the owner is gone already.
    pub(crate) fn add(&self, owner: OwnerId, queue: &Queue) -> bool {
        let mut open = self.open.lock();
        let Some(queues) = open.get_mut(&owner) else { return false };
        queues.insert((Arc::clone(&queue.vhost), Arc::clone(&queue.name)));
        true
    }

    pub(crate) fn remove(&self, owner: OwnerId, queue: &Queue) {
        if let Some(queues) = self.open.lock().get_mut(&owner) {
            queues.remove(&(Arc::clone(&queue.vhost), Arc::clone(&queue.name)));
        }
    }
}
