//! A leader's offers of a snapshot: the first one begins the transfer, each is answered with its progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tasks::Task;
use tokio::task::AbortHandle;
use world::Instant;

use super::fetching::{FetchError, Source};
use crate::consensus::Consensus;
use crate::encoding::{Position, VoteRecord};
use crate::message::{self, OfferReply, Refusal, Reply, SnapshotOffer};
use crate::peers::MessageTarget;
use crate::types::Vote;

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
pub(super) struct Fetch {
    pub(super) from: MessageTarget,
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
    pub(super) fn leader(&self) -> Vote {
        message::vote_of(self.offer.lock().0)
    }

    pub(super) fn is_at(&self, (bytes, of_bytes): (u64, u64)) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.of_bytes.store(of_bytes, Ordering::Relaxed);
    }

    fn under_way(&self) -> OfferReply {
        let (bytes, of_bytes) = (&self.bytes, &self.of_bytes);
        let (bytes, of_bytes) = (bytes.load(Ordering::Relaxed), of_bytes.load(Ordering::Relaxed));
        OfferReply::UnderWay { bytes, of_bytes }
    }
}

impl Source for Fetch {
    fn target(&self) -> &MessageTarget {
        &self.from
    }

    fn is_wanted(&self) -> bool {
        self.offer.lock().1.elapsed() < OFFERED_WITHIN
    }
}

impl Reception {
    /// A segment has arrived: resets the failures.
    pub(super) fn made_progress(&self) {
        self.state.lock().failures = 0;
    }

    fn ended(&self, fetch: &Arc<Fetch>, result: &Result<(), FetchError>) {
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
    pub(super) fn is_fetching(&self) -> bool {
        let state = self.state.lock();
        state.fetching.as_ref().is_some_and(|(_, task)| !task.is_finished())
    }

    /// Stops fetching.
    pub(crate) fn stop(&self) {
        if let Some((_, task)) = self.state.lock().fetching.take() {
            task.abort();
        }
    }
}

impl Consensus {
    pub(crate) async fn answer_offer(
        &self,
        from: u64,
        offer: SnapshotOffer,
    ) -> Result<Reply, Refusal> {
        let SnapshotOffer { leader, last, address } = offer;
        let last = last.ok_or_else(|| Refusal::Malformed("it offers nothing".to_owned()))?;
        let own = self.vote();
        if own > message::vote_of(leader) {
            return Ok(Reply::Offered(OfferReply::HigherVote(VoteRecord::from(&own))));
        }
        if self.has(last) {
            // Counted from here on like an acknowledged append.
            self.snapshots.durable().await.map_err(|_| Refusal::Stopped)?;
            return Ok(Reply::Offered(OfferReply::Has));
        }
        let source = MessageTarget { node: from, address };
        Ok(Reply::Offered(self.fetch(source, leader)))
    }

    fn vote(&self) -> Vote {
        use openraft::async_runtime::WatchReceiver;
        self.server.borrow_watched().vote
    }

    /// Whether the log, or the snapshot before it, has this entry.
    pub(super) fn has(&self, last: Position) -> bool {
        let purged = self.journal.purged_id();
        let entry = self.journal.entry_id(last.index);
        purged.is_some_and(|id| id.index >= last.index)
            || entry.is_some_and(|id| id.term == last.term)
    }

    /// Continues to fetch the offered snapshot, or begins to.
    fn fetch(&self, from: MessageTarget, leader: VoteRecord) -> OfferReply {
        let mut state = self.reception.state.lock();
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
        let (consensus, fetched) = (self.clone(), Arc::clone(&fetch));
        let fetching = tasks::spawn(Task::SnapshotFetching, async move {
            let result = consensus.fetch_snapshot(&fetched).await;
            consensus.reception.ended(&fetched, &result);
        });
        let under_way = fetch.under_way();
        state.fetching = Some((fetch, fetching.abort_handle()));
        under_way
    }
}
