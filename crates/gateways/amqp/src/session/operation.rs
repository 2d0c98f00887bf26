//! The asynchronous operation of a session, at most one at a time. Its result is handled by `dispatch::completion`.

use std::sync::Arc;

use access::{LoginError, Principal};
use broker::delivery::{ConsumerId, Delivery};
use bytes::BytesMut;
use tasks::Task;
use tokio::task::JoinHandle;
use topology::{Queue, VirtualHost};

use crate::channel::consumer::ConsumeParameters;
use crate::channel::content::Content;
use crate::channel::stream::StreamConsumer;
use crate::codec::frame;
use crate::codec::methods::{
    BasicGet, ChannelClose, ConnectionClose, Method, MethodId, QueueDeclare, QueueDelete,
    QueuePurge,
};
use crate::errors::Exception;
use crate::session::Session;

pub(crate) struct Operation {
    pub(crate) channel: u16,
    /// Generation of the channel at the start, because its number may be reused.
    pub(crate) generation: u32,
    pub(crate) method: MethodId,
    pub(crate) task: JoinHandle<Result<OperationResult, Exception>>,
}

/// Result of an operation.
#[derive(Debug)]
pub(crate) enum OperationResult {
    /// A frame to reply with; `None` with `no_wait`.
    Replied(Option<BytesMut>),
    Declared {
        queue: Arc<str>,
        messages: u64,
        consumers: u32,
        no_wait: bool,
    },
    Consuming {
        tag: Arc<str>,
        queue: Arc<Queue>,
        no_ack: bool,
        from: Feed,
        wanted: ConsumeParameters,
        no_wait: bool,
    },
    Cancelled {
        tag: Arc<str>,
        no_wait: bool,
    },
    Got {
        queue: Arc<Queue>,
        delivery: Option<Box<Delivery>>,
        no_ack: bool,
        ready: u64,
    },
    Committed,
    LoggedIn {
        mechanism: String,
        login: Result<Principal, LoginError>,
    },
    /// Result of `connection.update_secret`.
    SecretUpdated {
        login: Result<Principal, LoginError>,
    },
    FoundVhost {
        vhost: VirtualHost,
    },
    /// A message is to be routed again.
    MayRoute {
        content: Box<Content>,
        copy: CopyFreshness,
    },
    ChannelClosed,
    ConnectionClosed,
}

/// Freshness of this node's copy of the declarations by which a message is routed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CopyFreshness {
    /// A missing entity may have been declared on another node a moment ago.
    AsItIs,
    /// The message has waited for confirmed declarations. A missing entity may still have been declared a moment ago.
    Awaited,
    /// It was refreshed after the message arrived.
    Current,
    /// The refresh failed: this node may lack declarations.
    Outdated,
}

#[derive(Debug)]
pub(crate) enum Feed {
    Leases(ConsumerId),
    Stream(StreamConsumer),
}

/// Methods whose reply depends on messages published before them: they wait until those are stored. So a client that
/// publishes and then counts, gets, purges or closes finds its own messages.
pub(crate) fn depends_on_messages(method: MethodId) -> bool {
    [
        BasicGet::ID,
        QueueDeclare::ID,
        QueueDelete::ID,
        QueuePurge::ID,
        ChannelClose::ID,
        ConnectionClose::ID,
    ]
    .contains(&method)
}

/// Methods whose reply depends on dead letters of messages rejected before them: they wait until those are stored.
pub(crate) fn depends_on_dead_letters(method: MethodId) -> bool {
    [BasicGet::ID, QueueDeclare::ID, QueueDelete::ID, QueuePurge::ID].contains(&method)
}

/// A reply frame, unless the client set `no_wait`.
pub(crate) fn replied<'a>(
    number: u16,
    no_wait: bool,
    reply: impl Into<Method<'a>>,
) -> OperationResult {
    OperationResult::Replied((!no_wait).then(|| {
        let mut out = BytesMut::new();
        frame::put_method(number, reply, &mut out);
        out
    }))
}

impl Operation {
    pub(crate) fn is(&self, channel: u16, method: MethodId) -> bool {
        self.channel == channel && self.method == method
    }
}

impl Session {
    /// Starts an operation. It runs to its end even if the session ends: half a declaration is worse than one whose
    /// reply is lost.
    pub(crate) fn begin(
        &mut self,
        channel: u16,
        method: MethodId,
        work: impl Future<Output = Result<OperationResult, Exception>> + Send + 'static,
    ) {
        debug_assert!(self.operation.is_none(), "one thing at a time");
        let known = self.channels.get_mut(&channel);
        let generation = known.as_ref().map_or(0, |channel| channel.generation);
        let rejects = known.filter(|_| depends_on_dead_letters(method));
        let rejects = rejects.map(|channel| channel.rejects.take()).unwrap_or_default();
        let work = async move {
            rejects.stored().await;
            work.await
        };
        let task = tasks::spawn(Task::AmqpOperation, work);
        self.operation = Some(Operation { channel, generation, method, task });
    }
}
