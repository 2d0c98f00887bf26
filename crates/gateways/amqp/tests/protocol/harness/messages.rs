//! A client's use of queues and messages: declare, publish, consume and acknowledge.

use bytes::{Bytes, BytesMut};
use gateway_amqp::codec::fields::EncodedTable;
use gateway_amqp::codec::frame::{self, ContentHeader, FrameKind};
use gateway_amqp::codec::methods::*;
use gateway_amqp::codec::properties::{Properties, WireProperties};
use gateway_amqp::codec::table::{FieldTable, FieldValue};

use super::client::{Client, ReceivedFrame};

/// A received message, with its method.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) method: ReceivedFrame,
    pub(crate) properties: Bytes,
    pub(crate) body: Vec<u8>,
}

impl Message {
    pub(crate) fn deliver(&self) -> BasicDeliver<'_> {
        match self.method.method() {
            Method::BasicDeliver(deliver) => deliver,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn properties(&self) -> Properties<'_> {
        Properties::decode(&self.properties).expect("properties")
    }

    pub(crate) fn headers(&self) -> FieldTable {
        let headers = self.properties().headers.unwrap_or_default();
        FieldTable::decode(headers.0).expect("a table")
    }

    pub(crate) fn header(&self, name: &str) -> Option<FieldValue> {
        self.headers().get(name).cloned()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    pub(crate) async fn declare(&mut self, queue: &str) -> QueueCounts {
        self.declare_with(queue, &[]).await
    }

    pub(crate) async fn declare_with(
        &mut self,
        queue: &str,
        arguments: &[(&str, FieldValue)],
    ) -> QueueCounts {
        let arguments = table(arguments);
        let declare = QueueDeclare {
            queue,
            durable: true,
            arguments: EncodedTable(&arguments),
            ..QueueDeclare::default()
        };
        self.declared(1, declare).await
    }

    /// Declares a queue exclusive to this connection and returns its name.
    pub(crate) async fn declare_exclusive(&mut self) -> String {
        let declare = QueueDeclare { exclusive: true, ..QueueDeclare::default() };
        self.declared(1, declare).await.name
    }

    /// Returns the counts of messages and consumers.
    pub(crate) async fn queue_counts(&mut self, queue: &str) -> QueueCounts {
        let declare = QueueDeclare { queue, passive: true, ..QueueDeclare::default() };
        self.declared(1, declare).await
    }

    pub(crate) async fn declared(
        &mut self,
        channel: u16,
        declare: QueueDeclare<'_>,
    ) -> QueueCounts {
        let came = self.call(channel, declare).await;
        let Method::QueueDeclareOk(ok) = came.method() else { panic!("{:?}", came.method()) };
        QueueCounts {
            name: ok.queue.to_owned(),
            messages: ok.message_count,
            consumers: ok.consumer_count,
        }
    }

    pub(crate) async fn bind(&mut self, queue: &str, exchange: &str, routing_key: &str) {
        let bind = QueueBind { queue, exchange, routing_key, ..QueueBind::default() };
        let came = self.call(1, bind).await;
        assert!(matches!(came.method(), Method::QueueBindOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn select_confirms(&mut self, channel: u16) {
        let came = self.call(channel, ConfirmSelect::default()).await;
        assert!(matches!(came.method(), Method::ConfirmSelectOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn publish(&mut self, channel: u16, exchange: &str, key: &str, body: &[u8]) {
        let publish = BasicPublish { exchange, routing_key: key, ..BasicPublish::default() };
        self.publish_with(channel, publish, &Properties::default(), body).await;
    }

    pub(crate) async fn publish_with(
        &mut self,
        channel: u16,
        publish: BasicPublish<'_>,
        properties: &Properties<'_>,
        body: &[u8],
    ) {
        let out = self.content(channel, publish, properties, body);
        self.send_bytes(&out).await;
    }

    /// Builds all frames of a message.
    pub(crate) fn content<'a>(
        &self,
        channel: u16,
        method: impl Into<Method<'a>>,
        properties: &Properties<'_>,
        body: &[u8],
    ) -> BytesMut {
        let mut out = BytesMut::new();
        frame::put_method(channel, method, &mut out);
        frame::put(FrameKind::Header, channel, &mut out, |out| {
            ContentHeader::put_fixed(60, body.len() as u64, out);
            properties.encode(out);
        });
        for part in body.chunks(self.payload_bytes_max) {
            frame::put(FrameKind::Body, channel, &mut out, |out| out.extend_from_slice(part));
        }
        out
    }

    /// Awaits the confirms of the channel up to `tag`.
    pub(crate) async fn confirmed_up_to(&mut self, channel: u16, tag: u64) {
        let mut confirmed = 0;
        while confirmed < tag {
            let came = self.method(channel).await;
            let Method::BasicAck(ack) = came.method() else { panic!("{:?}", came.method()) };
            assert!(ack.delivery_tag > confirmed, "{ack:?} after {confirmed}");
            confirmed = ack.delivery_tag;
        }
        assert_eq!(confirmed, tag);
    }

    /// Reads the rest of a message after its method.
    pub(crate) async fn message(&mut self, method: ReceivedFrame) -> Message {
        let came = self.frame().await.expect("a header");
        assert_eq!((came.kind, came.channel), (FrameKind::Header, method.channel));
        let header = ContentHeader::decode(&came.payload).expect("a header");
        let properties = came.payload.slice_ref(header.properties);
        let mut body = Vec::new();
        while (body.len() as u64) < header.body_bytes {
            let came = self.frame().await.expect("a body");
            assert_eq!((came.kind, came.channel), (FrameKind::Body, method.channel));
            body.extend_from_slice(&came.payload);
        }
        assert_eq!(body.len() as u64, header.body_bytes);
        Message { method, properties, body }
    }

    /// Returns the next message that is delivered or returned.
    pub(crate) async fn next(&mut self, channel: u16) -> Message {
        let method = self.method(channel).await;
        self.message(method).await
    }

    pub(crate) async fn texts(&mut self, channel: u16, count: usize) -> Vec<String> {
        let mut texts = Vec::new();
        for _ in 0..count {
            texts.push(self.next(channel).await.text());
        }
        texts
    }

    /// Gets one message without acknowledgement. Returns it with its body.
    pub(crate) async fn get(&mut self, channel: u16, queue: &str) -> Option<(Message, Vec<u8>)> {
        let get = BasicGet { queue, no_ack: true, ..BasicGet::default() };
        let came = self.call(channel, get).await;
        if matches!(came.method(), Method::BasicGetEmpty(_)) {
            return None;
        }
        let message = self.message(came).await;
        let body = message.body.clone();
        Some((message, body))
    }

    pub(crate) async fn consume(&mut self, channel: u16, queue: &str, consumer_tag: &str) {
        let consume = BasicConsume { queue, consumer_tag, ..BasicConsume::default() };
        self.consume_with(channel, consume, &[]).await;
    }

    pub(crate) async fn consume_with(
        &mut self,
        channel: u16,
        consume: BasicConsume<'_>,
        arguments: &[(&str, FieldValue)],
    ) {
        let arguments = table(arguments);
        let consume = BasicConsume { arguments: EncodedTable(&arguments), ..consume };
        let came = self.call(channel, consume).await;
        assert!(matches!(came.method(), Method::BasicConsumeOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn prefetch(&mut self, channel: u16, prefetch_count: u16, global: bool) {
        let qos = BasicQos { prefetch_count, global, ..BasicQos::default() };
        let came = self.call(channel, qos).await;
        assert!(matches!(came.method(), Method::BasicQosOk(_)), "{:?}", came.method());
    }

    pub(crate) async fn ack(&mut self, channel: u16, delivery_tag: u64, multiple: bool) {
        self.send(channel, BasicAck { delivery_tag, multiple, ..BasicAck::default() }).await;
    }

    pub(crate) async fn nack(&mut self, channel: u16, delivery_tag: u64, requeue: bool) {
        self.send(channel, BasicNack { delivery_tag, requeue, ..BasicNack::default() }).await;
    }

    /// Publishes texts to a queue and waits until they are stored.
    pub(crate) async fn fill(&mut self, queue: &str, texts: &[&str]) {
        for text in texts {
            self.publish(1, "", queue, text.as_bytes()).await;
        }
        self.queue_counts(queue).await;
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct QueueCounts {
    pub(crate) name: String,
    pub(crate) messages: u32,
    pub(crate) consumers: u32,
}

pub(crate) fn table(fields: &[(&str, FieldValue)]) -> Bytes {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    FieldTable(fields.collect()).to_bytes()
}
