//! Lease sessions on a node that does not lead the shard.
//!
//! The shard's inbox has one owner on each node: the driver on the leader, a [`Relay`] on the others. The relay
//! forwards messages of local sessions to the leader, and the leader's events to them. The leader has a session
//! for each of them ([`leader_side`]), which its driver treats like its own.
//!
//! A relay is between two processes and in one term. Sessions, and consumers with their credit, are kept
//! ([`session_registry`]) and continue at the next leader; their leases are presented there ([`leased_records`]).
//!
//! * `items`, `delivery_runs`, `frame`: the messages and their encoding
//! * `pending_requests`: pending requests; `relay_queue`: batches in order; `session_messages`: messages to the leader;
//!   `initial_messages`: the initial messages; `driver_events`: messages from the leader
//! * `leader_side`, `served_relay`, `driver_replies`: the leader's side

mod delivery_runs;
mod driver_events;
mod driver_replies;
mod frame;
mod initial_messages;
mod items;
pub mod leader_side;
mod leased_records;
mod pending_requests;
mod relay_queue;
mod served_relay;
mod session_messages;
mod session_registry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{
    LEASES_PRESENTED_WITHIN, RELAY_BATCH_ITEMS_MAX, RELAY_HEAD_BYTES_MAX, RELAY_IDLE_MAX,
    RELAY_RETRY_EVERY, RELAY_SIGN_EVERY,
};
use base::limits::{LINK_MESSAGE_BYTES_MAX, RELAY_BATCH_BYTES};
use base::{HashMap, HashSet, LeaseGroupId};
use bytes::Bytes;
use cluster::Node;
use consensus::Role;
use dispatch::{Claim, ConsumerId, PushConsumer, SessionId};
use futures_util::future::BoxFuture;
use links::NodeId;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::drivers::is_of_node;
use crate::open_session::Session;

use frame::{BeginRelay, Reply, Request};
use items::{RelayCommand, RequestId};
use leased_records::LeasedRecords;
use pending_requests::{PendingRequest, Waiters};
use relay_queue::{Batch, Leader, LeaderReply, LinkReply, OutboundItem, RelayError, RelayQueue};
use session_registry::{DriverHandover, SessionRegistry};
use shard::Shard;
use shard::delivery::handle::Message;
use shard::error::Unavailable;
use shard::limits::LEASE_CONNECTION_UNREAD_BYTES_MAX;
use shard::timeline::Timeline;
use shard_peers::limits::REMOTE_ANSWERED_WITHIN;

/// Dependencies of a shard's relays, for as long as the node runs.
#[derive(Clone, Debug)]
pub struct RelayContext {
    pub node: Arc<Node>,
    pub shard: Arc<Shard>,
    /// This node's role in the shard's Raft group.
    pub role: watch::Receiver<Role>,
    /// Numbers the attempts to begin, so that a late one is recognized.
    pub attempts: Arc<std::sync::atomic::AtomicU64>,
    pub timeline: Arc<Timeline>,
}

/// Read bytes of a session that are reported in a batch of their own; fewer go with the next batch.
const READ_REPORT_BYTES: u64 = (LEASE_CONNECTION_UNREAD_BYTES_MAX / 8) as u64;

/// Interval of the sweep for expired leases.
const LEASE_EXPIRY_INTERVAL: Duration = Duration::from_secs(10);

/// The owner of the inbox while another node leads.
pub(crate) struct Relay {
    context: RelayContext,
    registry: SessionRegistry,
    leases: LeasedRecords,
    waiters: Waiters,
    /// Bytes delivered to sessions for which the leader has no read report yet.
    owed: BTreeMap<SessionId, u64>,
    /// Sessions that have read them.
    read: BTreeSet<SessionId>,
    /// Messages of other nodes' sessions to this node, which was elected and whose driver is about to begin.
    for_driver: Vec<Message>,
    state: State,
    sweep_at: Instant,
    expire_at: Instant,
    idle_since: Option<Instant>,
    /// The last leader that got the leases held here, and its term.
    presented_to: Option<(NodeId, Option<u64>)>,
    /// Until then a newly elected leader is contacted even if there are no sessions here.
    present_until: Instant,
}

enum State {
    /// No known leader, or waiting until this time for the next attempt.
    Disconnected(Instant),
    Connecting(Leader, BoxFuture<'static, LinkReply>),
    Connected(Box<RelayQueue>),
}

/// Result of a relay's wait.
pub(crate) struct RelayEvent(RelayEventKind);

enum RelayEventKind {
    /// This node's role has changed.
    Role,
    Begun(LinkReply),
    Reply(LeaderReply),
    Time,
}

impl Relay {
    /// Takes over the sessions that the last driver of this node left, their consumers by group, and their
    /// leases.
    pub(crate) fn take_over(
        mut context: RelayContext,
        sessions: HashMap<SessionId, Session>,
        groups: Vec<(LeaseGroupId, Vec<(ConsumerId, PushConsumer)>)>,
        leased: Vec<(LeaseGroupId, Claim)>,
    ) -> Self {
        context.role.mark_unchanged();
        let here = context.node.identity().at.node.0;
        let now = Instant::now();
        let mut registry = SessionRegistry::default();
        let mut never_sent = HashSet::default();
        for (id, mut session) in sessions {
            // Another node's relay to this one is over, which keeps its own sessions.
            if is_of_node(id, here) {
                session.held_back = false;
                let waiting = session.waiting.drain(..);
                never_sent.extend(waiting.map(|(group, assigned)| (group, assigned.token)));
                session.groups.clear();
                session.consumers.clear();
                registry.sessions.insert(id, session);
            }
        }
        for (group, consumers) in groups {
            for (consumer, joined) in consumers {
                registry.add(group, consumer, joined);
            }
        }
        let (mut leases, now_ms) = (LeasedRecords::default(), context.timeline.now_ms());
        for (group, claim) in leased {
            if registry.sessions.contains_key(&claim.session())
                && !never_sent.contains(&(group, claim.token()))
            {
                leases.insert(group, claim, now_ms);
            }
        }
        Self {
            context,
            registry,
            leases,
            waiters: Waiters::default(),
            owed: BTreeMap::new(),
            read: BTreeSet::new(),
            for_driver: Vec::new(),
            state: State::Disconnected(now),
            sweep_at: now,
            expire_at: now + LEASE_EXPIRY_INTERVAL,
            idle_since: None,
            presented_to: None,
            present_until: now + 2 * LEASES_PRESENTED_WITHIN,
        }
    }

    /// This node leads: its driver continues the sessions. Pending requests go to it as messages.
    pub(crate) fn hand_over(mut self) -> DriverHandover {
        self.end(&RelayError::Moved);
        let mut handover = self.registry.hand_over(self.leases.into_claims());
        for (_, entry) in std::mem::take(&mut self.waiters.all) {
            handover.messages.extend(entry.waiting.into_message(Instant::now()));
        }
        handover.messages.extend(self.for_driver);
        handover
    }

    /// Waits for the next event. Cancel safe.
    pub(crate) async fn next_event(&mut self) -> RelayEvent {
        let deadline = self.deadline();
        let event = async {
            match &mut self.state {
                State::Disconnected(_) => std::future::pending().await,
                State::Connecting(_, answered) => RelayEventKind::Begun(answered.await),
                State::Connected(queue) => RelayEventKind::Reply(queue.next_reply().await),
            }
        };
        let role = async {
            if self.context.role.changed().await.is_err() {
                // Consensus has ended, which is handled elsewhere.
                std::future::pending::<()>().await;
            }
        };
        let kind = tokio::select! {
            biased;
            () = role => RelayEventKind::Role,
            kind = event => kind,
            () = sleep_until(deadline) => RelayEventKind::Time,
        };
        RelayEvent(kind)
    }

    /// Time of the next timer.
    fn deadline(&self) -> Instant {
        match &self.state {
            State::Disconnected(retry_at) if self.must_begin() => self.sweep_at.min(*retry_at),
            _ => self.sweep_at,
        }
    }

    pub(crate) fn on(&mut self, RelayEvent(kind): RelayEvent) {
        match kind {
            RelayEventKind::Role => self.on_role(),
            RelayEventKind::Begun(answered) => self.on_begun(answered),
            RelayEventKind::Reply(reply) => self.on_reply(reply),
            RelayEventKind::Time => {}
        }
        self.sweep();
    }

    fn is_used(&self) -> bool {
        !self.registry.is_empty() || !self.waiters.all.is_empty()
    }

    /// Whether a leader must be contacted: for the sessions here, or to present that there are none.
    fn must_begin(&self) -> bool {
        let Some((node, term)) = self.leader() else { return false };
        let knows = self.presented_to.is_some_and(|(known, of_term)| {
            known == NodeId(node) && of_term.zip(term).is_none_or(|(known, now)| known == now)
        });
        self.is_used() || (!knows && Instant::now() < self.present_until)
    }

    /// The other node that leads, and its term.
    fn leader(&self) -> Option<(u64, Option<u64>)> {
        let role = *self.context.role.borrow();
        let term = match role {
            Role::Follower { term, .. } => Some(term),
            _ => None,
        };
        Some((role.other_leader()?, term))
    }

    /// Whether this node leads, or will once it has applied the entries committed before its term.
    fn is_elected(&self) -> bool {
        matches!(*self.context.role.borrow(), Role::Leader { .. })
    }

    fn on_role(&mut self) {
        self.context.role.mark_unchanged();
        self.present_until = Instant::now() + 2 * LEASES_PRESENTED_WITHIN;
        if !self.is_elected() {
            let why = Unavailable::NotLeader;
            std::mem::take(&mut self.for_driver).into_iter().for_each(|it| it.refuse(&why));
        }
        // Without a known leader the former one may still lead.
        let Some((node, term)) = self.leader() else { return };
        let known = match &self.state {
            State::Disconnected(_) => return self.state = State::Disconnected(Instant::now()),
            State::Connecting(leader, _) => leader,
            State::Connected(queue) => &queue.leader,
        };
        let is_same = known.term.zip(term).is_none_or(|(known, now)| known == now);
        if known.node != NodeId(node) || !is_same {
            self.end(&RelayError::Moved);
            self.state = State::Disconnected(Instant::now());
        }
    }

    /// Begins a relay if one is due, and sends queued messages.
    pub(crate) fn advance(&mut self) {
        if let State::Disconnected(retry_at) = &self.state
            && *retry_at <= Instant::now()
            && self.must_begin()
            && let Some((node, term)) = self.leader()
        {
            let (here, shard) = (Arc::clone(&self.context.node), self.context.shard.role().shard());
            let leader = Leader { node: NodeId(node), shard, term, here };
            let boot = leader.here.identity().at.boot;
            let attempt = self.context.attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let begin = Request::Begin(BeginRelay { boot, attempt, term });
            let answered = leader.request(frame::request(&begin));
            self.state = State::Connecting(leader, answered);
        }
        self.flush();
    }

    fn on_begun(&mut self, answered: LinkReply) {
        let disconnected = State::Disconnected(Instant::now() + RELAY_RETRY_EVERY);
        let State::Connecting(mut leader, _) = std::mem::replace(&mut self.state, disconnected)
        else {
            return;
        };
        let begun = answered.map_err(RelayError::from).and_then(|it| Ok(frame::read_reply(it)?));
        match begun {
            Ok((Reply::Begun { relay, term }, ..)) => {
                leader.term = Some(term);
                self.presented_to = Some((leader.node, leader.term));
                let mut queue = Box::new(RelayQueue::new(leader, relay));
                self.queue_initial_messages(&mut queue);
                tracing::debug!(shard = %queue.leader.shard, leader = %queue.leader.node, "leases are relayed");
                self.state = State::Connected(queue);
            }
            // It is not the leader, not yet or not any more.
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "a relay of leases does not begin"),
        }
    }

    /// The relay is over.
    fn end(&mut self, why: &RelayError) {
        if let State::Connected(queue) = &self.state {
            let (shard, leader) = (queue.leader.shard, queue.leader.node);
            tracing::debug!(%shard, %leader, %why, "a relay of leases is over");
        }
        let now = Instant::now();
        self.state = State::Disconnected(now + RELAY_RETRY_EVERY);
        self.owed.clear();
        self.read.clear();
        self.idle_since = None;
        self.waiters.on_lost(now + REMOTE_ANSWERED_WITHIN);
    }

    /// Periodic work.
    fn sweep(&mut self) {
        let now = Instant::now();
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + RELAY_SIGN_EVERY / 2;
        let is_connected = matches!(self.state, State::Connected(_));
        let idle: Vec<RequestId> = self
            .waiters
            .all
            .iter()
            .filter(|(_, entry)| entry.waiting.is_idle() || (!is_connected && entry.until <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.abandon(id, is_connected);
        }
        if !is_connected {
            for reply in self.registry.expired(now) {
                let _ = reply.send(Err(Unavailable::NotLeader.into()));
            }
        }
        if self.expire_at <= now {
            self.expire_at = now + LEASE_EXPIRY_INTERVAL;
            self.leases.expire(self.context.timeline.now_ms());
        }
        let is_idle = is_connected && !self.is_used();
        self.idle_since = is_idle.then(|| self.idle_since.unwrap_or(now));
        if self.idle_since.is_some_and(|since| since + RELAY_IDLE_MAX <= now) {
            self.end(&RelayError::Ended);
        }
    }

    /// Its caller is gone, or it timed out.
    fn abandon(&mut self, id: RequestId, is_connected: bool) {
        let Some(entry) = self.waiters.all.get_mut(&id) else { return };
        if is_connected && entry.sent {
            if let PendingRequest::Take(take) = &mut entry.waiting
                && !std::mem::replace(&mut take.abandoned, true)
            {
                self.send(RelayCommand::CancelTake { id });
            }
            return;
        }
        refuse(&mut self.waiters, &mut self.leases, id);
    }

    // ----------------------------------------------------------------------------------------- sending

    fn send(&mut self, command: RelayCommand) {
        if let State::Connected(queue) = &mut self.state {
            queue.outbound.push_back(OutboundItem::Command(command));
        }
    }

    fn flush(&mut self) {
        let State::Connected(queue) = &mut self.state else { return };
        while queue.may_send() {
            let owes =
                |id: &SessionId| self.owed.get(id).is_some_and(|it| *it >= READ_REPORT_BYTES);
            if queue.outbound.is_empty() && !self.read.iter().any(owes) {
                break;
            }
            let mut batch = Batch::default();
            while batch.items.len() < RELAY_BATCH_ITEMS_MAX / 2
                && let Some(session) = self.read.pop_first()
            {
                let Some(bytes) = self.owed.remove(&session) else { continue };
                batch.add(frame::encoded(&RelayCommand::Read { session, bytes }), Vec::new());
            }
            while batch.items.len() < RELAY_BATCH_ITEMS_MAX
                && batch.bytes < RELAY_BATCH_BYTES
                && let Some(out) = queue.outbound.pop_front()
            {
                let (command, body, request) = match out {
                    OutboundItem::Command(command) => (command, Vec::new(), None),
                    OutboundItem::Request(id) => {
                        let Some(entry) = self.waiters.all.get_mut(&id) else { continue };
                        let Some((command, body)) =
                            entry.waiting.command(id, &self.leases, Instant::now())
                        else {
                            continue;
                        };
                        entry.sent = true;
                        (command, body, Some(id))
                    }
                };
                self.leases.on_sent(&command, self.context.timeline.now_ms());
                let item = frame::encoded(&command);
                let bytes = item.len() + body.iter().map(Bytes::len).sum::<usize>();
                // In addition to the contents of the batch.
                let head_max = RELAY_HEAD_BYTES_MAX - 2 * RELAY_BATCH_BYTES;
                if item.len() > head_max || bytes + 2 * RELAY_BATCH_BYTES > LINK_MESSAGE_BYTES_MAX {
                    tracing::warn!(bytes, "too large to be relayed to the shard's leader");
                    if let Some(id) = request {
                        refuse(&mut self.waiters, &mut self.leases, id);
                    }
                    continue;
                }
                batch.add(item, body);
            }
            if batch.items.is_empty() {
                break;
            }
            queue.send(batch, self.context.shard.catalog_applied());
        }
    }
}

/// The request is abandoned. The outcome of its settles is unknown, so their records are delivered again.
fn refuse(waiters: &mut Waiters, leases: &mut LeasedRecords, id: RequestId) {
    let Some(waiting) = waiters.remove(id) else { return };
    if let Some((session, settles)) = waiting.ends() {
        leases.ended(session, settles);
    }
    waiting.refuse(&Unavailable::NotLeader);
}
