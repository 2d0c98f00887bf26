//! The state of a channel: its consumers, its message that is being received, its open transaction, and its unsettled
//! deliveries. The session changes it.

pub(crate) mod consumer;
pub(crate) mod content;
pub(crate) mod settles_in_flight;
pub(crate) mod stream;
pub(crate) mod transaction;
pub(crate) mod unacked;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base::{HashMap, LeaseGroupId};
use broker::delivery::{
    ConsumerId, Delivery, Event, Events, LeaseSession, Settle, SettleTarget, Settlement, Token,
};
use futures_util::Stream;
use tokio::time::Instant;

use crate::channel::consumer::Consumer;
use crate::channel::content::Content;
use crate::channel::settles_in_flight::SettlesInFlight;
use crate::channel::transaction::Transaction;
use crate::channel::unacked::UnackedDeliveries;
use crate::errors::{Exception, ReplyCode};
use crate::gateway::counts::CountGuard;
use crate::gateway::replies::ReplyName;
use crate::posted::StreamCredit;

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
    pub(crate) rejects: SettlesInFlight,
    /// The other settles that are not stored yet.
    pub(crate) acknowledgements: SettlesInFlight,
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
            rejects: SettlesInFlight::default(),
            acknowledgements: SettlesInFlight::default(),
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
                let what = SettleTarget::Lease { partition, token };
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
            // Later reads of messages wait for the rejects before them, the end of the channel for all.
            let reply = leases.settle(settles);
            match rejects {
                true => self.rejects.add(reply),
                false => self.acknowledgements.add(reply),
            }
        }
    }
}
