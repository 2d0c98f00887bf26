//! Direct reply-to: replies that go from one channel straight to another and are not stored.
//!
//! A client that consumes `amq.rabbitmq.reply-to` gets an unguessable name. A message published to that name through
//! the default exchange reaches the client while it is connected. A reply for which its receiver has no room is
//! dropped, which RabbitMQ permits.

use std::sync::Arc;

use base::HashMap;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use world::Entropy;

use crate::posted::{PostedMessage, Reply};

pub(crate) const REPLY_TO: &str = "amq.rabbitmq.reply-to";
pub(crate) const REPLY_TO_PREFIX: &str = "amq.rabbitmq.reply-to.";

#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) channel: u16,
    pub(crate) generation: u32,
    pub(crate) posts: mpsc::Sender<Box<PostedMessage>>,
}

/// Receivers of direct replies on this node.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    receivers: Mutex<HashMap<Arc<str>, Receiver>>,
}

/// A name that receives replies until this is dropped.
#[derive(Debug)]
pub(crate) struct ReplyName {
    name: Arc<str>,
    replies: Arc<Replies>,
}

impl ReplyName {
    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }
}

impl Drop for ReplyName {
    fn drop(&mut self) {
        self.replies.receivers.lock().remove(&self.name);
    }
}

impl Replies {
    pub(crate) fn register(
        self: &Arc<Self>,
        receiver: Receiver,
        entropy: &dyn Entropy,
    ) -> ReplyName {
        let name: Arc<str> = format!("{REPLY_TO_PREFIX}{}", entropy.uuid().simple()).into();
        self.receivers.lock().insert(Arc::clone(&name), receiver);
        ReplyName { name, replies: Arc::clone(self) }
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.receivers.lock().contains_key(name)
    }

    /// Returns whether the name has a receiver. Delivery itself is not guaranteed.
    pub(crate) fn post(&self, name: &str, reply: Reply) -> bool {
        let receiver = self.receivers.lock().get(name).cloned();
        let Some(Receiver { channel, generation, posts }) = receiver else { return false };
        let posted = Box::new(PostedMessage::Reply { channel, generation, reply });
        if posts.try_send(posted).is_err() {
            tracing::debug!(name, "a direct reply was dropped: its receiver does not keep up");
        }
        true
    }
}
