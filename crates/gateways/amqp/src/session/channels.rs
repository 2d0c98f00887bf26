//! The channels of a session: their lease sessions, and the release of all that a channel holds.

use std::sync::Arc;

use broker::delivery::{LeaseSession, SessionUser};
use documents::StoreError;
use futures_util::future::join_all;
use tasks::Task;
use topology::{Queue, VirtualHost};

use crate::channel::settles_in_flight::EndingLeases;
use crate::channel::{Channel, ChannelEvents};
use crate::errors::NamedEntity;
use crate::session::Session;

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
        let mut left = LeftChannels::default();
        left.add(channel);
        if let Some(content) = channel.content.take() {
            self.contents -= 1;
            self.arriving.discard(content.charged);
        }
        *channel = Channel::new(channel.generation, None);
        channel.is_closing = true;
        self.settling.retain(|settling| *settling != number);
        if self.operation.as_ref().is_some_and(|operation| operation.channel == number) {
            self.operation = None;
        }
        self.end_in_background(left);
    }

    pub(crate) fn abandon_channels(&mut self) {
        let left = self.leave_channels();
        self.end_in_background(left);
    }

    /// Removes all channels.
    pub(crate) fn leave_channels(&mut self) -> LeftChannels {
        // Messages that were published before are not taken back.
        self.hand_over();
        let mut left = LeftChannels::default();
        for channel in self.channels.values_mut() {
            let charged = channel.content.take().map_or(0, |content| content.charged);
            self.arriving.discard(charged);
            left.add(channel);
        }
        self.channels.clear();
        self.contents = 0;
        self.settling.clear();
        self.events.clear();
        self.operation = None;
        left
    }

    fn end_in_background(&self, left: LeftChannels) {
        if left.is_empty() {
            return;
        }
        let vhost = self.vhost.clone();
        tasks::spawn(Task::AmqpSessionEnd, async move {
            // The error is logged.
            let _ = left.end(vhost).await;
        });
    }

    /// Removes all consumers of a channel.
    pub(crate) fn leave_channel(&mut self, number: u16) -> LeftChannels {
        let mut left = LeftChannels::default();
        let Some(channel) = self.channels.get_mut(&number) else { return left };
        if let Some(content) = channel.content.take() {
            self.contents -= 1;
            self.arriving.discard(content.charged);
        }
        left.add(channel);
        left
    }
}

/// Remains of closed channels: lease sessions whose settles are not stored yet, and the queues that they consumed.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct LeftChannels {
    leases: Vec<EndingLeases>,
    queues: Vec<Arc<Queue>>,
}

impl LeftChannels {
    /// Dropping the lease session releases the channel's leases.
    fn add(&mut self, channel: &mut Channel) {
        channel.hand_over_settles();
        let consumers = channel.tags.drain().map(|(consumer, _)| consumer).collect();
        let mut settles = channel.rejects.take();
        settles.append(channel.acknowledgements.take());
        self.leases.extend(EndingLeases::new(channel.leases.take(), consumers, settles));
        channel.reply_name = None;
        let consumers = channel.consumers.drain().map(|(_, consumer)| consumer);
        let remaining = consumers.filter(|consumer| !consumer.is_leaving);
        self.queues.extend(remaining.filter_map(|consumer| consumer.queue));
    }

    fn is_empty(&self) -> bool {
        self.leases.is_empty() && self.queues.is_empty()
    }

    /// Waits until the settles are stored, ends the lease sessions, and notifies the queues.
    pub(crate) async fn end(self, vhost: Option<VirtualHost>) -> Result<(), StoreError> {
        join_all(self.leases.into_iter().map(EndingLeases::end)).await;
        let Some(vhost) = vhost else { return Ok(()) };
        for queue in self.queues {
            vhost.consumer_left(&queue).await.inspect_err(|fault| {
                tracing::warn!(queue = %queue.resource(), %fault, "a consumer left");
            })?;
        }
        Ok(())
    }
}
