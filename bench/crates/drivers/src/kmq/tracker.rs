//! The redelivery tracker: reads all markers of a topology, and redelivers messages without an end
//! marker in time. One runs in each driver with a receiver. Trackers of several processes share the
//! partitions as a consumer group, and each resumes where another stopped.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use driver::Failure;
use futures_util::FutureExt;
use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{
    BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer,
};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Topics;
use super::marker::{Key, Marker};
use super::open::OpenMessages;
use super::redeliverer::Redeliverer;
use crate::kafka::client::{is_passing, refused};

/// Longest wait for a marker before the due messages are checked.
const TURN: Duration = Duration::from_millis(100);
/// Markers that are read before the due messages are checked.
const READ_MAX: usize = 10_000;
/// Messages of a partition that are redelivered in one pass.
const REDELIVER_MAX: usize = 128;
const RETRY_AFTER_MS: i64 = 1_000;
const COMMIT_EVERY: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// Configuration of a tracker.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) topics: Vec<Topics>,
    pub(super) consumer: ClientConfig,
    pub(super) reader: ClientConfig,
    pub(super) producer: ClientConfig,
    pub(super) redeliveries_max: i32,
}

/// Running trackers of a driver, by the prefix of the topology.
#[derive(Clone, Debug, Default)]
pub(super) struct Trackers {
    running: Arc<Mutex<HashMap<String, Weak<Running>>>>,
}

#[derive(Debug)]
struct Running {
    /// Dropping it ends the task.
    quit: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Keeps a tracker running.
#[derive(Debug)]
pub(super) struct Tracked(Arc<Running>);

impl Trackers {
    /// Returns the topology's tracker, starting it if needed.
    pub(super) fn tracked(
        &self,
        prefix: &str,
        plan: impl FnOnce() -> Plan,
    ) -> Result<Tracked, Failure> {
        let mut running = self.running.lock();
        running.retain(|_, tracker| tracker.strong_count() > 0);
        if let Some(tracker) = running.get(prefix).and_then(Weak::upgrade) {
            return Ok(Tracked(tracker));
        }
        let tracker = Tracker::new(plan())?;
        let (quit, ended) = oneshot::channel();
        let task = tokio::spawn(tracker.run(ended));
        let tracker = Arc::new(Running { quit, task });
        running.insert(prefix.to_owned(), Arc::downgrade(&tracker));
        Ok(Tracked(tracker))
    }
}

impl Tracked {
    /// The last holder waits until the tracker has left its group.
    pub(super) async fn end(self) {
        let Some(Running { quit, task }) = Arc::into_inner(self.0) else { return };
        drop(quit);
        if let Err(panicked) = task.await {
            tracing::warn!("the redelivery tracker ended badly: {panicked}");
        }
    }
}

/// Index of its topics, and the partition.
type Place = (usize, i32);

/// Shared with the client, which reports partitions that are reassigned.
#[derive(Clone, Debug)]
struct Ground {
    topics: Arc<Vec<Topics>>,
    open: Arc<Mutex<HashMap<Place, OpenMessages>>>,
}

impl Ground {
    fn place(&self, topic: &str, partition: i32) -> Option<Place> {
        let topics = self.topics.iter().position(|topics| topics.markers == topic)?;
        Some((topics, partition))
    }
}

impl ClientContext for Ground {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!("librdkafka {facility}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!("librdkafka: {error}: {reason}");
    }
}

impl ConsumerContext for Ground {
    fn pre_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Revoke(lost) = rebalance else { return };
        let mut open = self.open.lock();
        for lost in lost.elements() {
            if let Some(place) = self.place(lost.topic(), lost.partition()) {
                open.remove(&place);
            }
        }
    }
}

struct Tracker {
    client: Arc<StreamConsumer<Ground>>,
    ground: Ground,
    redeliverer: Redeliverer,
    committed: HashMap<Place, i64>,
    committed_at: Instant,
}

/// A marker as it was read.
struct Read {
    place: Place,
    what: (Key, Marker),
    offset: i64,
    written_ms: i64,
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

impl Tracker {
    fn new(plan: Plan) -> Result<Self, Failure> {
        let Plan { topics, consumer, reader, producer, redeliveries_max } = plan;
        let ground = Ground { topics: Arc::new(topics), open: Arc::default() };
        let client: StreamConsumer<Ground> =
            consumer.create_with_context(ground.clone()).map_err(refused)?;
        let names: Vec<&str> = ground.topics.iter().map(|topics| topics.markers.as_str()).collect();
        client.subscribe(&names).map_err(refused)?;
        Ok(Self {
            client: Arc::new(client),
            ground,
            redeliverer: Redeliverer::new(&reader, &producer, redeliveries_max)?,
            committed: HashMap::new(),
            committed_at: Instant::now(),
        })
    }

    async fn run(mut self, mut ended: oneshot::Receiver<()>) {
        while ended.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            if let Err(failure) = self.turn().await {
                tracing::warn!("the redelivery tracker: {failure}");
                tokio::time::sleep(TURN).await;
            }
        }
        self.close().await;
    }

    async fn turn(&mut self) -> Result<(), Failure> {
        for marker in self.read().await? {
            self.know(marker.place).await?;
            let mut open = self.ground.open.lock();
            // Reassigned to another tracker since.
            let Some(open) = open.get_mut(&marker.place) else { continue };
            open.read(marker.what, marker.offset, marker.written_ms, now_ms());
        }
        self.redeliver().await;
        if self.committed_at.elapsed() >= COMMIT_EVERY {
            self.commit(CommitMode::Async)?;
        }
        Ok(())
    }

    async fn read(&self) -> Result<Vec<Read>, Failure> {
        let mut read = Vec::new();
        while read.len() < READ_MAX {
            let next = if read.is_empty() {
                timeout(TURN, self.client.recv()).await.ok()
            } else {
                self.client.recv().now_or_never()
            };
            match next {
                None => break,
                Some(Ok(message)) => read.extend(self.marker(&message)),
                Some(Err(error)) if is_passing(&error) => tracing::debug!("markers: {error}"),
                Some(Err(error)) => return Err(refused(error)),
            }
        }
        Ok(read)
    }

    fn marker(&self, message: &BorrowedMessage<'_>) -> Option<Read> {
        let key = message.key().and_then(Key::decode);
        let marker = message.payload().and_then(Marker::decode);
        let (Some(key), Some(marker)) = (key, marker) else {
            tracing::warn!("{} has what is no marker", message.topic());
            return None;
        };
        Some(Read {
            place: self.ground.place(message.topic(), message.partition())?,
            what: (key, marker),
            offset: message.offset(),
            written_ms: message.timestamp().to_millis().unwrap_or_else(now_ms),
        })
    }

    /// Initializes a partition that is new to this tracker, with its end.
    async fn know(&self, place: Place) -> Result<(), Failure> {
        if self.ground.open.lock().contains_key(&place) {
            return Ok(());
        }
        let (client, topic) =
            (Arc::clone(&self.client), self.ground.topics[place.0].markers.clone());
        let asked = tokio::task::spawn_blocking(move || {
            client.fetch_watermarks(&topic, place.1, PATIENCE).map_err(refused)
        });
        let (_, end) = asked.await.map_err(Failure::unknown)??;
        self.ground.open.lock().entry(place).or_insert_with(|| OpenMessages::new(end));
        Ok(())
    }

    async fn redeliver(&self) {
        let places: Vec<Place> = self.ground.open.lock().keys().copied().collect();
        for place in places {
            let due = match self.ground.open.lock().get_mut(&place) {
                Some(open) => open.due(now_ms(), REDELIVER_MAX),
                None => continue,
            };
            if due.is_empty() {
                continue;
            }
            let topics = &self.ground.topics[place.0];
            let (done, failure) = self.redeliverer.redeliver(topics, due.clone()).await;
            if let Some(failure) = failure {
                tracing::warn!("redelivering: {failure}; once more in a second");
            }
            let mut open = self.ground.open.lock();
            let Some(open) = open.get_mut(&place) else { continue };
            for key in &done {
                open.ended(*key);
            }
            // Finished messages are no longer open, so a retry of them does nothing.
            for key in due {
                open.retry(key, now_ms() + RETRY_AFTER_MS);
            }
        }
    }

    fn commit(&mut self, mode: CommitMode) -> Result<(), Failure> {
        self.committed_at = Instant::now();
        let mut list = TopicPartitionList::new();
        for (&place, open) in self.ground.open.lock().iter() {
            let next = open.to_commit();
            if self.committed.insert(place, next) != Some(next) {
                let topic = &self.ground.topics[place.0].markers;
                list.add_partition_offset(topic, place.1, Offset::Offset(next)).map_err(refused)?;
            }
        }
        if list.count() == 0 {
            return Ok(());
        }
        self.client.commit(&list, mode).map_err(refused)
    }

    async fn close(self) {
        let ended = tokio::task::spawn_blocking(move || {
            let mut tracker = self;
            if let Err(failure) = tracker.commit(CommitMode::Sync) {
                // The next tracker reads more than it needs.
                tracing::debug!("the redelivery tracker: {failure}");
            }
            tracker.redeliverer
        });
        match ended.await {
            Ok(redeliverer) => redeliverer.close().await,
            Err(panicked) => tracing::warn!("the redelivery tracker ended badly: {panicked}"),
        }
    }
}
