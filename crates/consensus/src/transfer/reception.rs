//! The transfer of another member's snapshot to this one: its attempts and its progress.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use world::Instant;

use crate::encoding::VoteRecord;
use crate::engine::Vote;
use crate::message::{self, OfferReply};
use crate::peers::MessageTarget;

/// A transfer without an offer for this long ends: the leader is gone, or does not want it.
const OFFERED_WITHIN: Duration = Duration::from_secs(20);
/// Longest pause after failed attempts. It grows until an attempt makes progress.
const AFTER_FAILURE_MAX: Duration = Duration::from_secs(60);

/// The transfer to this member: one snapshot at a time.
#[derive(Debug, Default)]
pub(crate) struct Reception {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    fetching: Option<(Arc<Fetch>, AbortHandle)>,
    /// Failed attempts since the last segment arrived.
    failures: u32,
    not_before: Option<Instant>,
}

/// An attempt to fetch a snapshot from one node.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) from: MessageTarget,
    offer: Mutex<(VoteRecord, Instant)>,
    bytes: AtomicU64,
    of_bytes: AtomicU64,
}

impl Fetch {
    fn new(from: MessageTarget, leader: VoteRecord) -> Self {
        let offer = Mutex::new((leader, Instant::now()));
        Self { from, offer, bytes: AtomicU64::new(0), of_bytes: AtomicU64::new(0) }
    }

    fn offered_again(&self, leader: VoteRecord) {
        *self.offer.lock() = (leader, Instant::now());
    }

    /// The vote by whose authority it is installed.
    pub(crate) fn leader(&self) -> Vote {
        message::vote_of(self.offer.lock().0)
    }

    pub(crate) fn is_at(&self, (bytes, of_bytes): (u64, u64)) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.of_bytes.store(of_bytes, Ordering::Relaxed);
    }

    fn under_way(&self) -> OfferReply {
        let (bytes, of_bytes) = (&self.bytes, &self.of_bytes);
        let (bytes, of_bytes) = (bytes.load(Ordering::Relaxed), of_bytes.load(Ordering::Relaxed));
        OfferReply::UnderWay { bytes, of_bytes }
    }

    pub(crate) fn is_offered(&self) -> bool {
        self.offer.lock().1.elapsed() < OFFERED_WITHIN
    }
}

impl Reception {
    /// A segment has arrived: resets the failures.
    pub(crate) fn made_progress(&self) {
        self.state.lock().failures = 0;
    }

    pub(crate) fn ended(&self, fetch: &Arc<Fetch>, result: &Result<(), impl fmt::Display>) {
        let mut state = self.state.lock();
        if state.fetching.as_ref().is_some_and(|(own, _)| Arc::ptr_eq(own, fetch)) {
            state.fetching = None;
        }
        let node = fetch.from.node;
        match result {
            Ok(()) => {
                (state.failures, state.not_before) = (0, None);
                tracing::info!(node, "a snapshot of another member is installed");
            }
            Err(error) => {
                let pause = Duration::from_secs(1 << state.failures.min(6)).min(AFTER_FAILURE_MAX);
                state.failures = state.failures.saturating_add(1);
                state.not_before = Some(Instant::now() + pause);
                tracing::warn!(node, %error, "a snapshot of another member is not fetched");
            }
        }
    }

    /// Whether another member's snapshot is being fetched.
    pub(crate) fn is_fetching(&self) -> bool {
        let state = self.state.lock();
        state.fetching.as_ref().is_some_and(|(_, task)| !task.is_finished())
    }

    /// Stops fetching.
    pub(crate) fn stop(&self) {
        if let Some((_, task)) = self.state.lock().fetching.take() {
            task.abort();
        }
    }

    /// Replies to an offer of this node. `begin` starts the attempt, unless one is in progress or was just made.
    pub(crate) fn offered(
        &self,
        from: MessageTarget,
        leader: VoteRecord,
        begin: impl FnOnce(&Arc<Fetch>) -> AbortHandle,
    ) -> OfferReply {
        let mut state = self.state.lock();
        if let Some((fetch, task)) = &state.fetching {
            // An attempt that panicked has not reported its end.
            if fetch.from.node == from.node && !task.is_finished() {
                fetch.offered_again(leader);
                return fetch.under_way();
            }
            // Another node leads by now. The received segments stay, and need not be fetched again.
            task.abort();
        }
        state.fetching = None;
        if state.not_before.is_some_and(|at| Instant::now() < at) {
            return OfferReply::UnderWay { bytes: 0, of_bytes: 0 };
        }
        let fetch = Arc::new(Fetch::new(from, leader));
        let task = begin(&fetch);
        let under_way = fetch.under_way();
        state.fetching = Some((fetch, task));
        under_way
    }
}
