//! Queues that may expire, by time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use world::Instant;

use crate::queue::Queue;

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
    pub(crate) fn watch_since(&self, queue: &Arc<Queue>, since: Instant) {
        let Some(expires) = queue.settings().expires_ms else { return };
        let at = since + Duration::from_millis(expires.unsigned_abs());
        self.waiting.lock().push(Reverse(Deadline { at, queue: Arc::downgrade(queue) }));
        self.earlier.notify_one();
    }

    /// Returns the next queue that may have expired, or the time of the next check.
    pub(crate) fn next(&self, now: Instant) -> Result<Arc<Queue>, Option<Instant>> {
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

    /// Waits until a queue is watched; may return spuriously.
    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }
}
