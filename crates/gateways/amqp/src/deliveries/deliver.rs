//! Deliveries: the hot path out.

use std::sync::Arc;

use broker::delivery::{ConsumerId, Delivery, Event, Settle, Settlement};

use crate::channel::consumer::{Consumer, Source};
use crate::channel::{Channel, UnackedDelivery};
use crate::codec::methods::{BasicCancel, BasicConsume, BasicDeliver, MethodId, QueueDelete};
use crate::deliveries::answer_timeout::due;
use crate::deliveries::outgoing::{ContentMethod, OutgoingDelivery, Writer};
use crate::errors::{Exception, ReplyCode};
use crate::failure::Failure;
use crate::posted::{PostedMessage, Reply, StreamRecords};
use crate::session::Session;
use crate::session::operation::Operation;

impl Session {
    pub(crate) fn lease_event(&mut self, number: u16, generation: u32, event: Event) {
        let known = self.channels.get(&number).map_or(0, |channel| channel.generation);
        if known != generation {
            return;
        }
        match event {
            Event::Deliveries(deliveries) => self.deliver(number, deliveries),
            // RabbitMQ does not notify a client which consumer is the active one.
            Event::Active { consumer, active } => self.note_active(number, consumer, active),
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

    fn note_active(&mut self, number: u16, consumer: ConsumerId, active: bool) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let known = channel.tags.get(&consumer).and_then(|tag| channel.consumers.get_mut(tag));
        match known {
            Some(known) => known.is_active = active,
            None => channel.early_active = Some((consumer, active)),
        }
    }

    /// Removes a consumer whose queue was deleted. Notifies the client if it supports `consumer_cancel_notify`.
    fn consumer_gone(&mut self, number: u16, tag: &Arc<str>) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        if channel.consumers.remove(tag).is_none() {
            return;
        }
        channel.cancelled.push(Arc::clone(tag));
        let deleting = |under_way: &Operation| under_way.is(number, QueueDelete::ID);
        if !self.operation.as_ref().is_some_and(deleting) {
            self.notify_cancelled(number);
        }
    }

    /// Sends `basic.cancel` for the consumers that were removed.
    pub(crate) fn notify_cancelled(&mut self, number: u16) {
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
        let before = self.output.bytes();
        let delivered = self.put_deliveries(number, deliveries);
        self.connection.traffic().delivered(delivered as u64);
        self.charge_delivered(self.output.bytes().saturating_sub(before));
    }

    /// Writes the deliveries to the output. Returns the bytes of their records, as encoded in their batches.
    fn put_deliveries(&mut self, number: u16, deliveries: Vec<Delivery>) -> usize {
        let mut writer = Writer {
            channel: number,
            payload_bytes_max: self.negotiated.payload_bytes_max,
            table: &mut self.table,
            output: &mut self.output,
        };
        let Some(channel) = self.channels.get_mut(&number) else { return 0 };
        if channel.is_closing {
            return 0;
        }
        let is_consuming =
            self.operation.as_ref().is_some_and(|under_way| under_way.is(number, BasicConsume::ID));
        let mut delivered = 0;
        for delivery in deliveries {
            let Channel { tags, consumers, early, unacked, next_tag, settles, .. } = channel;
            let Some((tag, consumer)) =
                tags.get(&delivery.consumer).and_then(|tag| consumers.get_key_value(tag))
            else {
                if is_consuming {
                    // `basic.consume` is not answered yet, so the client does not know the consumer.
                    early.push(delivery);
                } else {
                    // The consumer was removed while this delivery was in flight. No client has received it.
                    if settles.is_empty() {
                        self.settling.push(number);
                    }
                    settles.push(release_unsent(&delivery));
                }
                continue;
            };
            let Some(queue) = &consumer.queue else { continue };
            let delivery_tag = *next_tag;
            *next_tag += 1;
            writer.put(
                &OutgoingDelivery::from_lease(queue, &delivery, delivery_tag),
                ContentMethod::Delivered { consumer_tag: tag },
            );
            delivered += delivery.record.encoded_len();
            if !consumer.no_ack {
                let Delivery { group, partition, token, .. } = delivery;
                let due = due(consumer.timeout, &mut self.answers_due);
                unacked.push(delivery_tag, UnackedDelivery::Lease { group, partition, token, due });
            }
        }
        delivered
    }

    /// Handles a message that another task posted to a channel.
    pub(crate) fn posted(&mut self, posted: PostedMessage) {
        let (number, generation) = match &posted {
            PostedMessage::Reply { channel, generation, .. }
            | PostedMessage::Stream { channel, generation, .. }
            | PostedMessage::Panicked { channel, generation } => (*channel, *generation),
        };
        let known = self.channels.get(&number).map_or(0, |channel| channel.generation);
        if known != generation {
            return;
        }
        match posted {
            PostedMessage::Reply { reply, .. } => self.deliver_reply(number, &reply),
            PostedMessage::Stream { records, .. } => {
                let before = self.output.bytes();
                let delivered = self.deliver_stream(number, &records);
                self.connection.traffic().delivered(delivered as u64);
                self.charge_delivered(self.output.bytes().saturating_sub(before));
            }
            PostedMessage::Panicked { .. } => {
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

    /// See [`Session::put_deliveries`].
    fn deliver_stream(&mut self, number: u16, records: &StreamRecords) -> usize {
        if records.gone {
            self.consumer_gone(number, &records.tag);
            return 0;
        }
        let mut writer = Writer {
            channel: number,
            payload_bytes_max: self.negotiated.payload_bytes_max,
            table: &mut self.table,
            output: &mut self.output,
        };
        let Some(channel) = self.channels.get_mut(&number) else { return 0 };
        let Channel { consumers, unacked, next_tag, .. } = channel;
        let Some((tag, consumer)) = consumers.get_key_value(&records.tag) else { return 0 };
        let Some(queue) = &consumer.queue else { return 0 };
        let mut delivered = 0;
        for record in &records.records {
            let delivery_tag = *next_tag;
            *next_tag += 1;
            writer.put(
                &OutgoingDelivery::from_stream(queue, record, delivery_tag),
                ContentMethod::Delivered { consumer_tag: tag },
            );
            delivered += record.encoded_len();
            if consumer.no_ack {
                records.credit.give_back();
            } else {
                unacked.push(delivery_tag, UnackedDelivery::Stream(records.credit.clone()));
            }
        }
        delivered
    }
}

/// Releases a delivery that was never sent. Its attempt does not count.
fn release_unsent(delivery: &Delivery) -> Settle {
    Settle {
        group: delivery.group,
        what: delivery.lease(),
        settlement: Settlement::Release { delay_ms: Some(0), count: false },
    }
}
