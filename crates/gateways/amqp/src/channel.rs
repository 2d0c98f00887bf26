//! A channel: its consumers, publishes and unsettled deliveries, and the release of all of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base::{HashMap, LeaseGroupId};
use broker::delivery::{
    ConsumerId, Delivery, Event, Events, LeaseSession, SessionUser, Settle, SettleWhat, Settlement,
    Token,
};
use futures_util::Stream;
use tasks::Task;
use tokio::time::Instant;
use topology::Queue;

use crate::answer_timeout::answer_within;
use crate::codec::table::FieldTable;
use crate::content::Content;
use crate::errors::{Exception, NamedEntity, ReplyCode};
use crate::quotas::CountGuard;
use crate::rejects::Rejects;
use crate::replies::ReplyName;
use crate::session::Session;
use crate::stream::{StreamConsumer, StreamCredit};
use crate::transaction::Transaction;
use crate::unacked::UnackedDeliveries;

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) generation: u32,
    /// Counts the channel against its user's limit.
    _counted: Option<CountGuard>,
    /// `channel.close` was sent, and `channel.close_ok` has not come.
    pub(crate) is_closing: bool,
    /// Created with the first consumer or get.
    pub(crate) leases: Option<Arc<LeaseSession>>,
    /// The queue that an empty queue name stands for.
    pub(crate) last_queue: Option<Arc<str>>,
    /// Applies to each consumer created from now on; 0: no limit.
    pub(crate) prefetch: u16,
    /// Applies to all consumers together; 0: no limit.
    pub(crate) prefetch_together: u16,
    pub(crate) confirms: Option<ConfirmMode>,
    pub(crate) transaction: Option<Transaction>,
    /// A message of which not all frames have arrived.
    pub(crate) content: Option<Content>,
    pub(crate) consumers: HashMap<Arc<str>, Consumer>,
    pub(crate) tags: HashMap<ConsumerId, Arc<str>>,
    /// The latest active state reported for a consumer whose `basic.consume` is not answered yet.
    pub(crate) early_active: Option<(ConsumerId, bool)>,
    /// Deliveries for a consumer whose `basic.consume` is not answered yet.
    pub(crate) early: Vec<Delivery>,
    pub(crate) unacked: UnackedDeliveries<UnackedDelivery>,
    /// Tag of the next delivery.
    pub(crate) next_tag: u64,
    /// Settles not yet passed to the broker.
    pub(crate) settles: Vec<Settle>,
    /// Rejects whose dead letters the channel's next operations must be able to find.
    pub(crate) rejects: Rejects,
    pub(crate) reply_name: Option<ReplyName>,
    /// Consumers of a queue that the channel itself is deleting. They are notified after the reply, because some
    /// clients expect the reply first.
    pub(crate) cancelled: Vec<Arc<str>>,
}

/// Publisher confirms: messages are numbered from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ConfirmMode {
    pub(crate) published: u64,
    /// Messages up to this number are confirmed or rejected.
    pub(crate) answered: u64,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    /// `None` for direct replies.
    pub(crate) queue: Option<Arc<Queue>>,
    pub(crate) no_ack: bool,
    pub(crate) source: Source,
    /// A cancellation is in progress and will report to the queue.
    pub(crate) is_leaving: bool,
    /// Deliveries go to this consumer. With a single active consumer this holds for one consumer of the queue only.
    pub(crate) is_active: bool,
    pub(crate) wanted: ConsumeParameters,
    /// Time limit of an acknowledgement (`x-consumer-timeout`).
    pub(crate) timeout: Option<Duration>,
}

/// Arguments of `basic.consume`, kept for the management API.
#[derive(Debug, Default)]
pub(crate) struct ConsumeParameters {
    pub(crate) exclusive: bool,
    pub(crate) prefetch: u16,
    pub(crate) arguments: FieldTable,
}

impl Consumer {
    pub(crate) fn new(
        queue: Option<Arc<Queue>>,
        no_ack: bool,
        source: Source,
        wanted: ConsumeParameters,
    ) -> Self {
        let timeout = queue.as_ref().and_then(|queue| answer_within(queue));
        let is_active = queue.as_ref().is_none_or(|it| !it.settings().single_active_consumer);
        Self { queue, no_ack, source, is_leaving: false, is_active, wanted, timeout }
    }
}

/// Source of a consumer's deliveries.
#[derive(Debug)]
pub(crate) enum Source {
    Leases(ConsumerId),
    Stream(#[expect(dead_code, reason = "it reads for as long as it is there")] StreamConsumer),
    Replies,
}

/// A delivery that the client has not acknowledged.
#[derive(Debug)]
pub(crate) enum UnackedDelivery {
    Lease {
        group: LeaseGroupId,
        partition: u32,
        token: Token,
        /// Deadline of the acknowledgement, and the timeout that it was computed from.
        due: Option<(Instant, Duration)>,
    },
    /// Nothing is settled in a stream; an acknowledgement only returns credit.
    Stream(StreamCredit),
}

/// Events of a channel's lease session, labelled with the channel.
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
    pub(crate) fn new(generation: u32, counted: Option<CountGuard>) -> Self {
        Self {
            generation,
            _counted: counted,
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
            early_active: None,
            early: Vec::new(),
            unacked: UnackedDeliveries::default(),
            next_tag: 1,
            settles: Vec::new(),
            rejects: Rejects::default(),
            reply_name: None,
            cancelled: Vec::new(),
        }
    }

    /// Resolves a queue name; an empty name stands for the queue declared last.
    pub(crate) fn queue_name<'a>(&'a self, name: &'a str) -> Result<&'a str, Exception> {
        if !name.is_empty() {
            return Ok(name);
        }
        let no_queue = || Exception::new(ReplyCode::NotFound, "no previously declared queue");
        self.last_queue.as_deref().ok_or_else(no_queue)
    }

    /// Builds the settle of an acknowledgement; `None` when it only returned credit of a stream.
    pub(crate) fn settle_of(held: UnackedDelivery, settlement: Settlement) -> Option<Settle> {
        match held {
            UnackedDelivery::Lease { group, partition, token, .. } => {
                let what = SettleWhat::Lease { partition, token };
                Some(Settle { group, what, settlement })
            }
            UnackedDelivery::Stream(credit) => {
                credit.give_back();
                None
            }
        }
    }

    pub(crate) fn hand_over_settles(&mut self) {
        if let Some(leases) = &self.leases
            && !self.settles.is_empty()
        {
            let settles = std::mem::take(&mut self.settles);
            let rejects = settles.iter().any(|it| it.settlement == Settlement::Reject);
            // AMQP confirms no settle. Later reads of messages wait for the rejects before them.
            let reply = leases.settle(settles);
            if rejects {
                self.rejects.add(reply);
            }
        }
    }
}

impl Session {
    /// Returns the channel's lease session, created at first use.
    pub(crate) fn leases(&mut self, number: u16) -> Option<Arc<LeaseSession>> {
        let channel = self.channels.get_mut(&number)?;
        if let Some(leases) = &channel.leases {
            return Some(Arc::clone(leases));
        }
        let connection = &self.connection;
        let user = SessionUser {
            protocol: connection.protocol().into(),
            user: connection.user().into(),
            client: connection.client().into(),
            peer: connection.peer().to_string().into(),
            connection: connection.id(),
        };
        let leases = Arc::new(self.gateway.broker.lease_session_of(user));
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

    /// Ends everything that the channel does, at once. Its queues are notified in the background.
    pub(crate) fn abandon_channel(&mut self, number: u16) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let left = leave(channel);
        if let Some(content) = channel.content.take() {
            self.contents -= 1;
            self.arriving.discard(content.charged);
        }
        *channel = Channel { is_closing: true, ..Channel::new(channel.generation, None) };
        self.settling.retain(|settling| *settling != number);
        if self.operation.as_ref().is_some_and(|operation| operation.channel == number) {
            self.operation = None;
        }
        self.leave_queues_in_background(left);
    }

    pub(crate) fn abandon_channels(&mut self) {
        // Messages that were published before are not taken back.
        self.hand_over();
        let mut left = Vec::new();
        for channel in self.channels.values_mut() {
            let charged = channel.content.take().map_or(0, |content| content.charged);
            self.arriving.discard(charged);
            left.extend(leave(channel));
        }
        self.channels.clear();
        self.contents = 0;
        self.settling.clear();
        self.events.clear();
        self.operation = None;
        self.leave_queues_in_background(left);
    }

    fn leave_queues_in_background(&self, left: Vec<Arc<Queue>>) {
        let Some(vhost) = self.vhost.clone().filter(|_| !left.is_empty()) else { return };
        tasks::spawn(Task::AmqpSessionEnd, async move {
            for queue in left {
                if let Err(fault) = vhost.consumer_left(&queue).await {
                    tracing::warn!(queue = %queue.resource(), %fault, "a consumer left");
                }
            }
        });
    }

    /// Removes all consumers of a channel. Returns the queues that they consumed.
    pub(crate) fn leave_channel(&mut self, number: u16) -> Vec<Arc<Queue>> {
        let Some(channel) = self.channels.get_mut(&number) else { return Vec::new() };
        if let Some(content) = channel.content.take() {
            self.contents -= 1;
            self.arriving.discard(content.charged);
        }
        leave(channel)
    }
}

/// Dropping the lease session releases the channel's leases.
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
