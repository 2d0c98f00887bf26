//! A record as it is sent to a client: its method, its properties, and its body, which is a slice of the record's
//! batch. Consumers, streams and `basic.get` send the same frames.

use broker::delivery::Delivery;
use bytes::{Bytes, BytesMut};
use message::{put_header, read_record};
use record::SharedRecord;
use topology::{Queue, QueueKind};

use crate::codec::methods::{BasicDeliver, BasicGetOk};
use crate::codec::table::FieldValue;
use crate::output::Output;

/// A record, and the arguments of its delivery method.
pub(crate) struct OutgoingDelivery<'a> {
    queue: &'a Queue,
    record: &'a SharedRecord,
    delivery_tag: u64,
    redelivered: bool,
    /// Added to the headers that the publisher set.
    header: Option<(&'static str, i64)>,
}

impl<'a> OutgoingDelivery<'a> {
    pub(crate) fn from_lease(queue: &'a Queue, delivery: &'a Delivery, delivery_tag: u64) -> Self {
        let redelivered = delivery.attempt > 1;
        // Quorum queues count redeliveries.
        let counts = redelivered && queue.kind == QueueKind::Quorum;
        let header = counts.then(|| ("x-delivery-count", i64::from(delivery.attempt - 1)));
        Self { queue, record: &delivery.record, delivery_tag, redelivered, header }
    }

    pub(crate) fn from_stream(
        queue: &'a Queue,
        record: &'a SharedRecord,
        delivery_tag: u64,
    ) -> Self {
        let header = Some(("x-stream-offset", record.view().offset as i64));
        Self { queue, record, delivery_tag, redelivered: false, header }
    }
}

/// The method that precedes the content.
#[derive(Clone, Copy)]
pub(crate) enum ContentMethod<'a> {
    /// `basic.deliver`
    Delivered { consumer_tag: &'a str },
    /// `basic.get-ok`
    Got { message_count: u32 },
}

/// The parts of a session needed to write a record, borrowed separately from its channels.
pub(crate) struct Writer<'a> {
    pub(crate) channel: u16,
    pub(crate) payload_bytes_max: usize,
    /// Scratch buffer.
    pub(crate) table: &'a mut BytesMut,
    pub(crate) output: &'a mut Output,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, outgoing: &OutgoingDelivery<'_>, announced: ContentMethod<'_>) {
        let OutgoingDelivery { queue, record, delivery_tag, redelivered, header } = *outgoing;
        let view = record.view();
        let mut message = read_record(&view, self.table);
        if let Some((name, number)) = header {
            put_header(name, &FieldValue::I64(number), self.table);
            message.has_headers = true;
        }
        let exchange = message.exchange;
        let routing_key = message.routing_key.unwrap_or(&queue.name);
        match announced {
            ContentMethod::Delivered { consumer_tag } => self.output.method(
                self.channel,
                BasicDeliver {
                    consumer_tag,
                    delivery_tag,
                    redelivered,
                    exchange,
                    routing_key,
                    ..BasicDeliver::default()
                },
            ),
            ContentMethod::Got { message_count } => self.output.method(
                self.channel,
                BasicGetOk {
                    delivery_tag,
                    redelivered,
                    exchange,
                    routing_key,
                    message_count,
                    ..BasicGetOk::default()
                },
            ),
        }
        let body: Option<Bytes> = view.value.map(|value| record.share(value));
        let properties = message.properties_with(self.table);
        self.output.content(self.channel, &properties, body.as_slice(), self.payload_bytes_max);
    }
}
