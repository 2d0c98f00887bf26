//! Automatic deletion of queues: with their owner, or with `x-expires` after they were unused on all nodes for that
//! time ([`crate::uses`]). One task watches all queues; a queue is checked at its earliest possible expiry, and not
//! before.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::Notify;
use world::Instant;

use crate::queue::Queue;
use crate::topology::{Inner, Topology};

/// Owner of exclusive queues: a connection or a session of any protocol, by a number that is unique in the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId(pub u64);

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

/// Queues that may expire, by their earliest expiry.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    waiting: Mutex<BinaryHeap<Reverse<Deadline>>>,
    earlier: Notify,
}

#[derive(Debug)]
struct Deadline {
    at: Instant,
    queue: Weak<Queue>,
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Deadline {}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.cmp(&other.at)
    }
}

impl Expiry {
    /// Watches a queue, if it can expire.
    pub(crate) fn watch(&self, queue: &Arc<Queue>) {
        self.watch_since(queue, queue.unused_since().unwrap_or_else(Instant::now));
    }

    /// Watches a queue as if it had last been used at `since`.
    fn watch_since(&self, queue: &Arc<Queue>, since: Instant) {
        let Some(expires) = queue.settings().expires_ms else { return };
        let at = since + Duration::from_millis(expires.unsigned_abs());
        self.waiting.lock().push(Reverse(Deadline { at, queue: Arc::downgrade(queue) }));
        self.earlier.notify_one();
    }

    /// Returns the next queue that may have expired, or the time of the next check.
    fn next(&self, now: Instant) -> Result<Arc<Queue>, Option<Instant>> {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.peek() {
                None => return Err(None),
                Some(Reverse(deadline)) if deadline.at > now => return Err(Some(deadline.at)),
                Some(_) => {}
            }
            let queue = waiting.pop().and_then(|Reverse(deadline)| deadline.queue.upgrade());
            if let Some(queue) = queue.filter(|queue| !queue.is_deleted()) {
                return Ok(queue);
            }
        }
    }
}

/// Returns whether the queue was unused for the time in its settings.
pub(crate) fn is_expired(queue: &Queue) -> bool {
    match (queue.settings().expires_ms, queue.unused_since()) {
        (Some(expires), Some(since)) => {
            since.elapsed() >= Duration::from_millis(expires.unsigned_abs())
        }
        _ => false,
    }
}

/// Deletes queues as they expire, until the topology is dropped.
pub(crate) async fn run(topology: Weak<Inner>, expiry: Arc<Expiry>) {
    loop {
        let at = match expiry.next(Instant::now()) {
            Ok(queue) => {
                let Some(topology) = topology.upgrade().map(Topology) else { return };
                expire(&topology, &expiry, &queue).await;
                continue;
            }
            Err(at) => at,
        };
        if topology.strong_count() == 0 {
            return;
        }
        // Wakes up now and then even if nothing is due, to notice a dropped topology.
        let at = at.unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(at) => {}
            () = expiry.earlier.notified() => {}
        }
    }
}

async fn expire(topology: &Topology, expiry: &Expiry, queue: &Arc<Queue>) {
    if is_expired(queue)
        && let Some(vhost) = topology.vhost(&queue.vhost)
        && let Err(fault) = vhost.end_use(queue, is_expired).await
    {
        tracing::warn!(queue = &*queue.name, vhost = &*queue.vhost, %fault, "an expired queue could not be deleted");
    }
    if queue.is_deleted() {
        return;
    }
    // It was used meanwhile, has a consumer, or is used on another node: check it again later.
    match is_expired(queue) {
        true => expiry.watch_since(queue, Instant::now()),
        false => expiry.watch(queue),
    }
}
