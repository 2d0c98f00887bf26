//! The channels of a session: their lease sessions, and the release of all that a channel holds.

use std::sync::Arc;

use broker::delivery::{LeaseSession, SessionUser};
use tasks::Task;
use topology::Queue;

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
        let left = leave(channel);
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
