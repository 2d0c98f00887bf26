//! Gives batches their offsets, and makes one proposal of all waiting requests.
//!
//! The leader assigns a batch's offset before it is proposed, so that the written bytes are final: consumers are
//! served the journal's own bytes. So its view is ahead of the machine's: `PendingState` has the ends and the producers'
//! sequences of all pending proposals. The machine has the final decision: it rejects an entry that does not fit,
//! alike on every replica.
//!
//! A batch with some duplicate records is written without them. Where reading its ids or rebuilding it takes long,
//! the request is set aside until that is done ([`partial`]), and others do not wait for it.
//!
//! Batches of a unit for partitions of other shards go into outboxes ([`units`]). The unit waits while one of those
//! is full ([`waiting_units`]), and other requests do not wait for it.
//!
//! Rows forwarded by another node may come again, and are appended once ([`forwarded_rows`]).
//!
//! Transactions of Kafka's producers: [`transactions`].
//!
//! Records of a partition that moves to this shard keep their offsets ([`moves`]).
//!
//! Batching needs no timer: while proposals are pending, requests join the next one.

mod forwarded_rows;
mod limits;
mod moves;
mod partial;
mod pending_state;
mod proposal;
mod rejected_proposal;
mod term;
mod transactions;
mod units;
mod waiting_units;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{LEADERLESS_HOLD, MAJORITY_AWAITED_FOR};
use cluster::Node;
use consensus::{Consensus, Leadership, ProposeError};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use world::Clock;

use crate::cpu::CpuPool;
use crate::dedup::Dedup;
use crate::error::Unavailable;
use crate::majority;
use crate::request::Request;
use crate::state_machine::Shard;
use rejected_proposal::RejectedProposal;
use waiting_units::WaitingUnits;

/// Owns the queue of requests. Its decisions are valid for one term ([`term`]); between two terms requests wait.
pub struct Sequencer {
    shard: Arc<Shard>,
    consensus: Consensus,
    /// `None` where the node is alone.
    node: Option<Arc<Node>>,
    clock: Arc<dyn Clock>,
    inbox: mpsc::UnboundedReceiver<Request>,
    /// False once every sender of requests is gone.
    open: bool,
    dedup: Dedup,
    /// Proposals with unknown outcome were abandoned: some of them may be in the log.
    is_in_doubt: bool,
    /// Time from which requests count as waiting for this node to lead.
    leaderless_since: Instant,
    cpu: CpuPool,
    /// Requests set aside until their ids are read, or their batches rebuilt without copies.
    aside: FuturesUnordered<BoxFuture<'static, Request>>,
    /// Units that wait for room in an outbox.
    held: WaitingUnits,
    /// Time in the log never runs backwards, whatever the clock does.
    now_ms: i64,
    drained: Vec<Request>,
}

/// Delay before a term is retried that rejected proposals without ending.
const SAME_TERM_DELAY: Duration = Duration::from_millis(10);

impl fmt::Debug for Sequencer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequencer").finish_non_exhaustive()
    }
}

impl Sequencer {
    pub fn new(
        shard: Arc<Shard>,
        consensus: Consensus,
        node: Option<Arc<Node>>,
        clock: Arc<dyn Clock>,
        cpu: CpuPool,
        inbox: mpsc::UnboundedReceiver<Request>,
    ) -> Self {
        Self {
            shard,
            consensus,
            node,
            clock,
            inbox,
            open: true,
            dedup: Dedup::default(),
            is_in_doubt: false,
            leaderless_since: Instant::now(),
            cpu,
            aside: FuturesUnordered::new(),
            held: WaitingUnits::default(),
            now_ms: 0,
            drained: Vec::new(),
        }
    }

    /// Runs until every sender of requests is gone and all proposals are answered.
    pub async fn run(mut self) {
        let mut refused = Vec::new();
        let mut former = 0;
        while self.open || !refused.is_empty() || !self.aside.is_empty() {
            match self.next_leadership(&mut refused).await {
                Ok(leadership) => {
                    let caught_up = self.catch_up_with_the_catalog(&leadership, &mut refused).await;
                    if let Err(error) = caught_up {
                        return self.refuse_all(refused, &error).await;
                    }
                    if std::mem::take(&mut self.is_in_doubt) || former < leadership.since() {
                        // The state has the ids appended by another node, and those of abandoned proposals.
                        self.dedup.begin(&self.shard, self.clock.now_ms()).await;
                    }
                    if std::mem::replace(&mut former, leadership.term()) == leadership.term() {
                        tokio::time::sleep(SAME_TERM_DELAY).await;
                    }
                    refused = self.lead(leadership, refused).await;
                }
                Err(error) => return self.refuse_all(refused, &error).await,
            }
        }
    }

    /// Waits until this node leads. Requests wait as well, for [`LEADERLESS_HOLD`]. They are rejected at once where
    /// another node leads, and after [`MAJORITY_AWAITED_FOR`] where this node is cut off from a majority.
    async fn next_leadership(
        &mut self,
        refused: &mut Vec<RejectedProposal>,
    ) -> Result<Leadership, ProposeError> {
        let consensus = self.consensus.clone();
        let mut leadership = pin!(consensus.leadership());
        let mut role = consensus.role();
        loop {
            let hold = MAJORITY_AWAITED_FOR.saturating_sub(self.leaderless_since.elapsed());
            let mut absent = pin!(majority_is_absent(self.node.clone(), consensus.clone(), hold));
            tokio::select! {
                biased;
                found = &mut leadership => return found,
                _ = consensus.led_elsewhere() => {}
                () = &mut absent => {
                    tracing::warn!(
                        shard = %self.shard.role().shard(),
                        "no majority of nodes is connected: requests are refused until one is"
                    );
                }
                () = sleep(LEADERLESS_HOLD) => {
                    tracing::warn!("the shard has no leader: requests are refused until it has one");
                }
            }
            self.refuse_waiting(refused);
            role.borrow_and_update();
            loop {
                tokio::select! {
                    biased;
                    found = &mut leadership => return found,
                    // Requests received without a leader may still find one after this change.
                    Ok(()) = role.changed() => break,
                    received = self.inbox.recv() => self.refuse_received(received)?,
                }
            }
        }
    }

    /// Waits until this node's copy of the catalog has all topics and groups that the rows have, or until the term
    /// ends. An older copy lacks the settings of recent topics, so appends would ignore their windows and limits.
    /// Requests wait for [`LEADERLESS_HOLD`], as for a leader, and are rejected afterwards.
    async fn catch_up_with_the_catalog(
        &mut self,
        leadership: &Leadership,
        refused: &mut Vec<RejectedProposal>,
    ) -> Result<(), ProposeError> {
        let shard = Arc::clone(&self.shard);
        let consensus = self.consensus.clone();
        let mut caught_up = pin!(shard.catalog_has_rows());
        let mut lost = pin!(leadership.lost());
        let mut ended = pin!(consensus.ended());
        let mut overdue = pin!(sleep(LEADERLESS_HOLD));
        let mut is_overdue = false;
        loop {
            tokio::select! {
                biased;
                () = &mut caught_up => return Ok(()),
                () = &mut lost => return Ok(()),
                _ = &mut ended => return Ok(()),
                () = &mut overdue, if !is_overdue => {
                    is_overdue = true;
                    tracing::warn!(
                        shard = %self.shard.role().shard(),
                        "this node leads the shard, but its copy of the catalog is behind: requests are refused until \
                         it has caught up"
                    );
                    self.refuse_waiting(refused);
                }
                received = self.inbox.recv(), if is_overdue => self.refuse_received(received)?,
            }
        }
    }

    /// Rejects the requests that waited for too long.
    fn refuse_waiting(&mut self, refused: &mut Vec<RejectedProposal>) {
        self.leaderless_since = Instant::now();
        self.held.give_all_back();
        self.fail_refused(std::mem::take(refused));
    }

    /// Rejects a request that no term accepts now. Fails once all senders of requests are gone.
    fn refuse_received(&mut self, received: Option<Request>) -> Result<(), ProposeError> {
        match received {
            Some(Request::MayWait(may)) => self.held.may_wait(may),
            Some(request) => request.refuse(&Unavailable::NotLeader),
            None => return Err(ProposeError::Stopping),
        }
        Ok(())
    }

    /// Fails proposals that no term will accept any more.
    fn fail_refused(&mut self, refused: Vec<RejectedProposal>) {
        if let Some(first) = refused.first() {
            self.dedup.forget_from(first.ticket);
        }
        for RejectedProposal { ticket, .. } in refused {
            self.shard.pending.fail(ticket, &Unavailable::NotLeader);
        }
    }

    /// Rejects all requests: consensus has ended, or the node is about to.
    async fn refuse_all(mut self, refused: Vec<RejectedProposal>, error: &ProposeError) {
        self.held.close();
        self.fail_refused(refused);
        let why = Unavailable::from(error);
        self.aside.clear();
        while let Some(request) = self.inbox.recv().await {
            request.refuse(&why);
        }
    }
}

/// Resolves after `hold`, once no majority of the voters is connected. Never where the node is alone.
async fn majority_is_absent(node: Option<Arc<Node>>, consensus: Consensus, hold: Duration) {
    let Some(node) = node else { return std::future::pending().await };
    majority::absent_after(&node, hold, || consensus.members()).await;
}
