//! Rerouting of messages whose queue was deleted, by current declarations.
//!
//! A node that was disconnected routes by an outdated copy of the catalog. The shard of a deleted queue rejects the
//! message with [`AppendError::UnknownPartition`]. The message is then routed by current declarations: to the
//! existing queues, or nowhere, like any unroutable message.

use std::time::Duration;

use base::TopicId;
use base::limits::BARRIER_WITHIN;
use broker::{AppendError, AppendedBatch, Broker};
use message::Properties;
use routing::Message;
use tokio::time::{Instant, sleep};
use topology::{RouteError, RoutedQueue, VirtualHost};

use crate::body::Body;
use crate::declarations::MessageHeaders;
use crate::errors::Exception;
use crate::publisher::{Confirms, Parcel, Publisher};
use crate::publishing::{copies, delay, expiration};
use crate::rights::Rights;

/// Retry interval for a queue that its shard does not know yet.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A message as its publisher sent it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pub exchange: &'a str,
    pub routing_key: &'a str,
    pub properties: &'a Properties<'a>,
    pub body: &'a Body,
}

/// A message that is kept until its outcome is known.
pub trait ReroutableMessage: Send {
    /// Passes the message to `look`. `None`: it cannot be read.
    fn view<R>(&self, look: impl FnOnce(&View<'_>) -> R) -> Option<R>;
}

/// A message of which at least one queue is deleted.
#[derive(Debug)]
pub struct UndeliverableMessage<M> {
    pub message: M,
    /// Topics that have stored it.
    pub taken: Vec<TopicId>,
}

/// Outcome of a rerouted message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RerouteOutcome {
    Taken,
    /// The message is routed to no queue.
    Unroutable,
    /// A queue rejected it, or its route could not be determined in time.
    Refused,
}

/// Returns the kept messages for which a partition was unknown, by the replies to their append. A message with
/// another rejection is left out: its publisher is notified of that.
///
/// `kept` is ordered by the numbers in [`Publisher::kept`]; `topics` has the topic of each reply.
pub fn lost<M>(
    confirms: &Confirms,
    topics: &[TopicId],
    kept: Vec<M>,
    answers: &[Result<AppendedBatch, AppendError>],
) -> Vec<UndeliverableMessage<M>> {
    if !answers.iter().any(is_unknown) {
        return Vec::new();
    }
    let places = places(confirms, topics, kept.len(), answers);
    let lost = kept.into_iter().zip(places).filter(|(_, place)| place.is_lost && !place.is_refused);
    lost.map(|(message, place)| UndeliverableMessage { message, taken: place.taken }).collect()
}

#[derive(Debug, Default)]
struct QueueOutcomes {
    taken: Vec<TopicId>,
    is_lost: bool,
    is_refused: bool,
}

impl QueueOutcomes {
    fn note(&mut self, answer: &Result<AppendedBatch, AppendError>, topic: TopicId) {
        match answer {
            Ok(_) => self.taken.push(topic),
            Err(AppendError::UnknownPartition(_)) => self.is_lost = true,
            Err(_) => self.is_refused = true,
        }
    }
}

/// Outcomes of the rows of each kept message.
fn places(
    confirms: &Confirms,
    topics: &[TopicId],
    count: usize,
    answers: &[Result<AppendedBatch, AppendError>],
) -> Vec<QueueOutcomes> {
    let mut places: Vec<QueueOutcomes> =
        std::iter::repeat_with(QueueOutcomes::default).take(count).collect();
    for part in &confirms.kept {
        let Some(place) = places.get_mut(part.message as usize) else { continue };
        for row in confirms.rows_of(part.batch) {
            if let (Some(answer), Some(topic)) = (answers.get(row), topics.get(row)) {
                place.note(answer, *topic);
            }
        }
    }
    places
}

fn is_unknown(answer: &Result<AppendedBatch, AppendError>) -> bool {
    matches!(answer, Err(AppendError::UnknownPartition(_)))
}

/// Routes messages by current declarations and appends them, for [`BARRIER_WITHIN`] at most.
pub async fn route_again<M: ReroutableMessage>(
    broker: &Broker,
    vhost: &VirtualHost,
    rights: &Rights,
    messages: Vec<UndeliverableMessage<M>>,
) -> Vec<(M, RerouteOutcome)> {
    let until = Instant::now() + BARRIER_WITHIN;
    let (mut waiting, mut ended) = (messages, Vec::new());
    while !waiting.is_empty() && Instant::now() < until {
        if let Err(error) = vhost.refresh().await {
            tracing::debug!(%error, "messages for unknown queues cannot be routed");
            break;
        }
        let mut publisher = Publisher::default();
        let mut pending = Vec::with_capacity(waiting.len());
        for lost in waiting {
            publisher.kept = Some(pending.len() as u32);
            match add(broker, vhost, rights, &lost, &mut publisher) {
                Ok(true) => pending.push(lost),
                Ok(false) if lost.taken.is_empty() => {
                    ended.push((lost.message, RerouteOutcome::Unroutable))
                }
                Ok(false) => ended.push((lost.message, RerouteOutcome::Taken)),
                Err(error) => {
                    tracing::debug!(%error, "a message for an unknown queue is refused");
                    ended.push((lost.message, RerouteOutcome::Refused));
                }
            }
        }
        let (batches, confirms) = publisher.take();
        if batches.is_empty() {
            return ended;
        }
        let partitions = batches.iter().flat_map(|batch| batch.partitions());
        let topics: Vec<TopicId> = partitions.map(|partition| partition.topic).collect();
        let answers = broker.append_at_leaders(batches).await;
        let places = places(&confirms, &topics, pending.len(), &answers);
        waiting = Vec::new();
        for (mut lost, place) in pending.into_iter().zip(places) {
            match (place.is_refused, place.is_lost) {
                (true, _) => ended.push((lost.message, RerouteOutcome::Refused)),
                (false, false) => ended.push((lost.message, RerouteOutcome::Taken)),
                (false, true) => {
                    lost.taken.extend(place.taken);
                    waiting.push(lost);
                }
            }
        }
        if !waiting.is_empty() {
            sleep(AGAIN_AFTER).await;
        }
    }
    ended.extend(waiting.into_iter().map(|lost| (lost.message, RerouteOutcome::Refused)));
    ended
}

/// Adds the message to the batches of those of its queues that lack it. Returns false if there are none.
fn add<M: ReroutableMessage>(
    broker: &Broker,
    vhost: &VirtualHost,
    rights: &Rights,
    lost: &UndeliverableMessage<M>,
    publisher: &mut Publisher,
) -> Result<bool, Exception> {
    let added = lost.message.view(|view| {
        let mut targets = targets(vhost, view)?;
        targets.retain(|target| !lost.taken.contains(&target.queue.topic));
        if targets.is_empty() {
            return Ok(false);
        }
        let writable = rights.writable(view.exchange, vhost.name())?;
        if rights.check_key(&writable, view.routing_key, vhost.name())? {
            rights.check_targets(Some(&writable), &targets)?;
        }
        publisher.targets = targets;
        let parcel = Parcel {
            exchange: view.exchange,
            routing_key: view.routing_key,
            properties: view.properties,
            body: view.body,
            delay_ms: delay(view.properties),
            expires_ms: expiration(view.properties)?,
            now_ms: broker.clock().now_ms(),
        };
        publisher.add(broker, &parcel, None).map(|()| true)
    });
    added.unwrap_or(Ok(false))
}

/// The target queues of a message. A deleted exchange routes nowhere.
fn targets(vhost: &VirtualHost, view: &View<'_>) -> Result<Vec<RoutedQueue>, Exception> {
    let copies = copies(view.properties)?;
    let keys: Vec<&str> =
        std::iter::once(view.routing_key).chain(copies.iter().map(String::as_str)).collect();
    let headers = MessageHeaders(view.properties);
    let deferred = delay(view.properties).is_some();
    let message = Message { keys: &keys, headers: &headers, deferred };
    let mut targets = Vec::new();
    match vhost.routes().route(view.exchange, &message, &mut targets) {
        Ok(()) => Ok(targets),
        Err(RouteError::NotFound(_)) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
