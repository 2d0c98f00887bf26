use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use driver::{Failure, Message, Receipt, Sender, Tier};
use lapin::options::BasicPublishOptions;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Channel, Confirmation, Connection};

use super::{close, refused};
use crate::pending::{Confirmer, Outstanding, Window, send_by_post};
use crate::told::named_values;

/// `delivery-mode` of messages that survive a restart of the server.
const PERSISTENT: u8 = 2;
/// Header that Postroad uses as a message's key.
const KEY_HEADER: &str = "postroad.key";

/// Unroutable messages are returned instead of being confirmed.
const MANDATORY: bool = true;

/// Exchange and routing key.
pub(super) type Way = Arc<(ShortString, ShortString)>;

/// Routes and properties of a sender's messages.
pub(super) struct Shape {
    /// By destination, then by part.
    pub(super) ways: Vec<Vec<Way>>,
    /// Whether messages carry their lane in a header, by which Postroad orders them.
    pub(super) keyed: bool,
    /// See [`is_durable`].
    pub(super) durable: bool,
    /// Largest number of unconfirmed messages.
    pub(super) window: u32,
}

pub(super) struct AmqpSender {
    connection: Connection,
    channel: Channel,
    ways: Vec<Vec<Way>>,
    keyed: bool,
    properties: BasicProperties,
    window: Window,
    confirmer: Confirmer,
}

impl fmt::Debug for AmqpSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpSender").field("ways", &self.ways).finish_non_exhaustive()
    }
}

/// Settings of senders for the result. `durable`: see [`is_durable`].
pub(super) fn settings(window: u32, durable: bool) -> BTreeMap<String, String> {
    named_values(&[
        ("window", &window),
        ("publisher.confirms", &true),
        ("publisher.mandatory", &MANDATORY),
        ("publisher.persistent", &durable),
    ])
}

/// Whether queues and messages survive a restart of the server.
pub(super) fn is_durable(tier: Tier) -> bool {
    tier != Tier::T0
}

impl AmqpSender {
    pub(super) fn new(connection: Connection, channel: Channel, shape: Shape) -> Self {
        let Shape { ways, keyed, durable, window } = shape;
        let mut properties = BasicProperties::default();
        if durable {
            properties = properties.with_delivery_mode(PERSISTENT);
        }
        let (window, confirmer) = (Window::new(window), Confirmer::spawn());
        Self { connection, channel, ways, keyed, properties, window, confirmer }
    }

    fn properties(&self, message: &Message) -> BasicProperties {
        let properties = self.properties.clone();
        if !self.keyed {
            return properties;
        }
        let mut headers = FieldTable::default();
        headers.insert(KEY_HEADER.into(), AMQPValue::LongString(message.key().into()));
        properties.with_headers(headers)
    }
}

/// Publishes at its first poll, and ends with the server's confirm.
async fn publish(
    channel: Channel,
    way: Way,
    body: Bytes,
    properties: BasicProperties,
) -> Result<(), Failure> {
    let (exchange, key) = (way.0.clone(), way.1.clone());
    let options = BasicPublishOptions { mandatory: MANDATORY, ..Default::default() };
    let published = channel.basic_publish(exchange, key, options, &body, properties).await;
    match published.map_err(refused)?.await.map_err(refused)? {
        Confirmation::Ack(None) => Ok(()),
        Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned)) => {
            Err(Failure::refused(format!("returned: {}", returned.reply_text)))
        }
        Confirmation::Nack(None) => Err(Failure::refused("nack")),
        Confirmation::NotRequested => Err(Failure::unknown("the channel gives no confirms")),
    }
}

#[async_trait]
impl Sender for AmqpSender {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        send_by_post(self, destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        let outstanding = Outstanding { receipt, room: self.window.enter().await };
        let Some(ways) = self.ways.get(destination as usize) else {
            return outstanding.resolve(Err(Failure::refused("there is no such destination")));
        };
        let way = Arc::clone(&ways[message.lane as usize % ways.len()]);
        let properties = self.properties(&message);
        let publishing = publish(self.channel.clone(), way, message.body, properties);
        self.confirmer.begin(publishing, outstanding).await;
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        self.confirmer.close().await;
        close(self.connection).await
    }
}
