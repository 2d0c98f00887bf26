//! Deadlines of groups: one heap for all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep_until;
use world::Instant;

use crate::Text;

#[derive(Debug, Default)]
pub(crate) struct Alarms {
    heap: Mutex<BinaryHeap<Reverse<(Instant, Text)>>>,
    /// Notified when an alarm was set before all others.
    sooner: Notify,
}

impl Alarms {
    pub(crate) fn set(&self, at: Instant, group: Text) {
        let mut heap = self.heap.lock();
        let is_first = heap.peek().is_none_or(|Reverse((first, _))| at < *first);
        heap.push(Reverse((at, group)));
        drop(heap);
        if is_first {
            self.sooner.notify_one();
        }
    }

    pub(crate) fn take_due(&self) -> Option<(Instant, Text)> {
        let mut heap = self.heap.lock();
        match heap.peek() {
            Some(Reverse((at, _))) if *at <= Instant::now() => heap.pop().map(|Reverse(due)| due),
            _ => None,
        }
    }

    /// Returns when an alarm is due.
    pub(crate) async fn due(&self) {
        loop {
            let first = self.heap.lock().peek().map(|Reverse((at, _))| *at);
            let Some(at) = first else {
                self.sooner.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = sleep_until(at) => return,
                () = self.sooner.notified() => {}
            }
        }
    }
}
