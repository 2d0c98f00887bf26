//! Consuming: the hot path out. A delivery's frames are written once, its body is a slice of the
//! batch that it came in.

use std::sync::Arc;
use std::time::Duration;

use access::Permission;
use base::limits::AMQP_UNSETTLED_PER_CONSUMER_MAX;
use broker::delivery::{
    ConsumeError, ConsumeOptions, Credit, CreditReturns, Delivery, Event, Settle, Settlement,
    TakeError, TakeOptions,
};
use bytes::{Bytes, BytesMut};
use message::{put_header, read_record};
use record::SharedRecord;
use tokio::time::Instant;
use topology::{Queue, QueueKind};

use crate::channel::{Channel, Consumer, Held, Source, answer_within};
use crate::codec::methods::{
    BasicCancel, BasicConsume, BasicConsumeOk, BasicDeliver, BasicGet, BasicGetOk, MethodId,
    QueueDelete,
};
use crate::codec::table::{FieldValue, kind_name};
use crate::declare::table;
use crate::errors::{Exception, Named, ReplyCode};
use crate::operation::{Done, Feed, Operation};
use crate::output::Output;
use crate::replies::{Posted, REPLY_TO, Receiver, Reply};
use crate::session::{Failure, Session};
use crate::stream::{self, StreamRecords};

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
        self.check_queue(Permission::Read, &name)?;
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
            let queue = vhost.queue(id, &name).await?;
            check_prefetch(&queue, prefetch, limited_together, no_ack)?;
            let by_offset = queue.is_stream() || offset.is_some();
            let from = match queue.group().filter(|_| !by_offset) {
                Some(_) if exclusive && queue.settings().single_active_consumer => {
                    return Err(in_exclusive_use(&queue));
                }
                Some(group) => {
                    let priority = consumer_priority(priority.as_ref(), &queue)?;
                    let options = options(prefetch, no_ack, exclusive, priority);
                    let consumed = leases.consume(group, options).await;
                    Feed::Leases(consumed.map_err(|error| cannot_consume(&error, &queue))?)
                }
                None => {
                    Feed::Stream(by_offset_from(reader, &queue, offset.as_ref(), prefetch).await?)
                }
            };
            Ok(Done::Consuming { tag, queue, no_ack, from, no_wait })
        };
        self.begin(number, BasicConsume::ID, future);
        Ok(())
    }

    /// `amq.rabbitmq.reply-to`.
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
        let consumer = Consumer::new(None, true, Source::Replies);
        channel.consumers.insert(tag, consumer);
        Ok(())
    }

    pub(crate) fn cancel(&mut self, number: u16, tag: &str, no_wait: bool) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        // It may have gone by itself; RabbitMQ answers all the same.
        let (mut queue, mut lease) = (None, None);
        if let Some(consumer) = channel.consumers.get_mut(tag) {
            queue = consumer.queue.clone();
            // From here on its leaving is this operation's to tell.
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
            Ok(Done::Cancelled { tag, no_wait })
        };
        self.begin(number, BasicCancel::ID, future);
    }

    pub(crate) fn get(&mut self, number: u16, get: &BasicGet<'_>) -> Result<(), Exception> {
        let (gateway, vhost, id) = self.at_hand()?;
        let name = self.queue_name(number, get.queue)?;
        self.check_queue(Permission::Read, &name)?;
        let no_ack = get.no_ack;
        let Some(leases) = self.leases(number) else { return Ok(()) };
        let future = async move {
            let queue = vhost.queue(id, &name).await?;
            let Some(group) = queue.group() else {
                let text = format!("basic.get not supported by stream queues {}", queue.resource());
                return Err(Exception::new(ReplyCode::NotImplemented, text));
            };
            if queue.kind == QueueKind::Quorum && queue.settings().single_active_consumer {
                let text = format!(
                    "cannot obtain access to locked {}. basic.get operations are not supported by \
                     quorum queues with single active consumer",
                    queue.resource()
                );
                return Err(Exception::new(ReplyCode::ResourceLocked, text));
            }
            queue.used();
            // What its publisher has a confirm for must be found.
            gateway.broker.acknowledged_is_readable(queue.topic).await;
            let options = TakeOptions { records_max: 1, ..TakeOptions::default() };
            let taken = leases.take(group, options).await;
            let mut taken = taken.map_err(|error| cannot_take(&error, &queue))?;
            let delivery = taken.pop().map(Box::new);
            if let Some(delivery) = delivery.as_ref().filter(|_| no_ack) {
                // Before the answer: whoever has it finds its place in the queue free.
                let what = delivery.lease();
                let settle = Settle { group, what, settlement: Settlement::Accept };
                leases.settle(vec![settle]).await;
            }
            let ready = match delivery {
                Some(_) => vhost.message_count(&queue).await,
                None => 0,
            };
            Ok(Done::Got { queue, delivery, no_ack, ready })
        };
        self.begin(number, BasicGet::ID, future);
        Ok(())
    }

    pub(crate) fn got(
        &mut self,
        number: u16,
        queue: &Queue,
        delivery: &Delivery,
        no_ack: bool,
        ready: u64,
    ) {
        let payload_bytes_max = self.negotiated.payload_bytes_max;
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let delivery_tag = channel.next_tag;
        channel.next_tag += 1;
        let message_count = u32::try_from(ready).unwrap_or(u32::MAX);
        let extra = Extra::of_lease(queue, delivery);
        put_message(
            number,
            queue,
            &delivery.record,
            &extra,
            payload_bytes_max,
            &mut self.table,
            &mut self.output,
            |exchange, routing_key, output| {
                let ok = BasicGetOk {
                    delivery_tag,
                    redelivered: delivery.attempt > 1,
                    exchange,
                    routing_key,
                    message_count,
                    ..BasicGetOk::default()
                };
                output.method(number, ok);
            },
        );
        if !no_ack {
            let Delivery { group, partition, token, .. } = *delivery;
            let due = due(answer_within(queue), &mut self.answers_due);
            channel.unacked.push(delivery_tag, Held::Lease { group, partition, token, due });
        }
    }

    // ----------------------------------------------------------------------------- deliveries

    pub(crate) fn lease_event(&mut self, number: u16, generation: u32, event: Event) {
        let known = self.channels.get(&number).map_or(0, |channel| channel.generation);
        if known != generation {
            return;
        }
        match event {
            Event::Deliveries(deliveries) => self.deliver(number, deliveries),
            // RabbitMQ tells nobody which consumer is the active one.
            Event::Active { .. } => {}
            Event::Gone { consumer, .. } => {
                let tag = self
                    .channels
                    .get_mut(&number)
                    .and_then(|channel| channel.tags.remove(&consumer));
                if let Some(tag) = tag {
                    self.consumer_gone(number, &tag);
                }
            }
        }
    }

    /// What was consumed is no more: the client is told if it wants to know.
    fn consumer_gone(&mut self, number: u16, tag: &Arc<str>) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        if channel.consumers.remove(tag).is_none() {
            return;
        }
        channel.cancelled.push(Arc::clone(tag));
        let deleting = |under_way: &Operation| under_way.is(number, QueueDelete::ID);
        if !self.operation.as_ref().is_some_and(deleting) {
            self.tell_cancelled(number);
        }
    }

    /// Tells the client which of its consumers are no more.
    pub(crate) fn tell_cancelled(&mut self, number: u16) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        for tag in std::mem::take(&mut channel.cancelled) {
            if self.capabilities.consumer_cancel_notify {
                let consumer_tag = &*tag;
                let cancel = BasicCancel { consumer_tag, no_wait: true, ..BasicCancel::default() };
                self.output.method(number, cancel);
            }
        }
    }

    pub(crate) fn deliver(&mut self, number: u16, deliveries: Vec<Delivery>) {
        let payload_bytes_max = self.negotiated.payload_bytes_max;
        let Some(channel) = self.channels.get_mut(&number) else { return };
        if channel.is_closing {
            return;
        }
        let is_consuming =
            self.operation.as_ref().is_some_and(|under_way| under_way.is(number, BasicConsume::ID));
        for delivery in deliveries {
            let Channel { tags, consumers, early, unacked, next_tag, settles, .. } = channel;
            let Some((tag, consumer)) =
                tags.get(&delivery.consumer).and_then(|tag| consumers.get_key_value(tag))
            else {
                if is_consuming {
                    // Its consumer is just being made, and the client does not know it yet.
                    early.push(delivery);
                } else {
                    // It was on its way when its consumer went: nobody has seen it.
                    if settles.is_empty() {
                        self.settling.push(number);
                    }
                    settles.push(unseen(&delivery));
                }
                continue;
            };
            let Some(queue) = &consumer.queue else { continue };
            let delivery_tag = *next_tag;
            *next_tag += 1;
            let extra = Extra::of_lease(queue, &delivery);
            put_message(
                number,
                queue,
                &delivery.record,
                &extra,
                payload_bytes_max,
                &mut self.table,
                &mut self.output,
                |exchange, routing_key, output| {
                    let deliver = BasicDeliver {
                        consumer_tag: tag,
                        delivery_tag,
                        redelivered: delivery.attempt > 1,
                        exchange,
                        routing_key,
                        ..BasicDeliver::default()
                    };
                    output.method(number, deliver);
                },
            );
            if !consumer.no_ack {
                let Delivery { group, partition, token, .. } = delivery;
                let due = due(consumer.timeout, &mut self.answers_due);
                unacked.push(delivery_tag, Held::Lease { group, partition, token, due });
            }
        }
    }

    /// Something came for a channel from elsewhere.
    pub(crate) fn posted(&mut self, posted: Posted) {
        let (number, generation) = match &posted {
            Posted::Reply { channel, generation, .. }
            | Posted::Stream { channel, generation, .. }
            | Posted::Panicked { channel, generation } => (*channel, *generation),
        };
        let known = self.channels.get(&number).map_or(0, |channel| channel.generation);
        if known != generation {
            return;
        }
        match posted {
            Posted::Reply { reply, .. } => self.deliver_reply(number, &reply),
            Posted::Stream { records, .. } => self.deliver_stream(number, &records),
            Posted::Panicked { .. } => {
                let exception = Exception::new(ReplyCode::InternalError, "a consumer failed");
                self.fail(Failure { channel: 0, method: MethodId::default(), exception });
            }
        }
    }

    fn deliver_reply(&mut self, number: u16, reply: &Reply) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let replies =
            |(_, consumer): &(&Arc<str>, &Consumer)| matches!(consumer.source, Source::Replies);
        let Some((tag, _)) = channel.consumers.iter().find(replies) else { return };
        let delivery_tag = channel.next_tag;
        channel.next_tag += 1;
        let deliver = BasicDeliver {
            consumer_tag: tag,
            delivery_tag,
            redelivered: false,
            exchange: &reply.exchange,
            routing_key: &reply.routing_key,
            ..BasicDeliver::default()
        };
        self.output.method(number, deliver);
        let (properties, body) = (&reply.properties, reply.body.slices());
        let payload_bytes_max = self.negotiated.payload_bytes_max;
        self.output.content_encoded(number, properties, body, payload_bytes_max);
    }

    fn deliver_stream(&mut self, number: u16, records: &StreamRecords) {
        if records.gone {
            return self.consumer_gone(number, &records.tag);
        }
        let payload_bytes_max = self.negotiated.payload_bytes_max;
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let Channel { consumers, unacked, next_tag, .. } = channel;
        let Some((tag, consumer)) = consumers.get_key_value(&records.tag) else { return };
        let Some(queue) = &consumer.queue else { return };
        for record in &records.records {
            let delivery_tag = *next_tag;
            *next_tag += 1;
            let extra = Extra { header: Some(("x-stream-offset", record.view().offset as i64)) };
            put_message(
                number,
                queue,
                record,
                &extra,
                payload_bytes_max,
                &mut self.table,
                &mut self.output,
                |exchange, routing_key, output| {
                    let deliver = BasicDeliver {
                        consumer_tag: tag,
                        delivery_tag,
                        redelivered: false,
                        exchange,
                        routing_key,
                        ..BasicDeliver::default()
                    };
                    output.method(number, deliver);
                },
            );
            if consumer.no_ack {
                records.credit.give_back();
            } else {
                unacked.push(delivery_tag, Held::Stream(records.credit.clone()));
            }
        }
    }
}

/// When a delivery that is sent now must be answered.
fn due(within: Option<Duration>, first: &mut Option<Instant>) -> Option<(Instant, Duration)> {
    let within = within?;
    let at = Instant::now() + within;
    *first = Some(first.map_or(at, |first| first.min(at)));
    Some((at, within))
}

/// Back to its place, as if it had never left.
fn unseen(delivery: &Delivery) -> Settle {
    Settle {
        group: delivery.group,
        what: delivery.lease(),
        settlement: Settlement::Release { delay_ms: Some(0), count: false },
    }
}

/// What a delivery says besides its message.
struct Extra {
    header: Option<(&'static str, i64)>,
}

impl Extra {
    /// Quorum queues count deliveries that came back.
    fn of_lease(queue: &Queue, delivery: &Delivery) -> Self {
        let counts = queue.kind == QueueKind::Quorum && delivery.attempt > 1;
        Self { header: counts.then(|| ("x-delivery-count", i64::from(delivery.attempt - 1))) }
    }
}

/// Writes a record as a message, after the method that `method` writes for it. `table` is only
/// room to work in.
#[expect(clippy::too_many_arguments, reason = "parts of one session that are borrowed apart")]
fn put_message(
    number: u16,
    queue: &Queue,
    record: &SharedRecord,
    extra: &Extra,
    payload_bytes_max: usize,
    table: &mut BytesMut,
    output: &mut Output,
    method: impl FnOnce(&str, &str, &mut Output),
) {
    let view = record.view();
    let mut message = read_record(&view, table);
    if let Some((name, number)) = extra.header {
        put_header(name, &FieldValue::I64(number), table);
        message.has_headers = true;
    }
    method(message.exchange, message.routing_key.unwrap_or(&queue.name), output);
    let body: Option<Bytes> = view.value.map(|value| record.share(value));
    let properties = message.properties_with(table);
    output.content(number, &properties, body.as_slice(), payload_bytes_max);
}

/// What a type of queue asks of its consumers.
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
    let number = value.as_integer().and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| {
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

fn cannot_take(error: &TakeError, queue: &Queue) -> Exception {
    match error {
        TakeError::UnknownGroup(_) => Exception::not_found(queue.resource()),
        TakeError::Unavailable(error) => {
            Exception::new(ReplyCode::InternalError, error.to_string())
        }
    }
}
