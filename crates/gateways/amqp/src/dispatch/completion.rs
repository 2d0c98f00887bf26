//! Completion of the asynchronous operation of a session: its result becomes replies and state.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use topology::Queue;

use crate::channel::consumer::{ConsumeParameters, Consumer, Source};
use crate::codec::methods::{
    BasicCancelOk, BasicConsumeOk, BasicGetEmpty, ChannelCloseOk, ConnectionCloseOk,
    ConnectionOpen, QueueDeclareOk, QueueDelete, TxCommitOk,
};
use crate::errors::{Exception, ReplyCode};
use crate::failure::Failure;
use crate::session::Session;
use crate::session::operation::{Feed, Operation, OperationResult};

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
