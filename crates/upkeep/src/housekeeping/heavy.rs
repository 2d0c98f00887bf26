//! Limits work that keeps the disk busy for long: one shard of the node compacts at a time, in the order of requests.
//! A shard that waits for its slot continues with everything else.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The heavy work of a node, with a slot for one shard.
#[derive(Clone, Debug)]
pub(super) struct HeavyWork(Arc<Semaphore>);

/// The slot of a shard, held until dropped.
pub(super) type HeavyWorkPermit = OwnedSemaphorePermit;

type PermitFuture = Pin<Box<dyn Future<Output = Result<HeavyWorkPermit, AcquireError>> + Send>>;

/// The place of a shard in the queue for a slot.
#[derive(Default)]
pub(super) struct QueuedWork {
    work: HeavyWork,
    waiting: Option<PermitFuture>,
}

impl Default for HeavyWork {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl QueuedWork {
    pub(super) fn in_line(work: &HeavyWork) -> Self {
        Self { work: work.clone(), waiting: None }
    }

    /// Returns the slot if it is free for this shard. Otherwise the shard keeps its place until the next call.
    pub(super) fn take(&mut self) -> Option<HeavyWorkPermit> {
        let work = &self.work.0;
        let waiting =
            self.waiting.get_or_insert_with(|| Box::pin(Arc::clone(work).acquire_owned()));
        let taken = waiting.now_or_never()?;
        self.waiting = None;
        taken.ok()
    }

    /// Gives up the place, since the shard has no work.
    pub(super) fn leave(&mut self) {
        self.waiting = None;
    }
}

impl fmt::Debug for QueuedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedWork").field("waits", &self.waiting.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_granted_one_at_a_time_in_the_order_of_requests() {
        let work = HeavyWork::default();
        let [mut a, mut b, mut c] = [(); 3].map(|()| QueuedWork::in_line(&work));
        let turn = a.take().expect("it is free");
        assert!(b.take().is_none() && c.take().is_none());
        drop(turn);
        assert!(a.take().is_none() && c.take().is_none(), "it is the turn of b");
        let turn = b.take().expect("it asked first");
        b.leave();
        c.leave();
        drop(turn);
        let turn = a.take().expect("c has left");
        assert!(c.take().is_none());
        drop(turn);
        assert!(c.take().is_some());
    }
}
