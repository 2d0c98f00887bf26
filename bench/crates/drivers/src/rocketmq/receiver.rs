use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{self, timeout, timeout_at};

use super::connection::Broker;
use super::message::{self, PerQueue, Stored};
use super::now_ms;
use super::wire::{Answer, Request, code, status};

/// Message limit of one pop, set by the broker.
pub(super) const POP_MAX: usize = 32;
/// Largest number of unanswered settles: a broker rejects those that wait for 3 s.
const SETTLING_MAX: usize = 32;
/// Delay until a released message is visible. A shorter one is subject to the broker's clock.
const SOON: Duration = Duration::from_secs(1);

/// Parameters of pops.
#[derive(Debug)]
pub(super) struct Popping {
    pub(super) topics: Vec<String>,
    pub(super) group: String,
    pub(super) ordered: bool,
    pub(super) lease: Duration,
    /// Number of waiting messages at which no more are popped.
    pub(super) prefetch: usize,
    /// The broker's name, which a settle requires.
    pub(super) broker_name: String,
}

pub(super) struct RocketReceiver {
    broker: Broker,
    popping: Popping,
    /// One pop for each topic that is not in `idle`. The broker holds it until a message arrives.
    pops: FuturesUnordered<BoxFuture<'static, (usize, Result<Answer, Failure>)>>,
    idle: Vec<usize>,
    waiting: VecDeque<Popped>,
    /// Unanswered settles.
    settling: FuturesUnordered<BoxFuture<'static, Result<Answer, Failure>>>,
    open: HashMap<u64, Place>,
    deliveries: u64,
}

struct Popped {
    place: Place,
    body: Bytes,
    redelivered: bool,
    until: Instant,
}

/// Receipt data that settles a message.
struct Place {
    topic: String,
    queue: u32,
    offset: u64,
    checkpoint: String,
}

impl fmt::Debug for RocketReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocketReceiver").field("popping", &self.popping).finish_non_exhaustive()
    }
}

impl Popping {
    fn pop(&self, topic: usize) -> Request {
        Request::new(code::POP_MESSAGE)
            .field("consumerGroup", &self.group)
            .field("topic", &self.topics[topic])
            // Any queue.
            .field("queueId", -1)
            .field("maxMsgNums", POP_MAX)
            .field("invisibleTime", self.lease.as_millis())
            .field("pollTime", RECEIVE_WAIT.as_millis())
            .field("bornTime", now_ms())
            // From the first message on.
            .field("initMode", 0)
            .field("expType", "TAG")
            .field("exp", "*")
            .field("order", self.ordered)
    }

    fn settle(&self, place: &Place, settle: Settle) -> Request {
        let request = match settle {
            Settle::Accept => Request::new(code::ACK_MESSAGE),
            Settle::Release => Request::new(code::CHANGE_INVISIBLE_TIME)
                .field("invisibleTime", SOON.min(self.lease).as_millis()),
        };
        request
            .field("consumerGroup", &self.group)
            .field("topic", &place.topic)
            .field("queueId", place.queue)
            .field("offset", place.offset)
            .field("extraInfo", &place.checkpoint)
    }

    /// The messages of a reply to a pop.
    fn popped(&self, answer: &Answer) -> Result<Vec<Popped>, Failure> {
        // The broker's lease starts slightly earlier, and its redelivery is later than announced.
        let until = answer.arrived + self.lease;
        let starts = PerQueue::parse(answer.field("startOffsetInfo"));
        let counts = PerQueue::parse(answer.field("orderCountInfo"));
        let popped = |stored: Stored| {
            let start = starts.of(&stored).unwrap_or(stored.offset);
            let redelivered = stored.times > 0 || counts.for_message(&stored).unwrap_or(0) > 0;
            let checkpoint = format!(
                "{start} {} {} {} {} {} {} {}",
                answer.field("popTime"),
                answer.field("invisibleTime"),
                answer.field("reviveQid"),
                u8::from(stored.is_retry()),
                self.broker_name,
                stored.queue,
                stored.offset,
            );
            let Stored { topic, queue, offset, body, .. } = stored;
            Popped { place: Place { topic, queue, offset, checkpoint }, body, redelivered, until }
        };
        Ok(message::messages(answer.body.clone())?.into_iter().map(popped).collect())
    }
}

impl RocketReceiver {
    pub(super) fn new(broker: Broker, popping: Popping) -> Self {
        let idle = (0..popping.topics.len()).collect();
        Self {
            broker,
            popping,
            pops: FuturesUnordered::new(),
            idle,
            waiting: VecDeque::new(),
            settling: FuturesUnordered::new(),
            open: HashMap::new(),
            deliveries: 0,
        }
    }

    /// Pops from every idle topic, unless enough messages are waiting.
    fn pop(&mut self) {
        if !self.waiting.is_empty() && self.waiting.len() >= self.popping.prefetch {
            return;
        }
        for topic in self.idle.drain(..) {
            let answer = self.broker.request(self.popping.pop(topic));
            self.pops.push(Box::pin(async move { (topic, answer.await) }));
        }
    }

    fn take(&mut self, topic: usize, answer: Result<Answer, Failure>) -> Result<(), Failure> {
        self.idle.push(topic);
        let answer = answer?;
        match answer.code {
            status::SUCCESS => {
                self.waiting.extend(self.popping.popped(&answer)?);
                Ok(())
            }
            status::PULL_NOT_FOUND | status::POLLING_FULL | status::POLLING_TIMEOUT => Ok(()),
            _ => Err(answer.refusal()),
        }
    }

    fn hand_out(&mut self, max: usize) -> Vec<Received> {
        let now = Instant::now();
        let mut received = Vec::new();
        while received.len() < max
            && let Some(popped) = self.waiting.pop_front()
        {
            // The lease has expired, so another receiver may have it.
            if popped.until <= now {
                continue;
            }
            self.deliveries += 1;
            self.open.insert(self.deliveries, popped.place);
            let (id, redelivered) = (DeliveryId(self.deliveries), Some(popped.redelivered));
            received.push(Received { id, body: popped.body, redelivered });
        }
        received
    }

    fn settle_all(&self, settles: impl IntoIterator<Item = (Place, Settle)>) {
        for (place, settle) in settles {
            let answer = self.broker.request(self.popping.settle(&place, settle));
            self.settling.push(Box::pin(async move { answer.await?.succeeded() }));
        }
    }

    /// Handles the settle replies that have arrived.
    fn check_settles(&mut self) -> Result<(), Failure> {
        while let Some(Some(answer)) = self.settling.next().now_or_never() {
            answer?;
        }
        Ok(())
    }
}

#[async_trait]
impl Receiver for RocketReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        self.check_settles()?;
        let until = time::Instant::now() + RECEIVE_WAIT;
        while self.waiting.is_empty() {
            self.pop();
            match timeout_at(until, self.pops.next()).await {
                Ok(Some((topic, answer))) => self.take(topic, answer)?,
                Ok(None) | Err(_) => return Ok(Vec::new()),
            }
        }
        while self.waiting.len() < max
            && let Some(Some((topic, answer))) = self.pops.next().now_or_never()
        {
            self.take(topic, answer)?;
        }
        self.pop();
        Ok(self.hand_out(max))
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let mut places = Vec::with_capacity(settles.len());
        for &(DeliveryId(delivery), settle) in settles {
            let Some(place) = self.open.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            places.push((place, settle));
        }
        self.settle_all(places);
        while self.settling.len() > SETTLING_MAX
            && let Some(answer) = self.settling.next().await
        {
            answer?;
        }
        self.check_settles()
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        // Messages of pending pops would stay hidden for a lease.
        let pops = std::mem::take(&mut self.pops);
        let arrived = timeout(RECEIVE_WAIT * 2, pops.collect::<Vec<_>>()).await;
        for (topic, answer) in arrived.unwrap_or_default() {
            self.take(topic, answer)?;
        }
        let waiting = self.waiting.drain(..).map(|popped| popped.place);
        let open = self.open.drain().map(|(_, place)| place);
        let places: Vec<_> = waiting.chain(open).map(|place| (place, Settle::Release)).collect();
        self.settle_all(places);
        while let Some(answer) = self.settling.next().await {
            answer?;
        }
        Ok(())
    }
}
