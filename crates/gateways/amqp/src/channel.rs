//! A channel: what it has consumed, published and not yet settled, and the methods that come on it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base::{HashMap, LeaseGroupId};
use broker::delivery::{
    ConsumerId, Delivery, Event, Events, LeaseSession, Settle, SettleWhat, Settlement, Token,
};
use bytes::Bytes;
use futures_util::Stream;
use tasks::Task;
use tokio::time::Instant;
use topology::Queue;

use crate::codec::frame::ContentHeader;
use crate::codec::frame::FrameKind;
use crate::codec::methods::{
    AccessRequest, AccessRequestOk, BasicPublish, BasicQos, BasicQosOk, ChannelCloseOk,
    ChannelFlow, ChannelFlowOk, ChannelOpen, ChannelOpenOk, ConfirmSelect, ConfirmSelectOk, Method,
    MethodId,
};
use crate::errors::{Exception, Named, ReplyCode};
use crate::publish::Content;
use crate::replies::ReplyName;
use crate::session::{Failure, Session, bad_method, unknown_frame};
use crate::stream::{StreamConsumer, StreamCredit};
use crate::transaction::Transaction;
use crate::unacked::Unacked;

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) generation: u32,
    /// The client was told that it is closed, and has not answered.
    pub(crate) is_closing: bool,
    /// Made when something is consumed for the first time.
    pub(crate) leases: Option<Arc<LeaseSession>>,
    /// What an empty queue name stands for.
    pub(crate) last_queue: Option<Arc<str>>,
    /// Of each consumer that is made from now on; 0: any number.
    pub(crate) prefetch: u16,
    /// Of all consumers together; 0: any number.
    pub(crate) prefetch_together: u16,
    pub(crate) confirms: Option<ConfirmMode>,
    pub(crate) transaction: Option<Transaction>,
    /// A message whose frames have not all come.
    pub(crate) content: Option<Content>,
    pub(crate) consumers: HashMap<Arc<str>, Consumer>,
    pub(crate) tags: HashMap<ConsumerId, Arc<str>>,
    /// Deliveries to a consumer whose making is not answered yet.
    pub(crate) early: Vec<Delivery>,
    pub(crate) unacked: Unacked<Held>,
    /// The next delivery's.
    pub(crate) next_tag: u64,
    /// Not handed over yet.
    pub(crate) settles: Vec<Settle>,
    pub(crate) reply_name: Option<ReplyName>,
    /// Consumers of a queue that the channel itself is deleting: they are told of it after the answer,
    /// which some clients take to come first.
    pub(crate) cancelled: Vec<Arc<str>>,
}

/// Publisher confirms: messages are numbered from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ConfirmMode {
    pub(crate) published: u64,
    /// Up to here the client was answered.
    pub(crate) answered: u64,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    /// None for direct replies.
    pub(crate) queue: Option<Arc<Queue>>,
    pub(crate) no_ack: bool,
    pub(crate) source: Source,
    /// Its queue is being told.
    pub(crate) is_leaving: bool,
    /// How long it may take to answer (`x-consumer-timeout`).
    pub(crate) timeout: Option<Duration>,
}

impl Consumer {
    pub(crate) fn new(queue: Option<Arc<Queue>>, no_ack: bool, source: Source) -> Self {
        let timeout = queue.as_ref().and_then(|queue| answer_within(queue));
        Self { queue, no_ack, source, is_leaving: false, timeout }
    }
}

/// Where a consumer's deliveries come from.
#[derive(Debug)]
pub(crate) enum Source {
    Leases(ConsumerId),
    Stream(#[expect(dead_code, reason = "it reads for as long as it is there")] StreamConsumer),
    Replies,
}

/// A delivery that the client has not answered.
#[derive(Debug)]
pub(crate) enum Held {
    Lease {
        group: LeaseGroupId,
        partition: u32,
        token: Token,
        /// When it must be answered, and how long that was in the beginning.
        due: Option<(Instant, Duration)>,
    },
    /// Nothing is settled in a stream; an answer only makes room for another record.
    Stream(StreamCredit),
}

/// What a channel's lease session tells, with whose it is.
#[derive(Debug)]
pub(crate) struct ChannelEvents {
    pub(crate) channel: u16,
    pub(crate) generation: u32,
    pub(crate) events: Events,
}

impl Stream for ChannelEvents {
    type Item = (u16, u32, Event);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let (channel, generation) = (self.channel, self.generation);
        self.events.poll_recv(context).map(|event| event.map(|event| (channel, generation, event)))
    }
}

impl Channel {
    pub(crate) fn new(generation: u32) -> Self {
        Self {
            generation,
            is_closing: false,
            leases: None,
            last_queue: None,
            prefetch: 0,
            prefetch_together: 0,
            confirms: None,
            transaction: None,
            content: None,
            consumers: HashMap::default(),
            tags: HashMap::default(),
            early: Vec::new(),
            unacked: Unacked::default(),
            next_tag: 1,
            settles: Vec::new(),
            reply_name: None,
            cancelled: Vec::new(),
        }
    }

    /// A queue by its name, or the one declared last if it has none.
    pub(crate) fn queue_name<'a>(&'a self, name: &'a str) -> Result<&'a str, Exception> {
        if !name.is_empty() {
            return Ok(name);
        }
        let no_queue = || Exception::new(ReplyCode::NotFound, "no previously declared queue");
        self.last_queue.as_deref().ok_or_else(no_queue)
    }

    /// Settles of one answer; `None` when it only made room in a stream.
    pub(crate) fn settle_of(held: Held, settlement: Settlement) -> Option<Settle> {
        match held {
            Held::Lease { group, partition, token, .. } => {
                let what = SettleWhat::Lease { partition, token };
                Some(Settle { group, what, settlement })
            }
            Held::Stream(credit) => {
                credit.give_back();
                None
            }
        }
    }

    pub(crate) fn hand_over_settles(&mut self) {
        if let Some(leases) = &self.leases
            && !self.settles.is_empty()
        {
            // Nobody is told when a settle is durable, so nobody waits for it.
            drop(leases.settle(std::mem::take(&mut self.settles)));
        }
    }
}

impl Session {
    /// The channel's lease session; made when it is first needed.
    pub(crate) fn leases(&mut self, number: u16) -> Option<Arc<LeaseSession>> {
        let channel = self.channels.get_mut(&number)?;
        if let Some(leases) = &channel.leases {
            return Some(Arc::clone(leases));
        }
        let leases = Arc::new(self.gateway.broker.lease_session());
        if channel.prefetch_together > 0 {
            leases.limit(Some(u32::from(channel.prefetch_together)));
        }
        if let Some(events) = leases.events() {
            let generation = channel.generation;
            self.events.push(ChannelEvents { channel: number, generation, events });
        }
        channel.leases = Some(Arc::clone(&leases));
        Some(leases)
    }

    /// A running channel, or what is wrong about it.
    fn running(&mut self, number: u16, method: MethodId) -> Result<&mut Channel, Failure> {
        let missing = || Failure {
            channel: 0,
            method,
            exception: Exception::new(ReplyCode::ChannelError, "expected 'channel.open'"),
        };
        self.channels.get_mut(&number).ok_or_else(missing)
    }

    pub(crate) fn channel_method(
        &mut self,
        number: u16,
        frame: &Bytes,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let method = Method::decode(payload).map_err(|error| bad_method(&error, payload))?;
        let id = method.id();
        let fail = |exception| Failure { channel: number, method: id, exception };
        if let Method::ChannelOpen(_) = method {
            return self.open_channel(number);
        }
        let channel = self.running(number, id)?;
        if channel.is_closing {
            match method {
                Method::ChannelCloseOk(_) => {
                    self.channels.remove(&number);
                }
                Method::ChannelClose(_) => self.output.method(number, ChannelCloseOk::default()),
                _ => {}
            }
            return Ok(());
        }
        if let Some(content) = &channel.content {
            return Err(content.unexpected());
        }
        if let Method::BasicPublish(publish) = method {
            return self.begin_content(number, &publish, frame).map_err(fail);
        }
        self.method(number, method).map_err(fail)
    }

    fn open_channel(&mut self, number: u16) -> Result<(), Failure> {
        let fail = |method, exception| Err(Failure { channel: 0, method, exception });
        if self.channels.contains_key(&number) {
            let second = Exception::new(ReplyCode::ChannelError, "second 'channel.open' seen");
            return fail(ChannelOpen::ID, second);
        }
        let (opened, max) = (self.channels.len(), self.negotiated.channel_max);
        if opened >= usize::from(max) {
            let text = format!(
                "number of channels opened ({opened}) has reached the negotiated channel_max \
                 ({max})"
            );
            return fail(MethodId::default(), Exception::new(ReplyCode::NotAllowed, text));
        }
        self.generation += 1;
        self.channels.insert(number, Channel::new(self.generation));
        self.output.method(number, ChannelOpenOk::default());
        Ok(())
    }

    fn method(&mut self, number: u16, method: Method<'_>) -> Result<(), Exception> {
        match method {
            Method::BasicAck(ack) => {
                self.settle(number, ack.delivery_tag, ack.multiple, Settlement::Accept)
            }
            Method::BasicNack(nack) => {
                self.settle(number, nack.delivery_tag, nack.multiple, refusal(nack.requeue))
            }
            Method::BasicReject(reject) => {
                self.settle(number, reject.delivery_tag, false, refusal(reject.requeue))
            }
            Method::BasicQos(qos) => self.qos(number, &qos),
            Method::BasicConsume(consume) => self.consume(number, &consume),
            Method::BasicCancel(cancel) => {
                self.cancel(number, cancel.consumer_tag, cancel.no_wait);
                Ok(())
            }
            // An answer to a cancellation that is not waited for.
            Method::BasicCancelOk(_) => Ok(()),
            Method::BasicGet(get) => self.get(number, &get),
            Method::BasicRecover(recover) => self.recover(number, recover.requeue, true),
            Method::BasicRecoverAsync(recover) => self.recover(number, recover.requeue, false),
            Method::ConfirmSelect(select) => self.confirm_select(number, &select),
            Method::TxSelect(_) => self.tx_select(number),
            Method::TxCommit(_) => self.tx_commit(number),
            Method::TxRollback(_) => self.tx_rollback(number),
            Method::ChannelFlow(flow) => self.flow(number, flow),
            Method::ChannelFlowOk(_) => Ok(()),
            Method::ChannelClose(_) => {
                self.close_channel(number);
                Ok(())
            }
            Method::AccessRequest(AccessRequest { .. }) => {
                let ok = AccessRequestOk { ticket: 1, ..AccessRequestOk::default() };
                self.output.method(number, ok);
                Ok(())
            }
            Method::ExchangeDeclare(declare) => self.declare_exchange(number, &declare),
            Method::ExchangeDelete(delete) => self.delete_exchange(number, &delete),
            Method::ExchangeBind(bind) => self.bind_exchange(number, &bind),
            Method::ExchangeUnbind(unbind) => self.unbind_exchange(number, &unbind),
            Method::QueueDeclare(declare) => self.declare_queue(number, &declare),
            Method::QueueBind(bind) => self.bind_queue(number, &bind),
            Method::QueueUnbind(unbind) => self.unbind_queue(number, &unbind),
            Method::QueuePurge(purge) => self.purge_queue(number, &purge),
            Method::QueueDelete(delete) => self.delete_queue(number, &delete),
            _ => Err(Exception::new(ReplyCode::CommandInvalid, "unimplemented method")),
        }
    }

    fn qos(&mut self, number: u16, qos: &BasicQos<'_>) -> Result<(), Exception> {
        if qos.prefetch_size != 0 {
            let text = format!("prefetch_size!=0 ({})", qos.prefetch_size);
            return Err(Exception::new(ReplyCode::NotImplemented, text));
        }
        if let Some(channel) = self.channels.get_mut(&number) {
            if qos.global {
                channel.prefetch_together = qos.prefetch_count;
                if let Some(leases) = &channel.leases {
                    leases.limit(Some(u32::from(qos.prefetch_count)).filter(|count| *count > 0));
                }
            } else {
                channel.prefetch = qos.prefetch_count;
            }
        }
        self.output.method(number, BasicQosOk::default());
        Ok(())
    }

    fn confirm_select(&mut self, number: u16, select: &ConfirmSelect<'_>) -> Result<(), Exception> {
        if let Some(channel) = self.channels.get_mut(&number) {
            if channel.transaction.is_some() {
                return Err(Exception::precondition_failed(
                    "cannot switch from tx to confirm mode",
                ));
            }
            channel.confirms.get_or_insert_default();
        }
        if !select.no_wait {
            self.output.method(number, ConfirmSelectOk::default());
        }
        Ok(())
    }

    fn flow(&mut self, number: u16, flow: ChannelFlow<'_>) -> Result<(), Exception> {
        if !flow.active {
            return Err(Exception::new(ReplyCode::NotImplemented, "active=false"));
        }
        let ok = ChannelFlowOk { active: true, ..ChannelFlowOk::default() };
        self.output.method(number, ok);
        Ok(())
    }

    // ------------------------------------------------------------------------------- contents

    fn begin_content(
        &mut self,
        number: u16,
        publish: &BasicPublish<'_>,
        frame: &Bytes,
    ) -> Result<(), Exception> {
        if publish.immediate {
            return Err(Exception::new(ReplyCode::NotImplemented, "immediate=true"));
        }
        if *self.gateway.alarm.borrow() {
            // As RabbitMQ does: whoever publishes now is not listened to until there is room.
            self.is_blocked = true;
        }
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.content = Some(Content::new(frame.clone()));
            self.contents += 1;
        }
        Ok(())
    }

    pub(crate) fn content_header(
        &mut self,
        number: u16,
        frame: &Bytes,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let bytes_max = self.gateway.options.message_bytes_max;
        let method = BasicPublish::ID;
        let channel = self.channels.get_mut(&number).ok_or_else(unexpected_content)?;
        if channel.is_closing {
            return Ok(());
        }
        let Some(header) = ContentHeader::decode(payload) else {
            return Err(unknown_frame(FrameKind::Header, payload));
        };
        let Some(content) = &mut channel.content else { return Err(unexpected_content()) };
        if content.header.is_some() || header.weight != 0 {
            return Err(content.unexpected());
        }
        if header.class != method.class {
            let text = format!(
                "expected content header for class {}, got one for class {} instead",
                method.class, header.class
            );
            return Err(unexpected_at(method, text));
        }
        if header.body_bytes > bytes_max {
            let exception = Exception::precondition_failed(format!(
                "message size {} is larger than configured max size {bytes_max}",
                header.body_bytes
            ));
            return Err(Failure { channel: number, method, exception });
        }
        content.header = Some(frame.clone());
        content.missing = header.body_bytes;
        if header.body_bytes == 0 {
            return self.content_complete(number);
        }
        let bytes = header.body_bytes as usize;
        if bytes > base::limits::AMQP_READ_BYTES_MIN {
            self.admit(bytes);
        }
        Ok(())
    }

    pub(crate) fn content_body(
        &mut self,
        number: u16,
        frame: &Bytes,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let method = BasicPublish::ID;
        let channel = self.channels.get_mut(&number).ok_or_else(unexpected_content)?;
        if channel.is_closing {
            return Ok(());
        }
        let Some(content) = &mut channel.content else { return Err(unexpected_content()) };
        if content.header.is_none() {
            return Err(content.unexpected());
        }
        if content.missing < payload.len() as u64 {
            let text = "a content body is longer than its header said";
            return Err(unexpected_at(method, text.to_owned()));
        }
        content.missing -= payload.len() as u64;
        content.body.push(frame.slice_ref(payload));
        if content.missing == 0 { self.content_complete(number) } else { Ok(()) }
    }

    fn content_complete(&mut self, number: u16) -> Result<(), Failure> {
        let content = self.channels.get_mut(&number).and_then(|channel| channel.content.take());
        let Some(content) = content else { return Ok(()) };
        self.contents -= 1;
        self.publish(number, &content).map_err(|exception| Failure {
            channel: number,
            method: BasicPublish::ID,
            exception,
        })
    }

    /// The oldest message that is on its way must arrive in time. Looked at when all that came was
    /// handled: most messages are there whole.
    pub(crate) fn note_content_deadline(&mut self) {
        if self.contents == 0 {
            self.deadline = None;
            return;
        }
        let now = Instant::now();
        let contents = self.channels.values_mut().filter_map(|channel| channel.content.as_mut());
        let began = contents.map(|content| *content.began.get_or_insert(now)).min();
        self.deadline = began.map(|at| at + self.gateway.options.message_arrives_within);
    }

    /// Closes the channels whose deliveries were not answered in time.
    pub(crate) fn time_out_deliveries(&mut self, now: Instant) {
        let mut overdue = Vec::new();
        self.answers_due = None;
        for (number, channel) in &self.channels {
            for held in channel.unacked.iter() {
                let Held::Lease { due: Some((at, within)), .. } = held else { continue };
                if *at <= now {
                    overdue.push((*number, *within));
                    break;
                }
                self.answers_due = Some(self.answers_due.map_or(*at, |first| first.min(*at)));
            }
        }
        for (channel, within) in overdue {
            let text = format!(
                "delivery acknowledgement on channel {channel} timed out. Timeout value used: {} \
                 ms. This timeout value can be configured, see consumers doc guide to learn more",
                within.as_millis()
            );
            let exception = Exception::precondition_failed(text);
            self.fail(Failure { channel, method: MethodId::default(), exception });
        }
    }

    // -------------------------------------------------------------------------------- closing

    /// Ends all that the channel does, at once. The queues that it consumed learn of it beside.
    pub(crate) fn abandon_channel(&mut self, number: u16) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let left = leave(channel);
        self.contents -= usize::from(channel.content.is_some());
        *channel = Channel { is_closing: true, ..Channel::new(channel.generation) };
        self.settling.retain(|settling| *settling != number);
        if self.operation.as_ref().is_some_and(|operation| operation.channel == number) {
            self.operation = None;
        }
        self.leave_queues_beside(left);
    }

    pub(crate) fn abandon_channels(&mut self) {
        // What was published before is not taken back.
        self.hand_over();
        let mut left = Vec::new();
        for channel in self.channels.values_mut() {
            left.extend(leave(channel));
        }
        self.channels.clear();
        self.contents = 0;
        self.settling.clear();
        self.events.clear();
        self.operation = None;
        self.leave_queues_beside(left);
    }

    fn leave_queues_beside(&self, left: Vec<Arc<Queue>>) {
        let Some(vhost) = self.vhost.clone().filter(|_| !left.is_empty()) else { return };
        tasks::spawn(Task::AmqpSessionEnd, async move {
            for queue in left {
                if let Err(fault) = vhost.consumer_left(&queue).await {
                    tracing::warn!(queue = %queue.resource(), %fault, "a consumer left");
                }
            }
        });
    }

    /// Takes all consumers of a channel away; the queues that they consumed.
    pub(crate) fn leave_channel(&mut self, number: u16) -> Vec<Arc<Queue>> {
        let Some(channel) = self.channels.get_mut(&number) else { return Vec::new() };
        self.contents -= usize::from(channel.content.take().is_some());
        leave(channel)
    }
}

impl Content {
    /// Something else came than the rest of the message.
    fn unexpected(&self) -> Failure {
        let text = match self.header {
            None => {
                let class = BasicPublish::ID.class;
                format!(
                    "expected content header for class {class}, got non content header frame instead"
                )
            }
            Some(_) => "expected content body, got non content body frame instead".to_owned(),
        };
        unexpected_at(BasicPublish::ID, text)
    }
}

/// A part of a message came where there is none.
fn unexpected_content() -> Failure {
    let text = "expected method frame, got non method frame instead";
    unexpected_at(MethodId::default(), text.to_owned())
}

fn unexpected_at(method: MethodId, text: String) -> Failure {
    Failure { channel: 0, method, exception: Exception::new(ReplyCode::UnexpectedFrame, text) }
}

/// Its leases come back with its lease session.
fn leave(channel: &mut Channel) -> Vec<Arc<Queue>> {
    channel.hand_over_settles();
    channel.leases = None;
    channel.tags.clear();
    channel.reply_name = None;
    let consumers = channel.consumers.drain().map(|(_, consumer)| consumer);
    consumers
        .filter(|consumer| !consumer.is_leaving)
        .filter_map(|consumer| consumer.queue)
        .collect()
}

/// How long a delivery of this queue may be unanswered.
pub(crate) fn answer_within(queue: &Queue) -> Option<Duration> {
    let ms = queue.settings().consumer_timeout_ms?;
    Some(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}

/// What a negative answer does.
fn refusal(requeue: bool) -> Settlement {
    if requeue { requeued() } else { Settlement::Reject }
}

/// Back in its place, after the back-off that the queue's group may have; the attempt counts.
pub(crate) fn requeued() -> Settlement {
    Settlement::Release { delay_ms: None, count: true }
}
