//! The driver: owner of a shard's leases for one term.
//!
//! It waits for the next event, then does one bounded iteration: messages, finished reads and finished commits;
//! then the groups that these touched, a bounded number of them, so that a busy one does not starve the others;
//! then one request with everything that must become durable.
//!
//! Decisions are made by its parts, which own their state and know neither the driver nor (except groups) one
//! another: the driver passes the results of one to the next.
//!
//! * `sessions`: messages of sessions and others
//! * `credit`: credit that sessions split over shards
//! * `serving`: delivery of ready records; `reading`: the reads for it
//! * `settling`: committing settles and replying to them
//! * `dead_letters`, `transfers`: appends in the same log entry
//! * `changed_groups`: groups that were changed by something other than a settle
//! * `driver_queries`: operators' queries and changes; `history`: history of a record
//! * `suspended_sessions`: sessions of nodes whose relay has ended
//! * `terms`: from one term to the next; `shutdown_mark`: from one process to the next

mod changed_groups;
mod credit;
mod dead_letters;
mod driver_queries;
mod fence;
mod history;
mod reading;
mod serving;
mod sessions;
mod settling;
mod shutdown_mark;
mod suspended_sessions;
mod terms;
mod transfers;
mod withholding;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{
    LEASE_GROUP_IDLE_MAX, LEASE_GROUPS_PER_TURN, LEASE_MESSAGES_PER_TURN, LEASE_TURN_TIME,
};
use consensus::{Consensus, Leadership};
use dispatch::{Assignment, Changes};
use futures_util::FutureExt;
use parking_lot::Mutex;
use shard::Shard;
use shard::cpu::CpuPool;
use shard::delivery::handle::{Handle, Inbox, Message};
use shard::delivery::history::HistoryFeed;
use shard::delivery::history::ring::Ring;
use shard::delivery::rates::{AppendRates, Totals};
use shard::delivery::trace_queue::TraceFeed;
use shard::request::Request;
use shard::timeline::Timeline;
use shard::watch::Watch;
use shard_peers::Peers;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use world::{Clock, Workers};

use crate::commit::Commits;
use crate::dead_lettering::{DeadLetterQueue, DeadLettering};
use crate::drivers::first_token;
use crate::groups::Groups;
use crate::groups::view::SeenBefore;
use crate::handover::{DeferredTransfer, Handover};
use crate::overflow::Overflowed;
use crate::plain_appends::AppendPlaces;
use crate::reading::Reader;
use crate::reading::batches::Facts;
use crate::relay::RelayContext;
use crate::sessions::Sessions;
use crate::takes::PendingTake;
use crate::transfer::{Transfer, Transfers};
use crate::waiter::Waiter;
use crate::waiter::repeat::UncommittedSettle;

use fence::Fence;
use suspended_sessions::SuspendedSessions;
use withholding::Withholding;

/// Dependencies of the drivers of all terms.
#[derive(Debug)]
pub struct DriverContext {
    pub shard: Arc<Shard>,
    pub consensus: Consensus,
    pub clock: Arc<dyn Clock>,
    pub workers: Workers,
    pub timeline: Arc<Timeline>,
    pub requests: mpsc::UnboundedSender<Request>,
    pub peers: Arc<Peers>,
    pub handle: Handle,
    /// `None` for a single node.
    pub relaying: Option<RelayContext>,
    /// Limit of a driver's sleep, however far its next deadline is: a change of the wall clock must be noticed
    /// soon, and a timer does not count the time of a suspended machine.
    pub sleep_max: Duration,
}

/// Owns the drivers' inbox, and runs a driver for each term in which this node leads. Messages wait while there
/// is no leader, and are relayed to the driver of another node while that one leads.
pub async fn run(parts: DriverContext, mut inbox: Inbox) {
    let mut left = Handover::default();
    // Records of one key must have the same hash in all terms.
    let facts = Facts::default();
    let (consensus, relaying) = (&parts.consensus, parts.relaying.as_ref());
    while let Some(leadership) = left.wait_for_leadership(consensus, &mut inbox, relaying).await {
        let begun = Instant::now();
        if let Some(ground) = relaying
            && !left.receive_presented(ground, &parts.shard, &leadership, &mut inbox).await
        {
            return;
        }
        let leadership = Arc::new(leadership);
        let driver = Driver::resume(&parts, facts.clone(), left, &leadership, inbox);
        tracing::debug!(term = leadership.term(), took = ?begun.elapsed(), "delivery begins");
        match driver.run(&parts.consensus, &leadership).await {
            Some((messages, handover)) => (inbox, left) = (messages, handover),
            None => return,
        }
    }
}

/// Result of a driver's wait.
enum WaitOutcome {
    Busy,
    /// The term is over.
    Lost,
    /// There will be no more messages.
    Stopped,
}

/// Purpose of a request to the log.
enum Purpose {
    Settles(Vec<Waiter>),
    DeadLettering(DeadLettering),
    Transfer(Transfer),
    Overflow(Overflowed),
    /// The other shards are fenced.
    Fence,
    /// They are fenced for withholdings with lower numbers.
    Resolution {
        below: u64,
    },
}

/// The driver of one term.
struct Driver {
    term: u64,
    leadership: Arc<Leadership>,
    /// This node; `None` for a single node.
    here: Option<u64>,
    /// Records that earlier terms may have delivered without a counted attempt.
    seen: Option<SeenBefore>,
    /// The last settle of the log is the mark of a clean shutdown.
    is_marked: bool,
    shard: Arc<Shard>,
    /// For times that are written into records. All waiting uses the timeline.
    clock: Arc<dyn Clock>,
    timeline: Arc<Timeline>,
    published: Arc<AppendRates>,
    totals: Arc<Totals>,
    history: Arc<Mutex<Ring>>,
    feed: Option<HistoryFeed>,
    traces: TraceFeed,
    watch: Arc<Watch>,
    inbox: Inbox,
    sleep_max: Duration,

    groups: Groups,
    sessions: Sessions,
    suspended: SuspendedSessions,
    reader: Reader,
    commits: Commits<Purpose>,
    dead_letters: DeadLetterQueue,
    transfers: Transfers,
    fence: Fence,
    peers: Arc<Peers>,
    /// For other shards' entries.
    withholdings: Vec<Withholding>,
    /// Pending fence of withholdings whose sessions have ended. Dropping it ends the attempt.
    resolution: Option<oneshot::Sender<()>>,
    /// For the driver of the next term.
    given_back: Vec<DeferredTransfer>,
    /// Settles that this term did not make durable.
    lost: Vec<UncommittedSettle>,
    places: AppendPlaces,
    /// Taken records that are not yet all in memory.
    takes: Vec<PendingTake>,

    sweep_at: Instant,
    /// End of the iteration's time slice: other tasks of the thread must not wait for a long backlog.
    turn_ends: Instant,
    /// Reused by each iteration.
    changes: Changes,
    assigned: Vec<Assignment>,
}

/// Interval of the sweep for idle groups.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

impl Driver {
    /// Creates a driver with the state that the one of an earlier term left.
    fn resume(
        parts: &DriverContext,
        facts: Facts,
        mut left: Handover,
        leadership: &Arc<Leadership>,
        inbox: Inbox,
    ) -> Self {
        let DriverContext { shard, clock, workers, timeline, requests, handle, sleep_max, .. } =
            parts;
        let term = leadership.term();
        let watch = Arc::new(shard.watchers.watch());
        let (sessions, counts) =
            (std::mem::take(&mut left.sessions), std::mem::take(&mut left.counts));
        // Otherwise another node may have leased the same records to other consumers.
        let claims_hold = left.term >= leadership.since();
        // The leases of a process that crashed are unknown, and so are those of another leader: the claims that
        // its consumers present do not cover all of its deliveries.
        let is_clean = left.term == 0 && parts.relaying.is_none() && shard.ended_cleanly();
        let seen = match (claims_hold, is_clean) {
            (true, _) => left.seen,
            (false, true) => None,
            (false, false) => Some(SeenBefore { term }),
        };
        let groups = Groups::new(
            Arc::clone(shard),
            Arc::clone(&watch),
            Arc::clone(&handle.standings),
            handle.feed.is_some() || handle.history.lock().remembers(),
            first_token(term),
            seen,
            counts,
        );
        // Not the pool of producers: a read would queue behind all of them.
        let cpu = CpuPool::new(workers.clone());
        let mut driver = Self {
            term,
            seen,
            is_marked: is_clean,
            leadership: Arc::clone(leadership),
            here: parts.relaying.as_ref().map(|ground| ground.node.identity().at.node.0),
            shard: Arc::clone(shard),
            clock: Arc::clone(clock),
            timeline: Arc::clone(timeline),
            published: Arc::clone(&handle.published),
            totals: Arc::clone(&handle.totals),
            history: Arc::clone(&handle.history),
            feed: handle.feed.clone(),
            traces: handle.traces.clone(),
            watch,
            inbox,
            sleep_max: *sleep_max,
            groups,
            sessions: Sessions::resume(sessions, shard.role().shard()),
            suspended: SuspendedSessions::default(),
            reader: Reader::new(Arc::clone(shard), cpu, facts),
            commits: Commits::new(requests.clone()),
            dead_letters: DeadLetterQueue::new(Arc::clone(shard), Arc::clone(&handle.routers)),
            transfers: Transfers::default(),
            fence: Fence::Needed,
            peers: Arc::clone(&parts.peers),
            withholdings: Vec::new(),
            resolution: None,
            given_back: Vec::new(),
            lost: Vec::new(),
            places: AppendPlaces::new(Arc::clone(shard), Arc::clone(&parts.peers)),
            takes: Vec::new(),
            sweep_at: Instant::now() + SWEEP_EVERY,
            turn_ends: Instant::now(),
            changes: Changes::default(),
            assigned: Vec::new(),
        };
        if !claims_hold {
            left.present_leases();
        }
        driver.take_over(left.groups, left.transfers, claims_hold);
        driver.suspend_relayed();
        let mut presented = left.presented;
        for message in left.introduced {
            match message {
                // Claims are sorted by group once all are here.
                Message::Present { claims, .. } => presented.extend(claims),
                message => driver.handle(message),
            }
        }
        driver.present(presented);
        left.presented_by.into_iter().for_each(|node| driver.on_presented(node));
        for message in left.messages {
            driver.handle(message);
        }
        driver
    }

    /// Runs until the term is over, and returns the state for the next driver. `None`: it was stopped, or all
    /// senders are gone.
    async fn run(
        mut self,
        consensus: &Consensus,
        leadership: &Leadership,
    ) -> Option<(Inbox, Handover)> {
        let mut lost = pin!(leadership.lost());
        if self.is_marked && !self.take_mark(lost.as_mut()).await {
            return Some(self.wind_up(consensus).await);
        }
        self.groups.load_attentive();
        loop {
            let stopped = match self.wait(lost.as_mut()).await {
                WaitOutcome::Lost => return Some(self.wind_up(consensus).await),
                WaitOutcome::Stopped => true,
                WaitOutcome::Busy => !self.drain(),
            };
            if stopped {
                self.finish().await;
                return None;
            }
            self.turn();
            if self.is_turn_over() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Waits for the next event and handles it.
    async fn wait(&mut self, lost: Pin<&mut impl Future<Output = ()>>) -> WaitOutcome {
        let watch = Arc::clone(&self.watch);
        let sleep = self.sleep();
        let busy = self.groups.queued() > 0 && matches!(self.fence, Fence::Closed);
        tokio::select! {
            // Sources that `drain` does not cover come first.
            biased;
            () = lost => return WaitOutcome::Lost,
            () = watch.ready() => self.groups.on_appended(None),
            message = self.inbox.recv() => match message {
                None | Some(Message::Stop) => return WaitOutcome::Stopped,
                Some(message) => self.handle(message),
            },
            Some(done) = self.commits.done(), if self.commits.is_in_flight() => {
                self.on_committed(done);
            }
            Some(done) = self.reader.done(), if self.reader.is_reading() => self.on_read(done),
            () = sleep => {}
            () = tokio::task::yield_now(), if busy => {}
        }
        WaitOutcome::Busy
    }

    /// Handles all further events that are pending. False: stop.
    fn drain(&mut self) -> bool {
        self.turn_ends = Instant::now() + LEASE_TURN_TIME;
        for _ in 0..LEASE_MESSAGES_PER_TURN {
            match self.inbox.try_recv() {
                Ok(Message::Stop) => return false,
                Ok(message) => self.handle(message),
                Err(_) => break,
            }
        }
        while let Some(done) = self.commits.try_done() {
            self.on_committed(done);
        }
        self.drain_reads();
        true
    }

    /// Whether the term is over or about to end: requests to the log are refused from now on.
    fn is_term_over(&self) -> bool {
        self.leadership.lost().now_or_never().is_some()
    }

    /// Whether the iteration's time slice is used up.
    fn is_turn_over(&self) -> bool {
        Instant::now() >= self.turn_ends
    }

    fn drain_reads(&mut self) {
        while self.reader.is_reading()
            && !self.is_turn_over()
            && let Some(done) = self.reader.try_done()
        {
            self.on_read(done);
        }
    }

    fn turn(&mut self) {
        self.on_timer();
        // Reads from memory finish at once, and then their groups are served again.
        for _ in 0..2 {
            if self.groups.queued() == 0 || !self.is_fenced() {
                break;
            }
            for _ in 0..LEASE_GROUPS_PER_TURN.min(self.groups.queued()) {
                let Some(group) = self.groups.next_queued() else { break };
                self.serve(group);
                if self.is_turn_over() {
                    break;
                }
            }
            self.drain_reads();
            if self.is_turn_over() {
                break;
            }
        }
        self.send();
        self.commit();
        self.start_dead_lettering();
        self.sweep();
    }

    fn on_timer(&mut self) {
        let now = Instant::now();
        self.groups.on_timer(self.timeline.now_ms(), now);
        self.dead_letters.on_timer(now);
    }

    /// Until the next deadline; pending for ever if there is none.
    fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let now = Instant::now();
        let due = self.groups.next_deadline().map(|due_ms| {
            let wait_ms = due_ms.saturating_sub(self.timeline.now_ms()).max(0) as u64;
            now + Duration::from_millis(wait_ms).min(self.sleep_max)
        });
        // Before the fence is closed no take is served.
        let takes =
            self.groups.next_take_deadline().filter(|_| matches!(self.fence, Fence::Closed));
        let sweep = (!self.groups.is_empty()).then_some(self.sweep_at);
        let due = [due, takes, self.dead_letters.due_at(), self.commits.due_at(), sweep];
        let due = due.into_iter().flatten().min();
        async move {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Commits all settles, and waits for requests in flight.
    async fn finish(mut self) {
        self.end_fences();
        self.commit_all();
        while let Some(done) = self.commits.done().await {
            self.on_committed(done);
        }
        self.mark_end().await;
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_EVERY;
        self.groups.unload_idle(LEASE_GROUP_IDLE_MAX, now);
        if self.groups.is_empty() {
            self.reader.forget_batches();
        }
        self.reader.forget_gone();
        for (session, connection) in self.sessions.with_room() {
            self.on_room(session, connection);
        }
    }
}
