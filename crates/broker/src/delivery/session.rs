//! A session's side of the delivery engine: it consumes, takes and settles.
//!
//! Nothing here waits for anything but the drivers' answers: a session sends messages to the
//! drivers, which own all state, and hears through one receiver.

use std::sync::Arc;

use base::{LeaseGroupId, ShardId};
use dispatch::{ConsumerId, SessionId};
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::append::{AppendBatch, Appended};
use crate::broker::Broker;
use crate::error::Unavailable;

use super::divided::{Divided, Told};
use super::drivers::Route;
use super::error::{ConsumeError, TakeError, TransferError};
use super::event::Delivery;
use super::events::Events;
use super::handle::{Joining, Message};
use super::history::SessionUser;
use super::links::Links;
use super::options::{ConsumeOptions, Credit, Settle, TakeOptions};
use super::settle_reply::Part;
use super::taking::take;
use super::transfers_over_shards;

pub use super::settle_reply::SettleReply;

/// Who leases. Dropped or closed, its consumers leave and its leases come back at once.
#[derive(Debug)]
pub struct LeaseSession {
    broker: Broker,
    links: Arc<Links>,
    events: Mutex<Option<Events>>,
}

impl LeaseSession {
    pub(super) fn open(broker: Broker, user: SessionUser) -> Self {
        let (links, receiver, unread) = Links::open(Arc::clone(broker.drivers()), user);
        let events = Events::new(receiver, unread, Arc::clone(&links));
        Self { broker, links, events: Mutex::new(Some(events)) }
    }

    pub fn id(&self) -> SessionId {
        self.links.session
    }

    /// The session's one receiver; `None` when it was taken before. What lies unread in it is
    /// bounded by credit, and by bytes for consumers whose credit is not. Whoever consumes receives
    /// all the time: credit goes from one shard to another only then.
    pub fn events(&self) -> Option<Events> {
        self.events.lock().take()
    }

    /// Records of the group come to this session from now on.
    pub async fn consume(
        &self,
        group: LeaseGroupId,
        options: ConsumeOptions,
    ) -> Result<ConsumerId, ConsumeError> {
        let is_unknown = |error: &ConsumeError| matches!(error, ConsumeError::UnknownGroup(_));
        self.broker.with_group(group, is_unknown, || self.try_to_consume(group, options)).await
    }

    async fn try_to_consume(
        &self,
        group: LeaseGroupId,
        options: ConsumeOptions,
    ) -> Result<ConsumerId, ConsumeError> {
        let consumer = self.links.next_consumer();
        if self.links.only().is_some() {
            let joining = Joining { consumer, options, divided: Vec::new() };
            self.join(ShardId::FIRST, group, joining).await?;
            return Ok(consumer);
        }
        let route = self.links.route(group).ok_or(ConsumeError::UnknownGroup(group))?;
        let shards = route.shards();
        let first = *shards.first().ok_or(ConsumeError::UnknownGroup(group))?;
        let register = |divided: &mut Divided| {
            (Told::new(), divided.register(consumer, group, options, shards))
        };
        self.links.with_divided(register).unwrap_or(Ok(()))?;
        let joined = match self.join_as(first, group, consumer) {
            Some(answer) => answered(answer).await,
            None => Err(ConsumeError::UnknownGroup(group)),
        };
        let active = match joined {
            Ok(active) => active,
            Err(error) => {
                self.links.with_divided(|divided| (Told::new(), divided.remove(consumer)));
                return Err(error);
            }
        };
        let answers = self.join_others(group, consumer, active, route);
        let joined = join_all(answers.into_iter().map(answered)).await;
        if let Some(error) = joined.into_iter().find_map(Result::err) {
            self.cancel(consumer).await;
            return Err(error);
        }
        Ok(consumer)
    }

    /// Joins the shards that are not the first, with credit from there on.
    fn join_others(
        &self,
        group: LeaseGroupId,
        consumer: ConsumerId,
        active: bool,
        route: Route,
    ) -> Vec<oneshot::Receiver<Joined>> {
        // The topic may have grown before the first shard knew of the consumer, who told nobody then.
        let now = self.links.route(group).unwrap_or(route).shards();
        let (session, mut answers) = (self.links.session, Vec::new());
        self.links.divide(|divided| {
            let mut told = Told::new();
            for shard in divided.on_first_joined(consumer, active).unwrap_or_default() {
                let Some((before, joining)) = divided.join(consumer, shard) else { continue };
                told.extend(before);
                let (reply, answer) = oneshot::channel();
                answers.push(answer);
                told.push((shard, Message::Consume { session, group, joining, reply }));
            }
            told.extend(self.links.join_further(divided, consumer, group, &now));
            told.extend(divided.on_joining_all(consumer));
            told
        });
        // And between that look and this.
        self.links.on_grown(group);
        answers
    }

    /// Asks one shard to have a consumer that is registered.
    fn join_as(
        &self,
        shard: ShardId,
        group: LeaseGroupId,
        consumer: ConsumerId,
    ) -> Option<oneshot::Receiver<Joined>> {
        let (session, (reply, answer)) = (self.links.session, oneshot::channel());
        let joined = self.links.with_divided(|divided| match divided.join(consumer, shard) {
            Some((mut told, joining)) => {
                told.push((shard, Message::Consume { session, group, joining, reply }));
                (told, true)
            }
            None => (Told::new(), false),
        });
        joined.unwrap_or(false).then_some(answer)
    }

    async fn join(
        &self,
        shard: ShardId,
        group: LeaseGroupId,
        joining: Joining,
    ) -> Result<bool, ConsumeError> {
        let (session, (reply, answer)) = (self.links.session, oneshot::channel());
        self.links.tell(shard, Message::Consume { session, group, joining, reply });
        answered(answer).await
    }

    /// Adds to a consumer's credit. Where its group lies in several shards those get it that have used up
    /// what they have and need more, else those that have least.
    pub fn grant(&self, consumer: ConsumerId, credit: Credit) {
        match self.links.only() {
            Some(only) => {
                only.tell(Message::Grant { session: self.links.session, consumer, credit });
            }
            None => self.links.divide(|divided| divided.grant(consumer, credit)),
        }
    }

    /// Sets a consumer's credit anew; what it holds already counts. Where its group lies in several shards
    /// a window grows or shrinks by the difference, and what is left of grants is divided evenly.
    pub fn set_credit(&self, consumer: ConsumerId, credit: Credit) {
        match self.links.only() {
            Some(only) => {
                only.tell(Message::SetCredit { session: self.links.session, consumer, credit });
            }
            None => self.links.divide(|divided| divided.set_credit(consumer, credit)),
        }
    }

    /// At most so many unsettled records over all consumers of the session; `None`: any number.
    pub fn limit(&self, records: Option<u32>) {
        match self.links.only() {
            Some(only) => only.tell(Message::Limit { session: self.links.session, records }),
            None => self.links.divide(|divided| divided.limit(records)),
        }
    }

    /// The consumer gets no more. What it holds stays with the session, to be settled. Events that
    /// are under way may still come until this returns.
    pub async fn cancel(&self, consumer: ConsumerId) {
        if self.links.only().is_some() {
            return self.leave([ShardId::FIRST], consumer).await;
        }
        let remove = |divided: &mut Divided| (Told::new(), divided.remove(consumer));
        let Some(shards) = self.links.with_divided(remove).flatten() else { return };
        let Some((first, others)) = shards.split_first() else { return };
        // Nobody takes its place before it has left everywhere.
        self.leave(others.iter().copied(), consumer).await;
        self.leave([*first], consumer).await;
    }

    async fn leave(&self, shards: impl IntoIterator<Item = ShardId>, consumer: ConsumerId) {
        let session = self.links.session;
        let mut answers = Vec::new();
        for shard in shards {
            let (reply, answer) = oneshot::channel();
            self.links.tell(shard, Message::Cancel { session, consumer, reply });
            answers.push(answer);
        }
        join_all(answers).await;
    }

    /// Leases what is ready, and waits if nothing is. Empty when the time is up. Records that are
    /// being handed out when the future is dropped come back at once.
    pub async fn take(
        &self,
        group: LeaseGroupId,
        options: TakeOptions,
    ) -> Result<Vec<Delivery>, TakeError> {
        let is_unknown = |error: &TakeError| matches!(error, TakeError::UnknownGroup(_));
        self.broker
            .with_group(group, is_unknown, || take(&self.links, group, options.clone()))
            .await
    }

    /// Takes its place among the settles when this is called, not when it is awaited.
    pub fn settle(&self, settles: Vec<Settle>) -> SettleReply {
        if let Some(shard) = self.links.one_shard_of(&settles) {
            let (items, reply) = (settles.len(), self.settle_in(shard, settles));
            return SettleReply::one(items, reply);
        }
        let mut of_shards: Vec<(ShardId, Vec<Settle>)> = Vec::new();
        let mut places = Vec::with_capacity(settles.len());
        for settle in settles {
            let shard = self.links.shard_of(&settle);
            let known = of_shards.iter().position(|(known, _)| *known == shard);
            let place = known.unwrap_or_else(|| {
                of_shards.push((shard, Vec::new()));
                of_shards.len() - 1
            });
            of_shards[place].1.push(settle);
            places.push(place);
        }
        let part = |(shard, settles): (ShardId, Vec<Settle>)| {
            Part::new(settles.len(), self.settle_in(shard, settles))
        };
        SettleReply::several(of_shards.into_iter().map(part).collect(), places)
    }

    fn settle_in(
        &self,
        shard: ShardId,
        settles: Vec<Settle>,
    ) -> oneshot::Receiver<super::handle::Settled> {
        let (reply, answer) = oneshot::channel();
        self.links.tell(
            shard,
            Message::Settle {
                session: self.links.session,
                settles,
                again: false,
                reply: reply.into(),
            },
        );
        answer
    }

    /// Settles and appends in one log entry, all or nothing: after a crash either both happened or
    /// neither. What a transaction, or moving a record to another topic, needs. Records that it
    /// rejects become dead letters in the same entry; where they are too many for that (thousands, or
    /// megabytes), by entries of their own, behind it and before this returns.
    ///
    /// What is for partitions of other shards goes there by a message that is in the same entry. This
    /// returns when it has arrived; if it fails to, that may be under way still. Such a row has no
    /// offset where an election came in between. Limits of length do not hold for it. Where records of
    /// several shards are settled, what is settled in each is all or nothing by itself, and the batches
    /// go with the first.
    pub async fn transfer(
        &self,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
    ) -> Result<Vec<Option<Appended>>, TransferError> {
        transfers_over_shards::transfer(&self.links, settles, batches).await
    }

    /// As dropping it.
    pub fn close(self) {}
}

type Joined = Result<bool, ConsumeError>;

async fn answered(answer: oneshot::Receiver<Joined>) -> Joined {
    answer.await.unwrap_or(Err(ConsumeError::Unavailable(Unavailable::Stopping)))
}

impl Drop for LeaseSession {
    fn drop(&mut self) {
        self.links.close();
    }
}
