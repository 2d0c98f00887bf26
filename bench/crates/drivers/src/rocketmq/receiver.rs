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

/// The most messages of one pop, by the broker's rule.
pub(super) const POP_MAX: usize = 32;
/// How many settles may be unanswered: a broker refuses what it did not come to within 3 s.
const SETTLING_MAX: usize = 32;
/// After how long what was given back is visible again. Below this the broker's clock decides.
const SOON: Duration = Duration::from_secs(1);

/// What is popped, and how.
#[derive(Debug)]
pub(super) struct Popping {
    pub(super) topics: Vec<String>,
    pub(super) group: String,
    pub(super) ordered: bool,
    pub(super) lease: Duration,
    /// How many messages may wait here before no more are popped.
    pub(super) prefetch: usize,
    /// A part of what settles a message.
    pub(super) broker_name: String,
}

pub(super) struct RocketReceiver {
    broker: Broker,
    popping: Popping,
    /// One of each topic that is not in `idle`. The broker holds it until something comes.
    pops: FuturesUnordered<BoxFuture<'static, (usize, Result<Answer, Failure>)>>,
    idle: Vec<usize>,
    waiting: VecDeque<Popped>,
    /// Settles that are not answered.
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

/// What settles a message.
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
            // any
            .field("queueId", -1)
            .field("maxMsgNums", POP_MAX)
            .field("invisibleTime", self.lease.as_millis())
            .field("pollTime", RECEIVE_WAIT.as_millis())
            .field("bornTime", now_ms())
            // from the first message on
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

    /// The messages of an answer to a pop.
    fn popped(&self, answer: &Answer) -> Result<Vec<Popped>, Failure> {
        // The broker counts from a little earlier, and gives back later than it says.
        let until = answer.arrived + self.lease;
        let starts = PerQueue::parse(answer.field("startOffsetInfo"));
        let counts = PerQueue::parse(answer.field("orderCountInfo"));
        let popped = |stored: Stored| {
            let start = starts.of(&stored).unwrap_or(stored.offset);
            let redelivered = stored.times > 0 || counts.of_one(&stored).unwrap_or(0) > 0;
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

    /// Pops of every topic of which none is on its way, unless enough is here.
    fn pop(&mut self) {
        if !self.waiting.is_empty() && self.waiting.len() >= self.popping.prefetch {
            return;
        }
        for topic in self.idle.drain(..) {
            let answer = self.broker.ask(self.popping.pop(topic));
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
            // It is somebody else's by now.
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
            let answer = self.broker.ask(self.popping.settle(&place, settle));
            self.settling.push(Box::pin(async move { answer.await?.succeeded() }));
        }
    }

    /// Hears the answers that are there.
    fn hear_settles(&mut self) -> Result<(), Failure> {
        while let Some(Some(answer)) = self.settling.next().now_or_never() {
            answer?;
        }
        Ok(())
    }
}

#[async_trait]
impl Receiver for RocketReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        self.hear_settles()?;
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
        self.hear_settles()
    }

    async fn close(mut self: Box<Self>) -> Result<(), Failure> {
        // What these bring would be hidden for a lease.
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
