//! The leader's end of another node's relay: the sessions that it has open here, and the task that sends their
//! events.
//!
//! It ends when the other node begins another relay, when its connection ends or it stops polling, and when
//! this node no longer leads in this term. Then its sessions are suspended: the node may be alive, and present
//! their leases by its next relay. They are closed once its process looks gone, or after
//! [`RELAY_RESUMED_WITHIN`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::{
    RELAY_BATCH_ITEMS_MAX, RELAY_BATCHES_IN_FLIGHT, RELAY_PROCESS_CHECKED_EVERY,
    RELAY_RESUMED_WITHIN, RELAY_SESSIONS_MAX, RELAY_SIGN_EVERY, RELAY_SILENT_AFTER,
    RELAY_UNANSWERED_BYTES_MAX,
};
use base::limits::{LINK_MESSAGE_BYTES_MAX, RELAY_BATCH_BYTES};
use bytes::Bytes;
use cluster::Node;
use consensus::Role;
use dispatch::{Claim, SessionId, Settlement};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use links::{Lane, Message, NodeId, Phase, StatusWatch};
use parking_lot::Mutex;
use shard::delivery::event::{Delivery, Event, EventSender, SessionMessage};
use shard::delivery::handle::{Handle, Message as HandleMessage};
use shard::delivery::options::Settle;
use shard::delivery::unread::UnreadDeliveries;
use tasks::Task;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::delivery_runs::DeliveryRuns;
use super::driver_replies::{
    DriverMessage, PendingReply, RelayReply, RelayedRequest, driver_message,
};
use super::frame::{self, MalformedFrame, RelayId};
use super::items::{DriverReply, RelayCommand, RelayNotification, RequestId};
use super::relay_queue::Batch;
use crate::drivers::is_of_node;

#[derive(Debug)]
pub(super) struct ServedRelay {
    pub(super) relay: RelayId,
    pub(super) from: NodeId,
    driver: Handle,
    state: Mutex<OpenRelay>,
    to_task: mpsc::UnboundedSender<TaskMessage>,
    events: mpsc::UnboundedSender<(SessionId, SessionMessage)>,
    /// Bytes of pending requests.
    unanswered: AtomicUsize,
    room: Notify,
    ending: Notify,
}

#[derive(Debug, Default)]
struct OpenRelay {
    is_over: bool,
    next: u64,
    early: BTreeMap<u64, (Vec<RelayCommand>, Bytes)>,
    sessions: BTreeMap<SessionId, Session>,
    /// Sessions of this relay, once it is over, and of the node's earlier ones. None of them is open.
    suspended: BTreeSet<SessionId>,
    /// Dropped when the take is cancelled.
    takes: BTreeMap<RequestId, oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Session {
    unread: Arc<UnreadDeliveries>,
    /// Bytes sent to it and not read yet.
    bytes: u64,
}

enum TaskMessage {
    Poll(u64, oneshot::Sender<Message>),
    Pending(PendingReply),
}

/// The conditions that end a relay from outside.
pub(super) struct EndConditions {
    pub(super) node: Arc<Node>,
    pub(super) role: watch::Receiver<Role>,
    pub(super) term: u64,
    pub(super) from: NodeId,
    /// Boot number of the other node.
    pub(super) boot: u64,
}

/// The wait for the node's next relay, after this one has ended.
struct ResumptionWait {
    node: Arc<Node>,
    role: watch::Receiver<Role>,
    from: NodeId,
    boot: u64,
}

impl ResumptionWait {
    /// Resolves when the node had time to begin another relay to this leader, or when its process looks gone.
    async fn ends(mut self) {
        // A node cannot begin one while there is no leader.
        let is_led =
            |role: &Role| matches!(role, Role::Leader { .. }) || role.other_leader().is_some();
        let _ = self.role.wait_for(is_led).await;
        let _ = timeout(RELAY_RESUMED_WITHIN, self.process_gone()).await;
    }

    /// Resolves when the other node's process looks gone.
    async fn process_gone(&self) {
        let looks_gone = || {
            let peer = self.node.links().peer(self.from);
            let status = peer.map(|peer| peer.status(Lane::Control));
            status.is_some_and(|it| it.looks_gone(self.boot, world::Instant::now()))
        };
        while !looks_gone() {
            sleep(RELAY_PROCESS_CHECKED_EVERY).await;
        }
    }
}

impl EndConditions {
    fn resumption(&self) -> ResumptionWait {
        let (node, role) = (Arc::clone(&self.node), self.role.clone());
        ResumptionWait { node, role, from: self.from, boot: self.boot }
    }

    /// Resolves when the relay must end.
    async fn ends(mut self) {
        let (node, from) = (self.node, self.from);
        let link = node.links().peer(from).map(|peer| peer.watch(Lane::Control));
        let role = async {
            let leads = Role::Leader { term: self.term };
            let _ = self.role.wait_for(|role| *role != leads).await;
        };
        let link = async {
            match link {
                Some(link) => cut(link, self.boot).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = role => {}
            () = link => {}
        }
    }
}

/// Resolves when this node's own connection to the other one, once established, ends or is to a later process.
async fn cut(mut link: StatusWatch, boot: u64) {
    let mut status = Some(link.get());
    let mut was_connected = false;
    while let Some(now) = status {
        match now.phase {
            Phase::Connected { peer, .. } if peer.at.boot > boot => return,
            Phase::Connected { .. } => was_connected = true,
            _ if was_connected => return,
            _ => {}
        }
        status = link.changed().await;
    }
}

impl ServedRelay {
    /// `suspended`: sessions of the node's former relay.
    pub(super) fn begin(
        relay: RelayId,
        handle: Handle,
        watched: EndConditions,
        suspended: BTreeSet<SessionId>,
    ) -> Arc<Self> {
        let (to_task, inbox) = mpsc::unbounded_channel();
        let (events, sent) = mpsc::unbounded_channel();
        let served = Arc::new(Self {
            relay,
            from: watched.from,
            driver: handle,
            state: Mutex::new(OpenRelay { suspended, ..OpenRelay::default() }),
            to_task,
            events,
            unanswered: AtomicUsize::new(0),
            room: Notify::new(),
            ending: Notify::new(),
        });
        let sender = RelaySender::new(Arc::clone(&served));
        let (resumption, ended) = (watched.resumption(), Arc::clone(&served));
        tasks::spawn(Task::LeaseRelay, async move {
            sender.run(inbox, sent, watched).await;
            resumption.ends().await;
            ended.close_suspended();
        });
        served
    }

    /// The node begins its next relay. Returns the suspended sessions: that one opens or ends them.
    pub(super) fn replace(&self) -> BTreeSet<SessionId> {
        self.end();
        std::mem::take(&mut self.state.lock().suspended)
    }

    /// The node has begun no other relay.
    fn close_suspended(&self) {
        let mut state = self.state.lock();
        for session in std::mem::take(&mut state.suspended) {
            self.driver.send(HandleMessage::Close { session });
        }
    }

    /// Ends the relay: suspends its sessions and drops its messages.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        for session in std::mem::take(&mut state.sessions).into_keys() {
            self.driver.send(HandleMessage::Suspend { session });
            state.suspended.insert(session);
        }
        state.early.clear();
        state.takes.clear();
        drop(state);
        self.ending.notify_one();
        self.room.notify_waiters();
    }

    /// Passes batches to the driver in order. False if the relay is over.
    pub(super) fn accept(
        &self,
        number: u64,
        commands: Vec<RelayCommand>,
        body: Bytes,
    ) -> Result<bool, MalformedFrame> {
        let mut state = self.state.lock();
        if state.is_over {
            return Ok(false);
        }
        let ahead = number.checked_sub(state.next).ok_or(MalformedFrame::TooMuch)?;
        if ahead >= 2 * RELAY_BATCHES_IN_FLIGHT as u64 || state.early.contains_key(&number) {
            return Err(MalformedFrame::TooMuch);
        }
        state.early.insert(number, (commands, body));
        while let Some((commands, mut body)) = {
            let next = state.next;
            state.early.remove(&next)
        } {
            state.next += 1;
            for command in commands {
                self.handle(&mut state, command, &mut body)?;
            }
            if !body.is_empty() {
                return Err(MalformedFrame::Records);
            }
        }
        Ok(true)
    }

    fn handle(
        &self,
        state: &mut OpenRelay,
        command: RelayCommand,
        body: &mut Bytes,
    ) -> Result<(), MalformedFrame> {
        if !command.is_valid() {
            return Err(MalformedFrame::Invalid);
        }
        if command.ids().into_iter().flatten().any(|id| !is_of_node(id, self.from.0)) {
            return Err(MalformedFrame::NotOwned);
        }
        match command {
            RelayCommand::Open { session } => {
                if state.sessions.len() >= RELAY_SESSIONS_MAX {
                    return Err(MalformedFrame::TooMuch);
                }
                let unread = self.driver.unread.unread_of(0);
                let opened = Session { unread: Arc::clone(&unread), bytes: 0 };
                state.suspended.remove(&session);
                if state.sessions.insert(session, opened).is_some() {
                    return Err(MalformedFrame::NotOwned);
                }
                let events = EventSender::Relayed { session, events: self.events.clone() };
                self.driver.send(HandleMessage::Open { session, events, unread });
            }
            RelayCommand::Close { session } => {
                state.sessions.remove(&session);
                self.driver.send(HandleMessage::Close { session });
            }
            RelayCommand::Read { session, bytes } => {
                let Some(open) = state.sessions.get_mut(&session) else { return Ok(()) };
                open.bytes = open.bytes.checked_sub(bytes).ok_or(MalformedFrame::Invalid)?;
                if open.unread.read(bytes as usize) {
                    self.driver.send(HandleMessage::Room { session, connection: 0 });
                }
            }
            RelayCommand::CancelTake { id } => drop(state.takes.remove(&id)),
            RelayCommand::Present { session, group, claims } => {
                let of_node = |claim: &Claim| {
                    claim.consumer() == 0 || is_of_node(claim.consumer(), self.from.0)
                };
                if !claims.iter().all(of_node) {
                    return Err(MalformedFrame::NotOwned);
                }
                let now_ms = self.driver.timeline.now_ms();
                let claims = claims.into_iter().map(|claim| (group, claim.shifted(now_ms)));
                self.driver.send(HandleMessage::Present { session, claims: claims.collect() });
            }
            RelayCommand::Presented => {
                // The driver closes those that were not opened.
                state.suspended.clear();
                self.driver.send(HandleMessage::Presented { node: self.from.0 })
            }
            command => match driver_message(command, body)? {
                DriverMessage::OneWay(message) => self.driver.send(message),
                DriverMessage::Request(RelayedRequest { message, pending, waits_for }) => {
                    if let Some((id, cancelled)) = waits_for {
                        state.takes.insert(id, cancelled);
                    }
                    self.unanswered.fetch_add(pending.weight, Ordering::AcqRel);
                    self.driver.send(message);
                    // The task runs as long as the relay.
                    let _ = self.to_task.send(TaskMessage::Pending(pending));
                }
            },
        }
        Ok(())
    }

    /// Waits while too many bytes of requests are pending.
    pub(super) async fn has_room(&self) {
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            let is_over = self.state.lock().is_over;
            if is_over || self.unanswered.load(Ordering::Acquire) <= RELAY_UNANSWERED_BYTES_MAX {
                return;
            }
            room.await;
        }
    }

    pub(super) fn poll(&self, number: u64, reply: oneshot::Sender<Message>) {
        let _ = self.to_task.send(TaskMessage::Poll(number, reply));
    }

    fn answered(&self, id: RequestId, weight: usize) {
        self.unanswered.fetch_sub(weight, Ordering::AcqRel);
        self.room.notify_waiters();
        self.state.lock().takes.remove(&id);
    }

    /// Deliveries are on their way to the session.
    fn sent(&self, session: SessionId, bytes: u64) {
        if let Some(open) = self.state.lock().sessions.get_mut(&session) {
            open.bytes += bytes;
        }
    }

    /// The delivery cannot be sent: counts it as read and released by the session.
    fn release(&self, session: SessionId, delivery: &Delivery) {
        let bytes = delivery.record.encoded_len();
        tracing::warn!(bytes, to = %self.from, "a record is too large to be sent to another node");
        let (reply, _) = oneshot::channel();
        let settlement = Settlement::Release { delay_ms: None, count: true };
        let settles = vec![Settle { group: delivery.group, what: delivery.lease(), settlement }];
        self.driver.send(HandleMessage::Settle {
            session,
            settles,
            again: false,
            reply: reply.into(),
        });
    }

    /// The session will not get it.
    fn unsend(&self, session: SessionId, bytes: usize) {
        let mut state = self.state.lock();
        let Some(open) = state.sessions.get_mut(&session) else { return };
        open.bytes = open.bytes.saturating_sub(bytes as u64);
        if open.unread.read(bytes) {
            self.driver.send(HandleMessage::Room { session, connection: 0 });
        }
    }
}

/// Output for the other node, in order.
enum RelayOutput {
    Deliveries(SessionId, Vec<Delivery>),
    Taken(RequestId, SessionId, Vec<Delivery>),
    Notification(RelayNotification),
}

/// The task that sends to the other node.
struct RelaySender {
    served: Arc<ServedRelay>,
    out: VecDeque<RelayOutput>,
    polls: BTreeMap<u64, oneshot::Sender<Message>>,
    next: u64,
    /// Time of the last reply, or of the first poll after it.
    since: Instant,
}

impl RelaySender {
    fn new(served: Arc<ServedRelay>) -> Self {
        let (out, polls) = (VecDeque::new(), BTreeMap::new());
        Self { served, out, polls, next: 0, since: Instant::now() }
    }

    async fn run(
        mut self,
        mut inbox: mpsc::UnboundedReceiver<TaskMessage>,
        mut events: mpsc::UnboundedReceiver<(SessionId, SessionMessage)>,
        watched: EndConditions,
    ) {
        let served = Arc::clone(&self.served);
        let mut over = pin!(watched.ends());
        let mut pending = FuturesUnordered::new();
        loop {
            self.reply_to_polls();
            let deadline = match self.polls.is_empty() {
                true => self.since + RELAY_SILENT_AFTER,
                false => self.since + RELAY_SIGN_EVERY,
            };
            tokio::select! {
                biased;
                () = served.ending.notified() => break,
                () = &mut over => break,
                Some(message) = inbox.recv() => match message {
                    TaskMessage::Pending(request) => pending.push(request.answered()),
                    TaskMessage::Poll(number, reply) => {
                        if self.polls.len() >= 2 * RELAY_BATCHES_IN_FLIGHT || number < self.next {
                            break;
                        }
                        if self.polls.is_empty() {
                            self.since = Instant::now();
                        }
                        self.polls.insert(number, reply);
                    }
                },
                Some((id, weight, answer)) = pending.next(), if !pending.is_empty() => {
                    // Events that the driver sent before its reply precede it.
                    while let Ok((session, sent)) = events.try_recv() {
                        self.on_event(session, sent);
                    }
                    self.served.answered(id, weight);
                    self.on_answer(id, answer);
                }
                Some((session, sent)) = events.recv() => self.on_event(session, sent),
                () = sleep_until(deadline) => match self.polls.remove(&self.next) {
                    Some(reply) => self.answer(reply, Batch::default()),
                    // The other node has stopped polling.
                    None => break,
                },
            }
        }
        served.end();
    }

    fn on_event(&mut self, session: SessionId, sent: SessionMessage) {
        let out = match sent {
            SessionMessage::Event(Event::Deliveries(deliveries), bytes) => {
                self.served.sent(session, bytes as u64);
                RelayOutput::Deliveries(session, deliveries)
            }
            SessionMessage::Event(Event::Active { consumer, active }, _) => {
                RelayOutput::Notification(RelayNotification::Active { session, consumer, active })
            }
            SessionMessage::Event(Event::Gone { consumer, reason }, _) => {
                RelayOutput::Notification(RelayNotification::Gone { session, consumer, reason })
            }
            SessionMessage::Notice(notice) => {
                RelayOutput::Notification(RelayNotification::Notice { session, notice })
            }
        };
        self.out.push_back(out);
    }

    fn on_answer(&mut self, id: RequestId, answer: RelayReply) {
        let out = match answer {
            RelayReply::Taken(session, deliveries) => RelayOutput::Taken(id, session, deliveries),
            RelayReply::Plain(answer) => {
                RelayOutput::Notification(RelayNotification::Answer { id, answer })
            }
        };
        self.out.push_back(out);
    }

    /// Replies to pending polls with the queued output.
    fn reply_to_polls(&mut self) {
        while !self.out.is_empty()
            && let Some(reply) = self.polls.remove(&self.next)
        {
            let batch = self.batch();
            self.answer(reply, batch);
        }
    }

    fn answer(&mut self, reply: oneshot::Sender<Message>, batch: Batch) {
        let Batch { items, body, .. } = batch;
        self.next += 1;
        self.since = Instant::now();
        // If the receiver is gone the connection has ended, which ends the relay.
        let _ = reply.send(frame::notifications(&items, body));
    }

    fn batch(&mut self) -> Batch {
        let mut batch = Batch::default();
        while batch.bytes < RELAY_BATCH_BYTES
            && batch.items.len() < RELAY_BATCH_ITEMS_MAX
            && let Some(out) = self.out.pop_front()
        {
            match out {
                RelayOutput::Notification(notification) => {
                    batch.add(frame::encoded(&notification), Vec::new())
                }
                RelayOutput::Deliveries(session, deliveries) => {
                    self.add_deliveries(&mut batch, session, deliveries);
                }
                RelayOutput::Taken(id, session, mut deliveries) => {
                    deliveries.retain(|delivery| {
                        let fits = fits(delivery);
                        if !fits {
                            self.served.release(session, delivery);
                        }
                        fits
                    });
                    let mut body = Vec::new();
                    let now_ms = self.served.driver.timeline.now_ms();
                    let runs = DeliveryRuns::new(&deliveries, now_ms, &mut body);
                    let answer = DriverReply::Taken(Ok(runs));
                    batch.add(frame::encoded(&RelayNotification::Answer { id, answer }), body);
                }
            }
        }
        batch
    }

    /// Adds as many as the batch has room for, at least one.
    fn add_deliveries(
        &mut self,
        batch: &mut Batch,
        session: SessionId,
        mut deliveries: Vec<Delivery>,
    ) {
        let mut bytes = batch.bytes;
        let fits_in = |delivery: &&Delivery| {
            let has_room = bytes < RELAY_BATCH_BYTES;
            bytes += delivery.weight();
            has_room && fits(delivery)
        };
        let count = deliveries.iter().take_while(fits_in).count();
        if count == 0 {
            // The first is too large to be sent at all.
            let delivery = deliveries.remove(0);
            self.served.release(session, &delivery);
            self.served.unsend(session, delivery.weight());
        } else {
            let rest = deliveries.split_off(count);
            let weight = deliveries.iter().map(Delivery::weight).sum::<usize>() as u64;
            let mut body = Vec::new();
            let now_ms = self.served.driver.timeline.now_ms();
            let runs = DeliveryRuns::new(&deliveries, now_ms, &mut body);
            batch.add(
                frame::encoded(&RelayNotification::Deliveries { session, weight, runs }),
                body,
            );
            deliveries = rest;
        }
        if !deliveries.is_empty() {
            self.out.push_front(RelayOutput::Deliveries(session, deliveries));
        }
    }
}

fn fits(delivery: &Delivery) -> bool {
    delivery.record.encoded_len() + 2 * RELAY_BATCH_BYTES < LINK_MESSAGE_BYTES_MAX
}
