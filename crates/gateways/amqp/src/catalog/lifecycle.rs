//! Queues that go by themselves: exclusive ones with their connection, and those with `x-expires`
//! once nobody has used them for so long. One task watches over all of them; a queue is looked at
//! when it could have expired at the earliest, and not before.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::Notify;
use world::Instant;

use super::queue::Queue;
use super::{Catalog, CatalogInner};

/// A client's connection, as far as its exclusive queues go: its number in the node, which no other has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// A vhost and a queue of it.
type QueueName = (Arc<str>, Arc<str>);

/// Open connections, and the queues that go with each.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<HashMap<ConnectionId, HashSet<QueueName>>>,
}

impl Connections {
    pub(super) fn open(&self, connection: ConnectionId) {
        self.open.lock().insert(connection, HashSet::default());
    }

    /// What goes with it.
    pub(super) fn close(&self, connection: ConnectionId) -> Vec<QueueName> {
        self.open.lock().remove(&connection).into_iter().flatten().collect()
    }

    /// `false`: the connection is gone already.
    pub(super) fn add(&self, connection: ConnectionId, queue: &Queue) -> bool {
        let mut open = self.open.lock();
        let Some(queues) = open.get_mut(&connection) else { return false };
        queues.insert((Arc::clone(&queue.vhost), Arc::clone(&queue.name)));
        true
    }

    pub(super) fn remove(&self, connection: ConnectionId, queue: &Queue) {
        if let Some(queues) = self.open.lock().get_mut(&connection) {
            queues.remove(&(Arc::clone(&queue.vhost), Arc::clone(&queue.name)));
        }
    }
}

/// Queues that may expire, by when that may be.
#[derive(Debug, Default)]
pub(super) struct Expiry {
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
    /// Watches over a queue, if it can expire.
    pub(super) fn watch(&self, queue: &Arc<Queue>) {
        let Some(expires) = queue.settings().expires_ms else { return };
        let since = queue.unused_since().unwrap_or_else(Instant::now);
        let at = since + Duration::from_millis(expires.unsigned_abs());
        self.waiting.lock().push(Reverse(Deadline { at, queue: Arc::downgrade(queue) }));
        self.earlier.notify_one();
    }

    /// The next queue whose time may have come, or when to ask again.
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

/// Whether nobody has used it for as long as its settings say.
fn is_expired(queue: &Queue) -> bool {
    match (queue.settings().expires_ms, queue.unused_since()) {
        (Some(expires), Some(since)) => {
            since.elapsed() >= Duration::from_millis(expires.unsigned_abs())
        }
        _ => false,
    }
}

/// Deletes queues as they expire, until the catalog is gone.
pub(super) async fn run(catalog: Weak<CatalogInner>, expiry: Arc<Expiry>) {
    loop {
        let at = match expiry.next(Instant::now()) {
            Ok(queue) => {
                let Some(catalog) = catalog.upgrade().map(Catalog) else { return };
                expire(&catalog, &expiry, &queue).await;
                continue;
            }
            Err(at) => at,
        };
        if catalog.strong_count() == 0 {
            return;
        }
        // Looks up now and then even if nothing is due: the catalog may be gone.
        let at = at.unwrap_or_else(|| Instant::now() + Duration::from_secs(60));
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(at) => {}
            () = expiry.earlier.notified() => {}
        }
    }
}

async fn expire(catalog: &Catalog, expiry: &Expiry, queue: &Arc<Queue>) {
    if is_expired(queue)
        && let Some(vhost) = catalog.vhost(&queue.vhost)
        && let Err(fault) = vhost.delete_if(queue, is_expired).await
    {
        tracing::warn!(queue = %queue.resource(), %fault, "an expired queue could not be deleted");
    }
    if queue.is_deleted() {
        return;
    }
    // It was used meanwhile, or has a consumer: then this is looked at again in as much time.
    expiry.watch(queue);
}
