use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use driver::{Failure, Message, Receipt, Sender, Topology};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};

use super::PATIENCE;
use super::client::refused;
use crate::pending::{Outstanding, Window, send_by_post};

/// Resolves receipts from the producer's own thread.
struct Telling;

impl ClientContext for Telling {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!("librdkafka {facility}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("librdkafka: {error}: {reason}");
    }
}

impl ProducerContext for Telling {
    type DeliveryOpaque = Box<Outstanding>;

    fn delivery(&self, result: &DeliveryResult<'_>, outstanding: Box<Outstanding>) {
        outstanding.resolve(match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(refused(error.clone())),
        });
    }
}

/// Header with the id by which Postroad detects a duplicate.
const ID_HEADER: &str = "postroad.id";

/// A new client requests its producer id before it has a connection, and again every half second.
/// Without it, it sends nothing and reports nothing.
const PRODUCER_ID_WITHIN: Duration = Duration::from_millis(100);
const PRODUCER_ID_EVERY: Duration = Duration::from_millis(500);

type Client = ThreadedProducer<Telling>;

/// Whether messages are sent at once or linger for a batch. A client is configured for one of them,
/// and a sender that uses both switches only when nothing is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    AtOnce,
    InCompany,
}

pub(super) struct KafkaSender {
    config: ClientConfig,
    linger: String,
    topics: Vec<String>,
    deduplicate: bool,
    window: Window,
    client: Option<(Way, Client)>,
    /// The way of posted messages.
    posting: Way,
    way: Way,
}

impl fmt::Debug for KafkaSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSender").field("topics", &self.topics).finish_non_exhaustive()
    }
}

impl KafkaSender {
    /// `linger`: milliseconds that posted messages wait for a batch.
    pub(super) fn new(
        config: ClientConfig,
        window: u32,
        linger: String,
        topology: &Topology,
    ) -> Self {
        let posting = if linger == "0" { Way::AtOnce } else { Way::InCompany };
        Self {
            config,
            linger,
            topics: (0..topology.destinations).map(|index| topology.destination(index)).collect(),
            deduplicate: topology.deduplicate.is_some(),
            window: Window::new(window),
            client: None,
            posting,
            way: posting,
        }
    }

    async fn client(&mut self) -> Result<Client, Failure> {
        if self.client.as_ref().is_some_and(|(way, _)| *way != self.way) {
            self.window.drained().await;
            drop_client(self.client.take()).await?;
        }
        if let Some((_, client)) = &self.client {
            return Ok(client.clone());
        }
        let mut config = self.config.clone();
        let linger = if self.way == Way::AtOnce { "0" } else { &self.linger };
        config.set("linger.ms", linger);
        let client: Client = config.create_with_context(Telling).map_err(refused)?;
        self.client = Some((self.way, client.clone()));
        Ok(client)
    }

    async fn produce(&mut self, destination: u32, message: &Message, receipt: Receipt) {
        // Taken before the room: a switch of the client waits until all room is free.
        let client = self.client().await;
        let outstanding = Box::new(Outstanding { receipt, room: self.window.enter().await });
        let Some(topic) = self.topics.get(destination as usize).cloned() else {
            outstanding.resolve(Err(Failure::refused("there is no such destination")));
            return;
        };
        let client = match client {
            Ok(client) => client,
            Err(failure) => return outstanding.resolve(Err(failure)),
        };
        let key = message.key();
        let mut record = BaseRecord::with_opaque_to(&topic, outstanding).key(&key);
        if self.deduplicate {
            let id = message.id();
            let header = Header { key: ID_HEADER, value: Some(&id) };
            record = record.headers(OwnedHeaders::new().insert(header));
        }
        // The client always copies the body.
        if let Err((error, record)) = client.send(record.payload(&message.body[..])) {
            record.delivery_opaque.resolve(Err(refused(error)));
        }
    }

    /// Waits until the server has replied to everything.
    async fn deliver(&self) -> Result<(), Failure> {
        let Some((_, client)) = self.client.clone() else { return Ok(()) };
        let delivered = tokio::task::spawn_blocking(move || client.flush(PATIENCE));
        delivered.await.map_err(Failure::unknown)?.map_err(refused)
    }
}

/// Time since its creation after which a client has its producer id, if it connected after
/// `connected`.
fn has_producer_id_at(connected: Duration) -> Duration {
    let asks = connected.div_duration_f64(PRODUCER_ID_EVERY).ceil().max(1.0);
    PRODUCER_ID_EVERY.mul_f64(asks) + PRODUCER_ID_WITHIN
}

/// Dropping a client joins a thread.
async fn drop_client(client: Option<(Way, Client)>) -> Result<(), Failure> {
    tokio::task::spawn_blocking(move || drop(client)).await.map_err(Failure::unknown)
}

#[async_trait]
impl Sender for KafkaSender {
    async fn ready(&mut self, posts: bool) -> Result<(), Failure> {
        self.way = if posts { self.posting } else { Way::AtOnce };
        let client = self.client().await?;
        let made = Instant::now();
        // It connects only at the first request.
        let known = tokio::task::spawn_blocking(move || {
            client.client().fetch_metadata(None, PATIENCE).map(drop)
        });
        known.await.map_err(Failure::unknown)?.map_err(refused)?;
        if self.config.get("enable.idempotence") == Some("true") {
            let connected = made.elapsed();
            tokio::time::sleep(has_producer_id_at(connected) - connected).await;
        }
        Ok(())
    }

    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        self.way = Way::AtOnce;
        send_by_post(&mut Sending(self), destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        self.way = self.posting;
        self.produce(destination, &message, receipt).await;
    }

    // There is no `flush`: lingering messages are soon sent by themselves. The client's own flush
    // also waits for the server, and would allow only one batch in flight.

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.deliver().await?;
        self.window.drained().await;
        drop_client(self.client.take()).await
    }
}

/// The sender while it sends and does not post.
#[derive(Debug)]
struct Sending<'a>(&'a mut KafkaSender);

#[async_trait]
impl Sender for Sending<'_> {
    async fn send(&mut self, destination: u32, messages: &[Message]) -> Result<(), Failure> {
        self.0.send(destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Message, receipt: Receipt) {
        self.0.produce(destination, &message, receipt).await;
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_client_is_waited_for_until_its_next_producer_id_request() {
        let at = |connected| has_producer_id_at(Duration::from_millis(connected)).as_millis();
        assert_eq!([at(0), at(3), at(499), at(501), at(1_200)], [600, 600, 600, 1_100, 1_600]);
    }
}
