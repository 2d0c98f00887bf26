//! Consumers: subscription by lease or by offset, and cancellation.

use std::sync::Arc;

use access::Operation;
use broker::delivery::{ConsumeError, ConsumeOptions, Credit, CreditReturns, LeaseSession};
use topology::{Queue, QueueKind, VirtualHost};

use crate::channel::consumer::{ConsumeParameters, Consumer, Source};
use crate::channel::stream;
use crate::codec::methods::{BasicCancel, BasicConsume, BasicConsumeOk};
use crate::codec::table::{FieldValue, kind_name};
use crate::declarations::queues::{self, QueueRetry};
use crate::errors::{Exception, NamedEntity, ReplyCode};
use crate::failure::table;
use crate::gateway::replies::{REPLY_TO, Receiver};
use crate::limits::AMQP_UNSETTLED_PER_CONSUMER_MAX;
use crate::session::Session;
use crate::session::operation::{Feed, OperationResult};

impl Session {
    pub(crate) fn consume(
        &mut self,
        number: u16,
        consume: &BasicConsume<'_>,
    ) -> Result<(), Exception> {
        let (_, vhost, id) = self.at_hand()?;
        let name = self.queue_name(number, consume.queue)?;
        let Some(channel) = self.channels.get(&number) else { return Ok(()) };
        if channel.consumers.contains_key(consume.consumer_tag) {
            let text = format!("attempt to reuse consumer tag '{}'", consume.consumer_tag);
            return Err(Exception::new(ReplyCode::NotAllowed, text));
        }
        let tag: Arc<str> = match consume.consumer_tag {
            "" => format!("amq.ctag-{}", self.gateway.broker.entropy().uuid().simple()).into(),
            tag => tag.into(),
        };
        if name == REPLY_TO {
            return self.consume_replies(number, tag, consume.no_ack, consume.no_wait);
        }
        self.check_queue(Operation::Consume, &name)?;
        let rights = self.rights()?;
        let prefetch = channel.prefetch;
        let limited_together = channel.prefetch_together > 0;
        let generation = channel.generation;
        let arguments = table(consume.arguments)?;
        let offset = arguments.get("x-stream-offset").cloned();
        let priority = arguments.get("x-priority").cloned();
        let (no_ack, no_wait) = (consume.no_ack, consume.no_wait);
        let exclusive = consume.exclusive;
        let Some(leases) = self.leases(number) else { return Ok(()) };
        let reader = stream::Reader {
            broker: self.gateway.broker.clone(),
            channel: number,
            generation,
            tag: Arc::clone(&tag),
            posts: self.posts.clone(),
            filter: stream::Filter::of(&arguments),
        };
        let future = async move {
            let attach = Attach { leases, reader, offset, priority, prefetch, no_ack, exclusive };
            let mut attempts = QueueRetry::default();
            let (queue, from) = loop {
                let queue = match &attach.offset {
                    // A consumer by offset needs no lease group.
                    Some(_) => queues::find(&vhost, id, &name).await?,
                    None => queues::ready(&vhost, id, &name, &rights).await?,
                };
                check_prefetch(&queue, prefetch, limited_together, no_ack)?;
                match attach.to(&vhost, &queue).await {
                    Ok(from) => break (queue, from),
                    Err(refused) if attempts.is_outdated(&vhost, &queue, &refused).await? => {}
                    Err(refused) => return Err(refused),
                }
            };
            let wanted = ConsumeParameters { exclusive, prefetch, arguments };
            Ok(OperationResult::Consuming { tag, queue, no_ack, from, wanted, no_wait })
        };
        self.begin(number, BasicConsume::ID, future);
        Ok(())
    }

    /// Consumes direct replies (`amq.rabbitmq.reply-to`).
    fn consume_replies(
        &mut self,
        number: u16,
        tag: Arc<str>,
        no_ack: bool,
        no_wait: bool,
    ) -> Result<(), Exception> {
        let posts = self.posts.clone();
        let Some(channel) = self.channels.get_mut(&number) else { return Ok(()) };
        if !no_ack {
            return Err(Exception::precondition_failed("reply consumer cannot acknowledge"));
        }
        if channel.reply_name.is_some() {
            return Err(Exception::precondition_failed("reply consumer already set"));
        }
        let receiver = Receiver { channel: number, generation: channel.generation, posts };
        channel.reply_name =
            Some(self.gateway.replies.register(receiver, self.gateway.broker.entropy()));
        if !no_wait {
            let ok = BasicConsumeOk { consumer_tag: &tag, ..BasicConsumeOk::default() };
            self.output.method(number, ok);
        }
        let consumer = Consumer::new(None, true, Source::Replies, ConsumeParameters::default());
        channel.consumers.insert(tag, consumer);
        Ok(())
    }

    pub(crate) fn cancel(&mut self, number: u16, tag: &str, no_wait: bool) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        // The consumer may be gone already; RabbitMQ replies all the same.
        let (mut queue, mut lease) = (None, None);
        if let Some(consumer) = channel.consumers.get_mut(tag) {
            queue = consumer.queue.clone();
            // From here on this operation reports the consumer's departure.
            consumer.is_leaving = true;
            match &consumer.source {
                Source::Leases(id) => lease = channel.leases.clone().map(|leases| (leases, *id)),
                Source::Replies => channel.reply_name = None,
                Source::Stream(_) => {}
            }
        }
        let tag: Arc<str> = tag.into();
        let vhost = self.vhost.clone();
        let future = async move {
            if let Some((leases, id)) = lease {
                leases.cancel(id).await;
            }
            if let (Some(vhost), Some(queue)) = (vhost, queue) {
                vhost.consumer_left(&queue).await?;
            }
            Ok(OperationResult::Cancelled { tag, no_wait })
        };
        self.begin(number, BasicCancel::ID, future);
    }
}

/// A request for a consumer.
struct Attach {
    leases: Arc<LeaseSession>,
    reader: stream::Reader,
    offset: Option<FieldValue>,
    priority: Option<FieldValue>,
    prefetch: u16,
    no_ack: bool,
    exclusive: bool,
}

impl Attach {
    async fn to(&self, vhost: &VirtualHost, queue: &Arc<Queue>) -> Result<Feed, Exception> {
        // The queue must not be auto-deleted or expire meanwhile.
        vhost.begin_use(queue).await?;
        let feed = self.feed(queue).await;
        if feed.is_err() {
            vhost.use_failed(queue).await;
        }
        feed
    }

    async fn feed(&self, queue: &Queue) -> Result<Feed, Exception> {
        let by_offset = queue.is_stream() || self.offset.is_some();
        let Some(group) = queue.group().filter(|_| !by_offset) else {
            let (reader, offset) = (self.reader.clone(), self.offset.as_ref());
            let stream = by_offset_from(reader, queue, offset, self.prefetch);
            return Ok(Feed::Stream(stream.await?));
        };
        if self.exclusive && queue.settings().single_active_consumer {
            return Err(in_exclusive_use(queue));
        }
        let priority = consumer_priority(self.priority.as_ref(), queue)?;
        let options = options(self.prefetch, self.no_ack, self.exclusive, priority);
        let consumed = self.leases.consume(group, options).await;
        Ok(Feed::Leases(consumed.map_err(|error| cannot_consume(&error, queue))?))
    }
}

/// Checks the requirements of a queue type on its consumers.
fn check_prefetch(
    queue: &Queue,
    prefetch: u16,
    limited_together: bool,
    no_ack: bool,
) -> Result<(), Exception> {
    let text = match queue.kind {
        QueueKind::Stream if prefetch == 0 => return Err(prefetch_not_set(queue)),
        QueueKind::Stream if no_ack => {
            format!("automatic acknowledgement not supported by stream {}", queue.resource())
        }
        QueueKind::Quorum | QueueKind::Stream if limited_together => {
            format!("{} does not support global qos", queue.resource())
        }
        _ => return Ok(()),
    };
    Err(Exception::new(ReplyCode::NotImplemented, text))
}

fn prefetch_not_set(queue: &Queue) -> Exception {
    let text = format!("consumer prefetch count is not set for stream {}", queue.resource());
    Exception::precondition_failed(text)
}

fn options(prefetch: u16, no_ack: bool, exclusive: bool, priority: i32) -> ConsumeOptions {
    let credit = match (prefetch, no_ack) {
        (_, true) => Credit::UNLIMITED,
        (0, false) => Credit::records(AMQP_UNSETTLED_PER_CONSUMER_MAX),
        (prefetch, false) => Credit::records(u32::from(prefetch)),
    };
    ConsumeOptions {
        credit,
        credit_returns: CreditReturns::OnSettle,
        priority,
        exclusive,
        settle_on_send: no_ack,
        lease_ms: None,
    }
}

async fn by_offset_from(
    reader: stream::Reader,
    queue: &Queue,
    offset: Option<&FieldValue>,
    prefetch: u16,
) -> Result<stream::StreamConsumer, Exception> {
    let failed = |wrong: String| {
        let text = format!("failed consuming from stream {}: {wrong}", queue.resource());
        Exception::precondition_failed(text)
    };
    if prefetch == 0 {
        return Err(prefetch_not_set(queue));
    }
    let now_ms = reader.broker.clock().now_ms();
    let from = stream::StartAt::parse(offset, now_ms).map_err(failed)?;
    let partitions = queue.partition_count().max(1);
    if partitions > 1 && matches!(from, stream::StartAt::Offset(_)) {
        return Err(failed(format!(
            "an offset means nothing in a topic of {partitions} partitions"
        )));
    }
    let partitions = (0..partitions).map(|index| queue.partition(index)).collect();
    reader.start(partitions, from, u32::from(prefetch)).await
}

fn consumer_priority(value: Option<&FieldValue>, queue: &Queue) -> Result<i32, Exception> {
    let Some(value) = value else { return Ok(0) };
    // RabbitMQ takes an integer of any size. A value out of range is clamped.
    let number = value.as_integer();
    let nearest = |number: i64| number.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    number.map(nearest).ok_or_else(|| {
        let wrong = format!("\"expected integer, got {}\"", kind_name(value));
        let text = format!("invalid arg 'x-priority' for {}: {wrong}", queue.resource());
        Exception::precondition_failed(text)
    })
}

fn in_exclusive_use(queue: &Queue) -> Exception {
    let text = format!("{} in exclusive use", queue.resource());
    Exception::new(ReplyCode::AccessRefused, text)
}

fn cannot_consume(error: &ConsumeError, queue: &Queue) -> Exception {
    match error {
        ConsumeError::UnknownGroup(_) => Exception::not_found(queue.resource()),
        ConsumeError::Exclusive => in_exclusive_use(queue),
        ConsumeError::TooManyConsumers { at_most } => Exception::new(
            ReplyCode::NotAllowed,
            format!("reached maximum ({at_most}) of consumers per channel"),
        ),
        ConsumeError::Unavailable(error) => {
            Exception::new(ReplyCode::InternalError, error.to_string())
        }
    }
}
