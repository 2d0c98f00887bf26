//! Who owns a shard's leases for one term, and how everyone reaches it.
//!
//! It waits for whatever comes first, then does one bounded turn: what sessions said, what was
//! read, what became durable; then the groups that this touched, a bounded number of them, so that
//! a busy one does not starve the others; then one request of all that must be durable.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use base::limits::{
    LEASE_GROUP_IDLE_MAX, LEASE_GROUPS_PER_TURN, LEASE_MESSAGES_PER_TURN, LEASE_TURN_TIME,
};
use base::{HashMap, HashSet, LeaseGroupId, Offset, PartitionId, TopicId};
use consensus::{Consensus, Leadership};
use dispatch::{Assignment, Changes, ConsumerId, Pools, SessionId, Token};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use world::{Clock, Workers};

use crate::cpu::CpuPool;
use crate::request::Request;
use crate::shard::Shard;
use crate::timeline::Timeline;
use crate::watch::Watch;

use super::batches::{Batches, Facts};
use super::commit::{Committed, Waiter};
use super::dead_letter::Routers;
use super::group::Group;
use super::hand_out::PendingTake;
use super::handle::{Handle, Inbox, Message};
use super::handover::Handover;
use super::overflow::Overflowed;
use super::rates::{Counts, Published};
use super::reading::ReadDone;
use super::sessions::Session;
use super::standings::Standings;
use super::transfer::PendingTransfer;

/// What the drivers of all terms work with.
pub(crate) struct Parts {
    pub(crate) shard: Arc<Shard>,
    pub(crate) consensus: Consensus,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) workers: Workers,
    pub(crate) timeline: Arc<Timeline>,
    pub(crate) requests: mpsc::UnboundedSender<Request>,
    pub(crate) handle: Handle,
    /// How long a driver sleeps at most, however far its next deadline is: the wall clock may be set, which
    /// has to be noticed soon, and the machine may be suspended, which a timer does not count.
    pub(crate) sleep_max: Duration,
}

/// Owns the drivers' inbox, and makes a driver for each term that this node leads in. Messages wait while
/// there is none.
pub(crate) async fn run(parts: Parts, mut inbox: Inbox) {
    let mut left = Handover::default();
    // Records of one key meet in leases of an earlier term, too.
    let facts = Facts::default();
    while let Some(leadership) = left.wait_for_leadership(&parts.consensus, &mut inbox).await {
        let begun = Instant::now();
        let mut driver = Driver::new(&parts, facts.clone(), leadership.term(), inbox);
        driver.resume(left, &leadership);
        tracing::debug!(term = leadership.term(), took = ?begun.elapsed(), "delivery begins");
        match driver.run(&parts.consensus, &leadership).await {
            Some((messages, handover)) => (inbox, left) = (messages, handover),
            None => return,
        }
    }
}

/// What a driver waited for.
enum Woken {
    Busy,
    /// The term is over.
    Lost,
    /// There will be no more messages.
    Stopped,
}

/// Of a token, the bits that count the leases of a group in one term; those above are the term's.
pub(super) const TOKENS_PER_TERM_BITS: u32 = 40;

/// Delivers for one term.
pub(crate) struct Driver {
    pub(super) shard: Arc<Shard>,
    /// For what is written into records. Whatever is waited for is on the timeline.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timeline: Arc<Timeline>,
    pub(super) requests: mpsc::UnboundedSender<Request>,
    pub(super) routers: Arc<Routers>,
    pub(super) standings: Arc<Standings>,
    pub(super) published: Arc<Published>,
    pub(super) watch: Arc<Watch>,
    /// Not the pool of producers: a read would wait behind all of them.
    pub(super) cpu: CpuPool,
    pub(super) inbox: Inbox,
    sleep_max: Duration,
    /// Where the tokens of this term begin.
    pub(super) first_token: Token,

    pub(super) groups: HashMap<LeaseGroupId, Group>,
    pub(super) by_topic: HashMap<TopicId, Vec<LeaseGroupId>>,
    /// What is kept of groups that are not in `groups` now: counters, and the next token. Of some, since
    /// before this term.
    pub(super) retired: HashMap<LeaseGroupId, (Counts, u64)>,
    pub(super) sessions: HashMap<SessionId, Session>,
    pub(super) pools: Pools,
    pub(super) next_consumer: ConsumerId,
    pub(super) next_engine: u64,

    /// Groups to serve, each once.
    pub(super) queue: VecDeque<LeaseGroupId>,
    /// Groups that have something to make durable, each once.
    pub(super) changed: Vec<LeaseGroupId>,
    /// When a group has to be ticked, on the timeline.
    pub(super) deadlines: BTreeSet<(i64, LeaseGroupId)>,
    pub(super) take_deadlines: BTreeSet<(Instant, LeaseGroupId)>,

    pub(super) batches: Batches,
    pub(super) facts: Facts,
    pub(super) reads: FuturesUnordered<BoxFuture<'static, ReadDone>>,
    /// Single records that are being read.
    pub(super) record_reads: HashSet<(PartitionId, Offset)>,
    /// Records that are gone, for as long as somebody may still ask.
    pub(super) lost: HashSet<(PartitionId, Offset)>,
    /// Sessions with something to send at the end of the turn.
    pub(super) outgoing: Vec<SessionId>,
    /// Sessions whose next delivery is being read.
    pub(super) waiting: BTreeSet<SessionId>,
    pub(super) pending_takes: Vec<PendingTake>,
    pub(super) pending_transfers: Vec<PendingTransfer>,

    pub(super) commits: FuturesUnordered<BoxFuture<'static, Committed>>,
    pub(super) next_request: u64,
    pub(super) settles_under_way: usize,
    pub(super) waiters: Vec<Waiter>,
    pub(super) groups_with_dead: BTreeSet<LeaseGroupId>,
    pub(super) dead_letter_at: Option<Instant>,
    /// When what changed is made durable at the latest, though nobody waits for it.
    pub(super) settle_at: Option<Instant>,

    sweep_at: Instant,
    /// When the turn is over: who waits for the thread is not to wait for a backlog that is read.
    turn_ends: Instant,
    /// Used again from turn to turn.
    pub(super) changes: Changes,
    pub(super) assigned: Vec<Assignment>,
}

/// How often groups are looked through for those that nobody uses.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

impl Driver {
    fn new(parts: &Parts, facts: Facts, term: u64, inbox: Inbox) -> Self {
        let Parts { shard, clock, workers, timeline, requests, handle, sleep_max, .. } = parts;
        let watch = Arc::new(shard.watchers.watch());
        Self {
            shard: Arc::clone(shard),
            clock: Arc::clone(clock),
            timeline: Arc::clone(timeline),
            requests: requests.clone(),
            routers: Arc::clone(&handle.routers),
            standings: Arc::clone(&handle.standings),
            published: Arc::clone(&handle.published),
            watch,
            cpu: CpuPool::new(workers.clone()),
            inbox,
            sleep_max: *sleep_max,
            first_token: term << TOKENS_PER_TERM_BITS | 1,
            groups: HashMap::default(),
            by_topic: HashMap::default(),
            retired: HashMap::default(),
            sessions: HashMap::default(),
            pools: Pools::new(),
            next_consumer: 1,
            next_engine: 1,
            queue: VecDeque::new(),
            changed: Vec::new(),
            deadlines: BTreeSet::new(),
            take_deadlines: BTreeSet::new(),
            batches: Batches::default(),
            facts,
            reads: FuturesUnordered::new(),
            record_reads: HashSet::default(),
            lost: HashSet::default(),
            outgoing: Vec::new(),
            waiting: BTreeSet::new(),
            pending_takes: Vec::new(),
            pending_transfers: Vec::new(),
            commits: FuturesUnordered::new(),
            next_request: 0,
            settles_under_way: 0,
            waiters: Vec::new(),
            groups_with_dead: BTreeSet::new(),
            dead_letter_at: None,
            settle_at: None,
            sweep_at: Instant::now() + SWEEP_EVERY,
            turn_ends: Instant::now(),
            changes: Changes::default(),
            assigned: Vec::new(),
        }
    }

    /// Runs until the term is over, and answers with what it leaves to the next driver; `None`: it was
    /// told to stop, or nobody is left who could tell it anything.
    async fn run(
        mut self,
        consensus: &Consensus,
        leadership: &Leadership,
    ) -> Option<(Inbox, Handover)> {
        self.load_attentive();
        let mut lost = pin!(leadership.lost());
        loop {
            let stopped = match self.wait(lost.as_mut()).await {
                Woken::Lost => return Some(self.wind_up(consensus).await),
                Woken::Stopped => true,
                Woken::Busy => !self.drain(),
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

    /// One event, whichever comes first.
    async fn wait(&mut self, lost: Pin<&mut impl Future<Output = ()>>) -> Woken {
        let watch = Arc::clone(&self.watch);
        let sleep = self.sleep();
        let busy = !self.queue.is_empty();
        tokio::select! {
            // What is not looked at between two waits comes first. The rest is drained then.
            biased;
            () = lost => return Woken::Lost,
            () = watch.ready() => self.appended(None),
            message = self.inbox.recv() => match message {
                None | Some(Message::Stop) => return Woken::Stopped,
                Some(message) => self.handle(message),
            },
            Some(done) = self.commits.next(), if !self.commits.is_empty() => self.committed(done),
            Some(done) = self.reads.next(), if !self.reads.is_empty() => self.was_read(done),
            () = sleep => {}
            () = tokio::task::yield_now(), if busy => {}
        }
        Woken::Busy
    }

    /// Whatever else is there already: with it the turn begins. False when it is to stop.
    fn drain(&mut self) -> bool {
        self.turn_ends = Instant::now() + LEASE_TURN_TIME;
        for _ in 0..LEASE_MESSAGES_PER_TURN {
            match self.inbox.try_recv() {
                Ok(Message::Stop) => return false,
                Ok(message) => self.handle(message),
                Err(_) => break,
            }
        }
        while !self.commits.is_empty()
            && let Some(Some(done)) = self.commits.next().now_or_never()
        {
            self.committed(done);
        }
        self.drain_reads();
        true
    }

    /// Whether the rest has to wait for the next turn.
    pub(super) fn is_turn_over(&self) -> bool {
        Instant::now() >= self.turn_ends
    }

    fn drain_reads(&mut self) {
        while !self.reads.is_empty()
            && !self.is_turn_over()
            && let Some(Some(done)) = self.reads.next().now_or_never()
        {
            self.was_read(done);
        }
    }

    fn turn(&mut self) {
        self.look_at_the_clock();
        // What is read from memory is there at once, and then its group is served again.
        for _ in 0..2 {
            for _ in 0..LEASE_GROUPS_PER_TURN.min(self.queue.len()) {
                let Some(group) = self.queue.pop_front() else { break };
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

    fn look_at_the_clock(&mut self) {
        let now_ms = self.timeline.now_ms();
        while let Some(&(due_ms, group)) = self.deadlines.first()
            && due_ms <= now_ms
        {
            self.deadlines.pop_first();
            if let Some(found) = self.groups.get_mut(&group) {
                found.deadline = None;
            }
            self.enqueue(group);
        }
        let now = Instant::now();
        while let Some(&(due, group)) = self.take_deadlines.first()
            && due <= now
        {
            self.take_deadlines.pop_first();
            self.enqueue(group);
        }
        if self.dead_letter_at.is_some_and(|due| due <= now) {
            self.dead_letter_at = None;
        }
    }

    /// Until something is due. Pending for ever when nothing will be.
    fn sleep(&self) -> impl Future<Output = ()> + use<> {
        let now = Instant::now();
        let due = self.deadlines.first().map(|&(due_ms, _)| {
            let wait_ms = due_ms.saturating_sub(self.timeline.now_ms()).max(0) as u64;
            now + Duration::from_millis(wait_ms).min(self.sleep_max)
        });
        let takes = self.take_deadlines.first().map(|&(due, _)| due);
        let sweep = (!self.groups.is_empty()).then_some(self.sweep_at);
        // While enough are under way, their end is what is waited for.
        let settle = self.settle_at.filter(|_| self.may_settle());
        let due = [due, takes, self.dead_letter_at, settle, sweep].into_iter().flatten().min();
        async move {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        }
    }

    pub(super) fn handle(&mut self, message: Message) {
        match message {
            Message::Open { session, events, unread } => self.open(session, events, unread),
            Message::Close { session } => self.close(session),
            Message::Consume { session, group, options, reply } => {
                let _ = reply.send(self.consume(session, group, &options));
            }
            Message::Grant { session, consumer, credit } => self.grant(session, consumer, credit),
            Message::SetCredit { session, consumer, credit } => {
                self.set_credit(session, consumer, credit);
            }
            Message::Limit { session, records } => self.limit(session, records),
            Message::Cancel { session, consumer, reply } => {
                self.cancel(session, consumer);
                // What was handed out before is in its channel before the answer.
                self.send();
                let _ = reply.send(());
            }
            Message::Take { session, group, options, reply } => {
                self.take(session, group, options, reply);
            }
            Message::Settle { session, settles, reply } => self.settle(session, &settles, reply),
            Message::Transfer { session, settles, batches, reply } => {
                self.transfer(session, settles, batches, reply);
            }
            Message::Room { session } => self.has_room(session),
            Message::Moved { group, partition, sought } => self.moved(group, partition, sought),
            Message::Overflowed { batches, answers, reply } => {
                self.dead_letter_refused(Overflowed::new(batches, answers, reply));
            }
            Message::Ask(question) => self.answer_question(question),
            Message::Stop => {}
        }
    }

    /// The group will be served in this turn or a later one.
    pub(super) fn enqueue(&mut self, group: LeaseGroupId) {
        if let Some(found) = self.groups.get_mut(&group)
            && !std::mem::replace(&mut found.queued, true)
        {
            self.queue.push_back(group);
        }
    }

    /// Makes durable what was settled until now, and waits for what is under way.
    async fn finish(mut self) {
        self.commit_all();
        while let Some(done) = self.commits.next().await {
            self.committed(done);
        }
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_EVERY;
        let mut unused = Vec::new();
        for (id, group) in &mut self.groups {
            if !group.is_idle() {
                group.idle_since = None;
            } else if now - *group.idle_since.get_or_insert(now) >= LEASE_GROUP_IDLE_MAX {
                unused.push(*id);
            }
        }
        for group in unused {
            self.unload(group);
        }
        if self.groups.is_empty() {
            self.batches.clear();
        }
        self.lost.clear();
    }
}
