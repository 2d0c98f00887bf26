//! The asynchronous operation of a session, at most one at a time, and its completion.

use std::sync::Arc;
use std::task::{Context, Poll};

use access::{LoginError, Principal};
use broker::delivery::{ConsumerId, Delivery};
use bytes::BytesMut;
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use topology::{Queue, VirtualHost};

use crate::channel::{ConsumeParameters, Consumer, Source};
use crate::codec::frame;
use crate::codec::methods::{
    BasicCancelOk, BasicConsumeOk, BasicGet, BasicGetEmpty, ChannelClose, ChannelCloseOk,
    ConnectionClose, ConnectionCloseOk, ConnectionOpen, Method, MethodId, QueueDeclare,
    QueueDeclareOk, QueueDelete, QueuePurge, TxCommitOk,
};
use crate::content::Content;
use crate::errors::{Exception, ReplyCode};
use crate::failure::Failure;
use crate::publish::CopyFreshness;
use crate::session::Session;
use crate::stream::StreamConsumer;

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
    /// An unroutable message is to be routed again.
    MayRoute {
        content: Box<Content>,
        copy: CopyFreshness,
    },
    ChannelClosed,
    ConnectionClosed,
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
    /// Completes the operation in flight, if it has finished.
    pub(crate) fn poll_operation(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(operation) = &mut self.operation else { return Poll::Pending };
        let Poll::Ready(result) = operation.task.poll_unpin(context) else {
            return Poll::Pending;
        };
        let result = result.unwrap_or_else(|error| {
            tracing::error!(%error, "an AMQP operation ended early; please report this");
            Err(Exception::new(ReplyCode::InternalError, "the operation failed"))
        });
        if let Some(operation) = self.operation.take() {
            self.complete(&operation, result);
        }
        Poll::Ready(())
    }

    fn complete(&mut self, operation: &Operation, result: Result<OperationResult, Exception>) {
        let (number, method) = (operation.channel, operation.method);
        let known = self.channels.get(&number).map_or(0, |channel| channel.generation);
        if known != operation.generation {
            return;
        }
        let done = match result {
            Ok(done) => done,
            Err(exception) => return self.fail(Failure { channel: number, method, exception }),
        };
        match done {
            OperationResult::Replied(reply) => {
                if let Some(reply) = reply {
                    self.output.raw(&reply);
                }
                if method == QueueDelete::ID {
                    self.notify_cancelled(number);
                }
            }
            OperationResult::Declared { queue, messages, consumers, no_wait } => {
                if !no_wait {
                    let ok = QueueDeclareOk {
                        queue: &queue,
                        message_count: u32::try_from(messages).unwrap_or(u32::MAX),
                        consumer_count: consumers,
                        ..QueueDeclareOk::default()
                    };
                    self.output.method(number, ok);
                }
                if let Some(channel) = self.channels.get_mut(&number) {
                    channel.last_queue = Some(queue);
                }
            }
            OperationResult::Consuming { tag, queue, no_ack, from, wanted, no_wait } => {
                // `basic.consume_ok` precedes the first delivery.
                if !no_wait {
                    let ok = BasicConsumeOk { consumer_tag: &tag, ..BasicConsumeOk::default() };
                    self.output.method(number, ok);
                }
                self.consuming(number, tag, queue, no_ack, from, wanted);
            }
            OperationResult::Cancelled { tag, no_wait } => {
                if let Some(channel) = self.channels.get_mut(&number)
                    && let Some(consumer) = channel.consumers.remove(&tag)
                    && let Source::Leases(id) = consumer.source
                {
                    channel.tags.remove(&id);
                }
                if !no_wait {
                    let ok = BasicCancelOk { consumer_tag: &tag, ..BasicCancelOk::default() };
                    self.output.method(number, ok);
                }
            }
            OperationResult::Got { queue, delivery, no_ack, ready } => match delivery {
                Some(delivery) => self.got(number, &queue, &delivery, no_ack, ready),
                None => self.output.method(number, BasicGetEmpty::default()),
            },
            OperationResult::LoggedIn { mechanism, login } => self.logged_in(&mechanism, login),
            OperationResult::SecretUpdated { login } => {
                if let Err(exception) = self.secret_updated(login) {
                    self.fail(Failure { channel: 0, method, exception });
                }
            }
            OperationResult::FoundVhost { vhost } => {
                let name = vhost.name().to_owned();
                if let Err(exception) = self.open_vhost(&name, vhost) {
                    self.fail(Failure { channel: 0, method: ConnectionOpen::ID, exception });
                }
            }
            OperationResult::MayRoute { content, copy } => {
                if let Err(exception) = self.publish(number, *content, copy) {
                    self.fail(Failure { channel: number, method, exception });
                }
            }
            OperationResult::Committed => self.output.method(number, TxCommitOk::default()),
            OperationResult::ChannelClosed => {
                self.channels.remove(&number);
                self.output.method(number, ChannelCloseOk::default());
            }
            OperationResult::ConnectionClosed => {
                self.output.method(0, ConnectionCloseOk::default());
                self.await_socket_close();
            }
        }
    }

    fn consuming(
        &mut self,
        number: u16,
        tag: Arc<str>,
        queue: Arc<Queue>,
        no_ack: bool,
        from: Feed,
        wanted: ConsumeParameters,
    ) {
        queue.consumer_came();
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let source = match from {
            Feed::Leases(id) => {
                channel.tags.insert(id, Arc::clone(&tag));
                Source::Leases(id)
            }
            Feed::Stream(stream) => Source::Stream(stream),
        };
        let mut consumer = Consumer::new(Some(queue), no_ack, source, wanted);
        if let (Some((id, is_active)), Source::Leases(own)) =
            (channel.early_active.take(), &consumer.source)
            && id == *own
        {
            consumer.is_active = is_active;
        }
        channel.consumers.insert(tag, consumer);
        let early = std::mem::take(&mut channel.early);
        self.deliver(number, early);
    }
}
