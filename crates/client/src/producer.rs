//! Sending batches: pipelined, in order per partition, and resent after transient failures.
//!
//! At most five requests are in flight, the limit of an idempotent producer. When one fails, the others are awaited,
//! and the failed batches are resent one request at a time: order is kept, and sequence numbers keep the broker from
//! storing a batch twice.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    ApiVersionsRequest, InitProducerIdRequest, ProduceRequest, ProduceResponse, ProducerId,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::cluster::{Client, PATIENCE, TopicPartition, patiently};
use crate::connection::{ANSWER_WITHIN, Connection};
use crate::error::{BrokerRejection, ClientError, accepted};
use crate::requests;

/// 12 is the last version with topic names instead of ids.
const VERSIONS: RangeInclusive<i16> = 3..=12;
const IN_FLIGHT_MAX: usize = 5;
const REQUEST_BYTES_MAX: usize = 4 << 20;
const QUEUED_MAX: usize = 16;

/// The replicas that must have a batch before it counts as sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acks {
    /// No broker: there is no reply.
    None,
    /// The leader.
    Leader,
    /// All in-sync replicas.
    All,
}

impl Acks {
    const fn on_the_wire(self) -> i16 {
        match self {
            Acks::None => 0,
            Acks::Leader => 1,
            Acks::All => -1,
        }
    }
}

/// The producer's id and epoch at the broker; -1: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub id: i64,
    pub epoch: i16,
}

impl Identity {
    pub const NONE: Identity = Identity { id: -1, epoch: -1 };
}

/// An encoded batch (RecordBatch v2) for one partition.
#[derive(Debug)]
pub struct ReadyBatch {
    pub partition: i32,
    pub records: u32,
    pub bytes: Bytes,
}

/// Counters of batches that were sent and, unless acks are none, acknowledged.
#[derive(Debug, Default)]
pub struct ProducerCounters {
    pub records: AtomicU64,
    pub bytes: AtomicU64,
    /// The reason for which batches are being resent, and since when.
    waiting: Mutex<Option<(Instant, String)>>,
}

impl ProducerCounters {
    /// The reason for which batches have been resent for at least this time, if any.
    pub fn waits_for(&self, at_least: Duration) -> Option<String> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, why) = waiting.as_ref()?;
        (since.elapsed() >= at_least).then(|| why.clone())
    }

    fn note_waiting(&self, why: Option<&ClientError>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let since = waiting.take().map_or_else(Instant::now, |(since, _)| since);
        *waiting = why.map(|why| (since, why.to_string()));
    }

    fn add(&self, batches: &[ReadyBatch]) {
        let records = batches.iter().map(|batch| u64::from(batch.records)).sum();
        let bytes = batches.iter().map(|batch| batch.bytes.len() as u64).sum();
        self.records.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Client {
    /// Requests an identity, with which resent batches are stored once.
    pub async fn producer_identity(&self) -> Result<Identity, ClientError> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(i32::MAX)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        patiently(|| async {
            let answer = self.any().await.call(&request, 0..=5).await?;
            accepted(answer.error_code, None, || "cannot get a producer id".into())?;
            Ok(Identity { id: answer.producer_id.0, epoch: answer.producer_epoch })
        })
        .await
    }
}

/// Sends batches until the channel closes, and returns when all are acknowledged.
pub async fn send(
    client: Arc<Client>,
    topic: Arc<str>,
    acks: Acks,
    mut batches: mpsc::Receiver<ReadyBatch>,
    sent: Arc<ProducerCounters>,
) -> Result<(), ClientError> {
    let metadata = client.topic(&topic).await?;
    let mut lanes: BTreeMap<String, mpsc::Sender<ReadyBatch>> = BTreeMap::new();
    let mut running = tokio::task::JoinSet::new();
    while let Some(batch) = batches.recv().await {
        let place = TopicPartition::new(topic.clone(), batch.partition);
        let leader = client.leader(&metadata, &place).await?;
        let lane = lanes.entry(leader.address().to_owned()).or_insert_with(|| {
            let (lane, batches) = mpsc::channel(QUEUED_MAX);
            let (client, topic, sent) = (client.clone(), topic.clone(), sent.clone());
            running.spawn(LeaderSender::new(client, topic, acks, leader, batches, sent).run());
            lane
        });
        if lane.send(batch).await.is_err() {
            break; // It failed, and its error is returned below.
        }
    }
    drop(lanes);
    while let Some(lane) = running.join_next().await {
        lane.expect("a lane does not panic")?;
    }
    Ok(())
}

type ProduceFuture = Pin<Box<dyn Future<Output = Result<ProduceResponse, ClientError>> + Send>>;

struct InFlightRequest {
    batches: Vec<ReadyBatch>,
    answer: ProduceFuture,
}

/// The requests to one leader.
struct LeaderSender {
    client: Arc<Client>,
    topic: Arc<str>,
    acks: Acks,
    connection: Arc<Connection>,
    batches: mpsc::Receiver<ReadyBatch>,
    /// A further batch of a partition in the current request: it is sent with the next one.
    held: Option<ReadyBatch>,
    in_flight: VecDeque<InFlightRequest>,
    /// To be resent, in their original order.
    failed: VecDeque<ReadyBatch>,
    sent: Arc<ProducerCounters>,
}

impl LeaderSender {
    fn new(
        client: Arc<Client>,
        topic: Arc<str>,
        acks: Acks,
        connection: Arc<Connection>,
        batches: mpsc::Receiver<ReadyBatch>,
        sent: Arc<ProducerCounters>,
    ) -> Self {
        let (held, in_flight, failed) = (None, VecDeque::new(), VecDeque::new());
        Self { client, topic, acks, connection, batches, held, in_flight, failed, sent }
    }

    async fn run(mut self) -> Result<(), ClientError> {
        while let Some(first) = self.next().await? {
            let batches = self.collect(first);
            let request = self.request(&batches);
            if self.acks == Acks::None {
                self.connection.tell(&request, VERSIONS).await?;
                self.sent.add(&batches);
                continue;
            }
            match self.connection.start(&request, VERSIONS).await {
                Ok(pending) => {
                    let answer = Box::pin(pending.answer(ANSWER_WITHIN));
                    self.in_flight.push_back(InFlightRequest { batches, answer });
                }
                Err(error) => {
                    self.drain().await?;
                    self.failed.extend(batches);
                    self.resend(error).await?;
                }
            }
        }
        self.settle_all().await?;
        if self.acks == Acks::None {
            // Requests are handled in order: this reply proves that those before it were read.
            self.connection.call(&ApiVersionsRequest::default(), 0..=2).await?;
        }
        Ok(())
    }

    /// The next batch to send. Receives replies meanwhile, and whenever the maximum is in flight.
    async fn next(&mut self) -> Result<Option<ReadyBatch>, ClientError> {
        loop {
            if self.in_flight.len() == IN_FLIGHT_MAX {
                self.settle_oldest().await?;
            }
            if let Some(held) = self.held.take() {
                return Ok(Some(held));
            }
            let Some(oldest) = self.in_flight.front_mut() else {
                return Ok(self.batches.recv().await);
            };
            tokio::select! {
                biased;
                batch = self.batches.recv() => return Ok(batch),
                answered = &mut oldest.answer => {
                    let batches = self.in_flight.pop_front().map(|request| request.batches);
                    self.settle(batches.unwrap_or_default(), answered).await?;
                }
            }
        }
    }

    /// Collects `first` and the batches queued behind it: one batch per partition at most, as the protocol requires.
    fn collect(&mut self, first: ReadyBatch) -> Vec<ReadyBatch> {
        let mut bytes = first.bytes.len();
        let mut batches = vec![first];
        while bytes < REQUEST_BYTES_MAX {
            let Ok(batch) = self.batches.try_recv() else { break };
            if batches.iter().any(|taken| taken.partition == batch.partition) {
                self.held = Some(batch);
                break;
            }
            bytes += batch.bytes.len();
            batches.push(batch);
        }
        batches
    }

    fn request(&self, batches: &[ReadyBatch]) -> ProduceRequest {
        let batches = batches.iter().map(|batch| (batch.partition, batch.bytes.clone()));
        requests::produce(&self.topic, self.acks.on_the_wire(), batches)
    }

    async fn settle_all(&mut self) -> Result<(), ClientError> {
        while !self.in_flight.is_empty() {
            self.settle_oldest().await?;
        }
        Ok(())
    }

    async fn settle_oldest(&mut self) -> Result<(), ClientError> {
        let Some(InFlightRequest { batches, answer }) = self.in_flight.pop_front() else {
            return Ok(());
        };
        let answered = answer.await;
        self.settle(batches, answered).await
    }

    /// Handles a reply. After a transient failure, all requests in flight are awaited and the failed batches are
    /// resent before this returns.
    async fn settle(
        &mut self,
        batches: Vec<ReadyBatch>,
        answered: Result<ProduceResponse, ClientError>,
    ) -> Result<(), ClientError> {
        if let Some(error) = self.take(batches, answered)? {
            self.drain().await?;
            self.resend(error).await?;
        }
        Ok(())
    }

    /// Waits for all requests in flight; failed batches are added to `failed`.
    async fn drain(&mut self) -> Result<(), ClientError> {
        while let Some(InFlightRequest { batches, answer }) = self.in_flight.pop_front() {
            let answered = answer.await;
            self.take(batches, answered)?;
        }
        Ok(())
    }

    /// Counts acknowledged batches and keeps failed ones. Returns a transient failure; a permanent one is the error.
    fn take(
        &mut self,
        batches: Vec<ReadyBatch>,
        answered: Result<ProduceResponse, ClientError>,
    ) -> Result<Option<ClientError>, ClientError> {
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) if error.is_passing() => {
                self.failed.extend(batches);
                return Ok(Some(error));
            }
            Err(error) => return Err(error),
        };
        let mut refusals: BTreeMap<i32, BrokerRejection> = BTreeMap::new();
        for partition in answer.responses.iter().flat_map(|topic| &topic.partition_responses) {
            let index = partition.index;
            let what = || format!("cannot append to {}/{index}", self.topic);
            let message = partition.error_message.as_deref();
            if let Err(refused) = accepted(partition.error_code, message, what) {
                refusals.insert(index, refused);
            }
        }
        let mut passing = None;
        for batch in batches {
            let refused = refusals.remove(&batch.partition);
            match refused {
                // The first attempt was stored already.
                None
                | Some(BrokerRejection { code: ResponseError::DuplicateSequenceNumber, .. }) => {
                    self.sent.add(&[batch]);
                }
                Some(refused) if self.passes(&refused) => {
                    self.failed.push_back(batch);
                    passing.get_or_insert(ClientError::Refused(refused));
                }
                Some(refused) => return Err(refused.into()),
            }
        }
        Ok(passing)
    }

    fn passes(&self, refused: &BrokerRejection) -> bool {
        // Batches behind a failed one are out of order until that one is stored.
        let behind_a_failure =
            refused.code == ResponseError::OutOfOrderSequenceNumber && !self.failed.is_empty();
        behind_a_failure || refused.code.is_retriable()
    }

    /// Resends the failed batches in order, one request at a time, until they are acknowledged or the patience ends.
    async fn resend(&mut self, mut error: ClientError) -> Result<(), ClientError> {
        let deadline = Instant::now() + PATIENCE;
        while !self.failed.is_empty() {
            if Instant::now() > deadline || !error.is_passing() {
                return Err(error);
            }
            self.sent.note_waiting(Some(&error));
            let batches = self.first_of_each_partition();
            match self.send_to_current_leader(&batches).await {
                Ok(answer) => {
                    let rest = std::mem::take(&mut self.failed);
                    if let Some(refused) = self.take(batches, Ok(answer))? {
                        error = refused;
                        sleep(Duration::from_millis(200)).await;
                    }
                    self.failed.extend(rest);
                }
                Err(failed) => {
                    error = failed;
                    for batch in batches.into_iter().rev() {
                        self.failed.push_front(batch);
                    }
                    sleep(Duration::from_millis(200)).await;
                }
            }
        }
        self.sent.note_waiting(None);
        Ok(())
    }

    fn first_of_each_partition(&mut self) -> Vec<ReadyBatch> {
        let mut first: Vec<ReadyBatch> = Vec::new();
        let mut rest = VecDeque::with_capacity(self.failed.len());
        for batch in self.failed.drain(..) {
            if first.iter().any(|taken| taken.partition == batch.partition) {
                rest.push_back(batch);
            } else {
                first.push(batch);
            }
        }
        self.failed = rest;
        first
    }

    /// Sends to the current leader: it may have moved, or restarted.
    async fn send_to_current_leader(
        &mut self,
        batches: &[ReadyBatch],
    ) -> Result<ProduceResponse, ClientError> {
        let metadata = self.client.topic(&self.topic).await?;
        let place = TopicPartition::new(self.topic.clone(), batches[0].partition);
        self.connection = self.client.leader(&metadata, &place).await?;
        let answered = self.connection.call(&self.request(batches), VERSIONS).await;
        if matches!(answered, Err(ClientError::Closed { .. } | ClientError::TimedOut { .. })) {
            self.client.forget(&self.connection).await;
        }
        answered
    }
}
