//! RabbitMQ's streams, by AMQP 0-9-1: a log that is read by position.
//!
//! *Sent* means: a majority of the stream's replicas have it. A stream is never synced before the
//! confirm, so it is in the page cache (T1 with one replica, T2 with more).
//!
//! *Hiding*: AMQP has neither groups nor stored positions for streams. So each stream has a classic
//! queue for each subscription that provides both. Its only message is the position, and its
//! exclusive consumer owns the stream until its connection ends. Receivers claim one stream at a
//! time, so that concurrent receivers divide them. Positions are written at most every 100 ms and
//! when a receiver closes; released messages return to the same receiver.
//!
//! A destination has `partitions` streams, by lane. Settings: `window`, `prefetch`, `vhost`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use driver::{
    About, DeliveryId, Driver, Failure, Lanes, RECEIVE_WAIT, Received, Receiver, Return, Sender,
    Settle, Style, Target, Tier, Topology,
};
use futures_util::FutureExt;
use futures_util::stream::{SelectAll, StreamExt};
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, Consumer};
use tokio::time::timeout;

use super::{Options, Server, close, greeting, refused, sender};
use crate::positions::Positions;
use crate::told::{ms, named_values};

const SYSTEM: &str = "rabbitmq-stream";
const OFFSET: &str = "x-stream-offset";
const COMMIT_EVERY: Duration = Duration::from_millis(100);
/// Pause before a further claim, which lets other receivers claim first.
const CLAIM_EVERY: Duration = Duration::from_millis(20);
/// Pause after a claim that failed.
const CLAIM_AGAIN: Duration = Duration::from_millis(500);
const PERSISTENT: u8 = 2;

#[derive(Debug)]
struct Streams {
    server: Server,
    options: Options,
}

pub(crate) fn connect(target: &Target) -> Result<Arc<dyn Driver>, Failure> {
    let mut settings = target.settings();
    let options = Options::take(&mut settings)?;
    let server = Server::of(target, &mut settings)?;
    settings.done()?;
    Ok(Arc::new(Streams { server, options }))
}

fn streams(topology: &Topology, destination: u32) -> impl Iterator<Item = String> + '_ {
    let name = topology.destination(destination);
    (0..topology.partitions.max(1)).map(move |part| format!("{name}-{part}"))
}

fn position_queue(stream: &str, subscription: u32) -> String {
    format!("{stream}-position-{subscription}")
}

async fn write_position(channel: &Channel, queue: &str, position: i64) -> Result<(), Failure> {
    let text = position.to_string();
    let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
    let options = BasicPublishOptions::default();
    let written =
        channel.basic_publish("".into(), queue.into(), options, text.as_bytes(), properties).await;
    written.map_err(refused)?.await.map_err(refused).map(drop)
}

impl Streams {
    async fn delete(&self, channel: &Channel, topology: &Topology) -> Result<(), Failure> {
        for destination in 0..topology.destinations {
            for stream in streams(topology, destination) {
                let positions = (0..topology.subscriptions.max(1))
                    .map(|subscription| position_queue(&stream, subscription));
                for queue in positions.chain([stream.clone()]) {
                    let options = QueueDeleteOptions::default();
                    channel.queue_delete(queue.as_str().into(), options).await.map_err(refused)?;
                }
            }
        }
        Ok(())
    }

    async fn declare(&self, channel: &Channel, topology: &Topology) -> Result<(), Failure> {
        let options = QueueDeclareOptions { durable: true, ..Default::default() };
        for destination in 0..topology.destinations {
            for stream in streams(topology, destination) {
                let mut arguments = FieldTable::default();
                arguments.insert("x-queue-type".into(), AMQPValue::LongString("stream".into()));
                let replicas = topology.replicas.max(1) as i32;
                arguments.insert("x-initial-cluster-size".into(), AMQPValue::LongInt(replicas));
                let declared = channel.queue_declare(stream.as_str().into(), options, arguments);
                declared.await.map_err(refused)?;
                for subscription in 0..topology.subscriptions.max(1) {
                    let queue = position_queue(&stream, subscription);
                    let none = FieldTable::default();
                    let declared = channel.queue_declare(queue.as_str().into(), options, none);
                    declared.await.map_err(refused)?;
                    write_position(channel, &queue, 0).await?;
                }
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Driver for Streams {
    fn about(&self) -> About {
        About {
            system: SYSTEM,
            title: "RabbitMQ, streams by AMQP 0-9-1",
            client: "lapin 4.12",
            sent_means: "confirmed: it is in the page cache of a majority of the stream's replicas",
            hidden_means: "by stream, until the connection ends",
            tiers: &[Tier::T1, Tier::T2],
            styles: &[Style::Log],
            lanes: Lanes::Partitioned,
            returns: Return::Connection,
            subscriptions: true,
            tells_redelivery: false,
            settles_confirmed: false,
            pipelined: true,
        }
    }

    fn settings(&self, topology: &Topology) -> BTreeMap<String, String> {
        let mut settings = sender::settings(self.options.window, sender::is_durable(topology.tier));
        settings.extend(named_values(&[
            ("prefetch", &self.options.prefetch),
            ("positions are written each", &ms(COMMIT_EVERY)),
            ("queue.x-queue-type", &"stream"),
            ("queue.x-initial-cluster-size", &topology.replicas.max(1)),
        ]));
        settings
    }

    async fn version(&self) -> Result<String, Failure> {
        let product = greeting::product(self.server.next_address()).await?;
        let (connection, _channel) = self.server.open().await?;
        close(connection).await?;
        Ok(product)
    }

    async fn create(&self, topology: &Topology) -> Result<(), Failure> {
        self.about().offers(topology)?;
        let (connection, channel) = self.server.open().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(refused)?;
        self.delete(&channel, topology).await?;
        self.declare(&channel, topology).await?;
        close(connection).await
    }

    async fn remove(&self, topology: &Topology) -> Result<(), Failure> {
        let (connection, channel) = self.server.open().await?;
        self.delete(&channel, topology).await?;
        close(connection).await
    }

    async fn sender(&self, topology: &Topology) -> Result<Box<dyn Sender>, Failure> {
        let (connection, channel) = self.server.open().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(refused)?;
        let way = |stream: String| Arc::new(("".into(), stream.into()));
        let ways = |destination| streams(topology, destination).map(way).collect();
        let ways = (0..topology.destinations).map(ways).collect();
        let window = self.options.window;
        let durable = sender::is_durable(topology.tier);
        let shape = sender::Shape { ways, keyed: false, durable, window };
        Ok(Box::new(sender::AmqpSender::new(connection, channel, shape)))
    }

    async fn receiver(
        &self,
        topology: &Topology,
        destinations: &[u32],
        subscription: u32,
    ) -> Result<Box<dyn Receiver>, Failure> {
        let (connection, _channel) = self.server.open().await?;
        let unclaimed = destinations.iter().flat_map(|&index| streams(topology, index)).collect();
        let mut receiver = StreamReceiver {
            connection,
            subscription,
            prefetch: self.options.prefetch,
            unclaimed,
            claim_at: Instant::now(),
            claims: Vec::new(),
            arriving: SelectAll::new(),
            positions: Positions::default(),
            bodies: HashMap::new(),
            again: VecDeque::new(),
            committed_at: Instant::now(),
        };
        receiver.claim_one().await?;
        Ok(Box::new(receiver))
    }
}

/// A stream that this receiver has claimed.
struct Claim {
    channel: Channel,
    queue: String,
    positions: Consumer,
    /// Messages that hold the position, unacknowledged meanwhile.
    held: Vec<u64>,
}

struct StreamReceiver {
    connection: Connection,
    subscription: u32,
    prefetch: u16,
    unclaimed: VecDeque<String>,
    claim_at: Instant,
    claims: Vec<Claim>,
    /// Each delivery with the index of its claim.
    arriving: SelectAll<futures_util::stream::BoxStream<'static, (u32, lapin::Result<Delivery>)>>,
    positions: Positions,
    /// Unsettled deliveries: claim, offset and body.
    bodies: HashMap<u64, (u32, i64, Bytes)>,
    /// Released messages.
    again: VecDeque<(u32, i64, Bytes)>,
    committed_at: Instant,
}

impl fmt::Debug for StreamReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReceiver").field("claims", &self.claims.len()).finish_non_exhaustive()
    }
}

fn offset_of(delivery: &Delivery) -> Option<i64> {
    let headers = delivery.properties.headers().as_ref()?;
    match headers.inner().get(OFFSET)? {
        AMQPValue::LongLongInt(offset) => Some(*offset),
        AMQPValue::LongInt(offset) => Some(i64::from(*offset)),
        AMQPValue::LongUInt(offset) => Some(i64::from(*offset)),
        _ => None,
    }
}

impl StreamReceiver {
    /// Claims the next stream, if it is free.
    async fn claim_one(&mut self) -> Result<(), Failure> {
        let Some(stream) = self.unclaimed.pop_front() else { return Ok(()) };
        let channel = self.connection.create_channel().await.map_err(refused)?;
        channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(refused)?;
        channel.basic_qos(self.prefetch, BasicQosOptions::default()).await.map_err(refused)?;
        let queue = position_queue(&stream, self.subscription);
        let options = BasicConsumeOptions { exclusive: true, ..Default::default() };
        let none = FieldTable::default();
        let consumed = channel.basic_consume(queue.as_str().into(), "".into(), options, none);
        let Ok(mut positions) = consumed.await else {
            // Another receiver owns it; the server closed the channel for that.
            self.unclaimed.push_back(stream);
            self.claim_at = Instant::now() + CLAIM_AGAIN;
            return Ok(());
        };
        self.claim_at = Instant::now() + CLAIM_EVERY;
        let (mut held, mut position) = (Vec::new(), 0);
        let mut wait = RECEIVE_WAIT;
        while let Ok(Some(Ok(found))) = timeout(wait, positions.next()).await {
            let text = String::from_utf8_lossy(&found.data);
            position = position.max(text.parse().unwrap_or(0));
            held.push(found.delivery_tag);
            // After a crash there may be several positions, and they arrive together.
            wait = Duration::from_millis(5);
        }
        let place = self.claims.len() as u32;
        self.positions.begin((place, 0), position);
        let mut arguments = FieldTable::default();
        arguments.insert(OFFSET.into(), AMQPValue::LongLongInt(position));
        let options = BasicConsumeOptions::default();
        let consumed = channel.basic_consume(stream.as_str().into(), "".into(), options, arguments);
        let consumer = consumed.await.map_err(refused)?;
        self.arriving.push(consumer.map(move |delivery| (place, delivery)).boxed());
        self.claims.push(Claim { channel, queue, positions, held });
        Ok(())
    }

    async fn hand_out(
        &mut self,
        (place, delivery): (u32, lapin::Result<Delivery>),
    ) -> Result<Option<Received>, Failure> {
        let delivery = delivery.map_err(refused)?;
        let offset = offset_of(&delivery)
            .ok_or_else(|| Failure::unknown("a message of a stream came without its offset"))?;
        // For streams an acknowledgement only grants credit.
        let tag = delivery.delivery_tag;
        let channel = &self.claims[place as usize].channel;
        channel.basic_ack(tag, BasicAckOptions::default()).await.map_err(refused)?;
        Ok(self.give(place, offset, Bytes::from(delivery.data)))
    }

    fn give(&mut self, place: u32, offset: i64, body: Bytes) -> Option<Received> {
        let id = self.positions.came((place, 0), offset)?;
        self.bodies.insert(id, (place, offset, body.clone()));
        Some(Received { id: DeliveryId(id), body, redelivered: None })
    }

    async fn commit(&mut self) -> Result<(), Failure> {
        self.committed_at = Instant::now();
        for ((place, _), position) in self.positions.moved() {
            let claim = &mut self.claims[place as usize];
            write_position(&claim.channel, &claim.queue, position).await?;
            // The new position is safe, so the old ones can be removed.
            let came = timeout(RECEIVE_WAIT, claim.positions.next()).await;
            let Ok(Some(Ok(new))) = came else {
                return Err(Failure::unknown("the position did not come back"));
            };
            for old in std::mem::replace(&mut claim.held, vec![new.delivery_tag]) {
                let acked = claim.channel.basic_ack(old, BasicAckOptions::default());
                acked.await.map_err(refused)?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Receiver for StreamReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        if self.committed_at.elapsed() >= COMMIT_EVERY {
            self.commit().await?;
        }
        if !self.unclaimed.is_empty() && Instant::now() >= self.claim_at {
            self.claim_one().await?;
        }
        let mut received = Vec::new();
        while received.len() < max
            && let Some((place, offset, body)) = self.again.pop_front()
        {
            received.extend(self.give(place, offset, body));
        }
        if received.is_empty() {
            let wait = if self.unclaimed.is_empty() { RECEIVE_WAIT } else { CLAIM_AGAIN };
            if self.arriving.is_empty() {
                tokio::time::sleep(wait).await;
                return Ok(received);
            }
            match timeout(wait, self.arriving.next()).await {
                Ok(Some(arrived)) => received.extend(self.hand_out(arrived).await?),
                Ok(None) => return Err(Failure::unknown("the server ended the consumers")),
                Err(_) => return Ok(received),
            }
        }
        while received.len() < max
            && let Some(Some(arrived)) = self.arriving.next().now_or_never()
        {
            received.extend(self.hand_out(arrived).await?);
        }
        Ok(received)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        for &(DeliveryId(id), settle) in settles {
            let Some(kept) = self.bodies.remove(&id) else {
                return Err(Failure::refused(format!("delivery {id} is not open")));
            };
            match settle {
                Settle::Accept => self.positions.accept(id),
                Settle::Release => {
                    self.positions.release(id);
                    self.again.push_back(kept);
                }
            }
        }
        if self.committed_at.elapsed() >= COMMIT_EVERY {
            self.commit().await?;
        }
        Ok(())
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.commit().await?;
        close(self.connection).await
    }
}
