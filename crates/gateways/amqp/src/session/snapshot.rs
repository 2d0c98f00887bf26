//! The snapshot of a session for the management API.

use std::sync::Arc;

use rabbitmq::live::{ChannelSeen, ConsumerSeen, SessionSeen};

use crate::channel::Channel;
use crate::channel::consumer::Consumer;
use crate::codec::frame::OVERHEAD_BYTES;
use crate::session::{Phase, Session};

impl Session {
    /// Replies to a pending request for the session's snapshot.
    pub(crate) fn reply_with_snapshot(&self) {
        let told: gateway::SessionSnapshot = Arc::new(self.seen());
        self.connection.send_snapshot(&told);
    }

    fn seen(&self) -> SessionSeen {
        let is_running = self.phase == Phase::Running;
        let open = self.channels.iter().filter(|(_, channel)| is_running && !channel.is_closing);
        let mut channels: Vec<ChannelSeen> =
            open.map(|(number, channel)| channel_seen(*number, channel)).collect();
        channels.sort_by_key(|channel| channel.number);
        SessionSeen {
            virtual_host: self.vhost.as_ref().map(|vhost| Arc::from(vhost.name())),
            encrypted: self.encrypted,
            client_properties: self.client_properties.clone(),
            frame_bytes_max: self.negotiated.payload_bytes_max + OVERHEAD_BYTES,
            channel_max: self.negotiated.channel_max,
            heartbeat: self.negotiated.heartbeat,
            is_closing: matches!(self.phase, Phase::Closing | Phase::Closed | Phase::Ended),
            is_blocked: self.is_blocked,
            channels,
        }
    }
}

fn channel_seen(number: u16, channel: &Channel) -> ChannelSeen {
    let consumers = channel.consumers.iter().filter(|(_, consumer)| !consumer.is_leaving);
    let mut consumers: Vec<ConsumerSeen> =
        consumers.map(|(tag, consumer)| consumer_seen(tag, consumer)).collect();
    consumers.sort_by(|a, b| a.tag.cmp(&b.tag));
    let unconfirmed = channel.confirms.map_or(0, |mode| mode.published - mode.answered);
    ChannelSeen {
        number,
        confirms: channel.confirms.is_some(),
        is_transactional: channel.transaction.is_some(),
        prefetch: channel.prefetch,
        prefetch_together: channel.prefetch_together,
        unacknowledged: channel.unacked.count(),
        unconfirmed,
        consumers,
    }
}

fn consumer_seen(tag: &Arc<str>, consumer: &Consumer) -> ConsumerSeen {
    ConsumerSeen {
        tag: Arc::clone(tag),
        queue: consumer.queue.as_ref().map(|queue| Arc::clone(&queue.name)),
        needs_ack: !consumer.no_ack,
        is_exclusive: consumer.wanted.exclusive,
        is_active: consumer.is_active,
        is_single: consumer
            .queue
            .as_ref()
            .is_some_and(|queue| queue.settings().single_active_consumer),
        prefetch: consumer.wanted.prefetch,
        arguments: consumer.wanted.arguments.clone(),
        timeout: consumer.timeout,
    }
}
