use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle, Style, Topology};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::refused;
use super::reply::{self, Entry};

/// Longest interval between a receiver's checks for abandoned entries.
const TAKE_OVER_EVERY_MAX: Duration = Duration::from_secs(1);
const BLOCK_MIN: Duration = Duration::from_millis(50);

/// Interval of checks for abandoned entries.
pub(super) fn look_every(lease: Duration) -> Duration {
    (lease / 4).min(TAKE_OVER_EVERY_MAX)
}

/// Wait for new entries between these checks.
pub(super) fn block(lease: Duration) -> Duration {
    RECEIVE_WAIT.min(look_every(lease)).max(BLOCK_MIN)
}

/// Whether settled entries can be deleted.
pub(super) fn deletes(topology: &Topology) -> bool {
    topology.style == Style::Queue && topology.subscriptions <= 1
}

/// An entry: the index of its stream, and its id.
type Place = (usize, String);

pub(super) struct RedisReceiver {
    connection: MultiplexedConnection,
    streams: Vec<String>,
    group: String,
    consumer: String,
    lease: Duration,
    delete: bool,
    /// Received entries that have not been requested yet.
    waiting: VecDeque<(Place, Bytes, bool)>,
    open: HashMap<u64, Place>,
    deliveries: u64,
    looked_at: Instant,
    /// An entry was released here, so a check is due at once.
    released: bool,
}

impl fmt::Debug for RedisReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisReceiver").field("streams", &self.streams).finish_non_exhaustive()
    }
}

impl RedisReceiver {
    pub(super) fn new(
        connection: MultiplexedConnection,
        topology: &Topology,
        streams: Vec<String>,
        subscription: u32,
    ) -> Self {
        let salt: u64 = rand::random();
        Self {
            connection,
            streams,
            group: topology.subscription(subscription),
            consumer: format!("receiver-{salt:016x}"),
            lease: topology.lease,
            delete: deletes(topology),
            waiting: VecDeque::new(),
            open: HashMap::new(),
            deliveries: 0,
            looked_at: Instant::now(),
            released: false,
        }
    }

    fn lease_ms(&self) -> u64 {
        self.lease.as_millis() as u64
    }

    fn keep(&mut self, stream: usize, entries: Vec<Entry>, redelivered: bool) {
        for (id, body) in entries {
            // An entry without a body was settled and deleted; nothing is left to do.
            if let Some(body) = body {
                self.waiting.push_back(((stream, id), body, redelivered));
            }
        }
    }

    async fn read(&mut self, max: usize) -> Result<(), Failure> {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group).arg(&self.consumer).arg("COUNT").arg(max);
        read.arg("BLOCK").arg(block(self.lease).as_millis() as u64);
        read.arg("STREAMS").arg(&self.streams);
        for _ in &self.streams {
            read.arg(">");
        }
        let reply: Value = read.query_async(&mut self.connection).await.map_err(refused)?;
        for (name, entries) in reply::streams(reply) {
            if let Some(stream) = self.streams.iter().position(|stream| *stream == name) {
                self.keep(stream, entries, false);
            }
        }
        Ok(())
    }

    /// Takes over entries that have been pending for a lease, at any consumer.
    async fn take_over(&mut self, max: usize) -> Result<(), Failure> {
        self.looked_at = Instant::now();
        self.released = false;
        for stream in 0..self.streams.len() {
            let mut claim = redis::cmd("XAUTOCLAIM");
            claim.arg(&self.streams[stream]).arg(&self.group).arg(&self.consumer);
            claim.arg(self.lease_ms()).arg("0").arg("COUNT").arg(max);
            let reply: Value = claim.query_async(&mut self.connection).await.map_err(refused)?;
            if let Some((_, entries)) = reply::claimed(reply) {
                // Entries waiting here may have been pending for a lease themselves.
                let waiting: HashSet<&Place> =
                    self.waiting.iter().map(|(place, ..)| place).collect();
                let entries = entries.into_iter();
                let new = entries.filter(|(id, _)| !waiting.contains(&(stream, id.clone())));
                let new: Vec<Entry> = new.collect();
                self.keep(stream, new, true);
            }
        }
        Ok(())
    }

    fn hand_out(&mut self, max: usize) -> Vec<Received> {
        let count = max.min(self.waiting.len());
        let mut received = Vec::with_capacity(count);
        for (place, body, redelivered) in self.waiting.drain(..count) {
            self.deliveries += 1;
            self.open.insert(self.deliveries, place);
            let redelivered = Some(redelivered);
            received.push(Received { id: DeliveryId(self.deliveries), body, redelivered });
        }
        received
    }

    fn accept(&self, pipe: &mut Pipeline, (stream, id): &Place) {
        let stream = &self.streams[*stream];
        pipe.cmd("XACK").arg(stream).arg(&self.group).arg(id).ignore();
        if self.delete {
            pipe.cmd("XDEL").arg(stream).arg(id).ignore();
        }
    }

    /// Makes the entry look abandoned, so that the next check takes it over.
    fn abandon(&self, pipe: &mut Pipeline, (stream, id): &Place) {
        let claim = pipe.cmd("XCLAIM").arg(&self.streams[*stream]).arg(&self.group);
        let claim = claim.arg(&self.consumer).arg(0).arg(id).arg("IDLE").arg(self.lease_ms());
        claim.arg("JUSTID").ignore();
    }
}

#[async_trait]
impl Receiver for RedisReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let looks = self.looked_at.elapsed() >= look_every(self.lease);
        if self.released || self.waiting.is_empty() && looks {
            self.take_over(max).await?;
        }
        if self.waiting.is_empty() {
            self.read(max).await?;
        }
        Ok(self.hand_out(max))
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        if settles.is_empty() {
            return Ok(());
        }
        let mut pipe = redis::pipe();
        for &(DeliveryId(delivery), settle) in settles {
            let Some(place) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            match settle {
                Settle::Accept => self.accept(&mut pipe, &place),
                Settle::Release => {
                    self.abandon(&mut pipe, &place);
                    self.released = true;
                }
            }
        }
        pipe.query_async::<()>(&mut self.connection).await.map_err(refused)
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        let mut pipe = redis::pipe();
        for place in self.open.values() {
            self.abandon(&mut pipe, place);
        }
        for (place, ..) in &self.waiting {
            self.abandon(&mut pipe, place);
        }
        if pipe.is_empty() {
            return Ok(());
        }
        pipe.query_async::<()>(&mut self.connection).await.map_err(refused)
    }
}
