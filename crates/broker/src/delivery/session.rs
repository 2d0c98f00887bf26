//! A session's interface to the delivery engine: it consumes, takes and settles. It waits only for replies of
//! the drivers: a session sends messages to the drivers, which own all state, and receives all events on one
//! channel.

use std::sync::Arc;

use base::{LeaseGroupId, ShardId};
use delivery::drivers::Route;
use delivery::session::events::Events;
use delivery::session::group_take::take;
use delivery::session::links::Links;
use delivery::session::session_credit::{DriverMessages, SessionCredit};
use delivery::session::transfers_over_shards;
use dispatch::{ConsumerId, SessionId};
use futures_util::future::join_all;
use parking_lot::Mutex;
use shard::append::{AppendBatch, AppendedBatch};
use shard::delivery::error::{ConsumeError, TakeError, TransferError};
use shard::delivery::event::Delivery;
use shard::delivery::handle::{ConsumerRegistration, Message};
use shard::delivery::history::SessionUser;
use shard::delivery::options::{ConsumeOptions, Credit, Settle, TakeOptions};
use shard::delivery::settle_reply::ShardSettleReply;
use shard::error::Unavailable;
use tokio::sync::oneshot;

use crate::broker::Broker;

pub use shard::delivery::settle_reply::SettleReply;

/// A leasing session. When it is dropped or closed its consumers leave and its leases are released at once.
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

    /// The session's only receiver; `None` when it was taken before. Unread events are bounded by credit, and
    /// by bytes for consumers with unlimited credit. A consuming session must receive continuously: credit
    /// moves between shards only then.
    pub fn events(&self) -> Option<Events> {
        self.events.lock().take()
    }

    /// Starts delivery of the group's records to this session.
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
            let joining = ConsumerRegistration { consumer, options, divided: Vec::new() };
            self.join(ShardId::FIRST, group, joining).await?;
            return Ok(consumer);
        }
        let route = self.links.route(group).ok_or(ConsumeError::UnknownGroup(group))?;
        let shards = route.shards();
        let first = *shards.first().ok_or(ConsumeError::UnknownGroup(group))?;
        let register = |divided: &mut SessionCredit| {
            (DriverMessages::new(), divided.register(consumer, group, options, shards))
        };
        self.links.with_divided(register).unwrap_or(Ok(()))?;
        let joined = match self.join_as(first, group, consumer) {
            Some(answer) => answered(answer).await,
            None => Err(ConsumeError::UnknownGroup(group)),
        };
        let active = match joined {
            Ok(active) => active,
            Err(error) => {
                self.links
                    .with_divided(|divided| (DriverMessages::new(), divided.remove(consumer)));
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

    /// Joins the shards after the first, with credit in each.
    fn join_others(
        &self,
        group: LeaseGroupId,
        consumer: ConsumerId,
        active: bool,
        route: Route,
    ) -> Vec<oneshot::Receiver<ConsumeResult>> {
        // The topic may have grown before the first shard knew the consumer, which sent no notice then.
        let now = self.links.route(group).unwrap_or(route).shards();
        let (session, mut answers) = (self.links.session, Vec::new());
        self.links.divide(|divided| {
            let mut messages = DriverMessages::new();
            for shard in divided.on_first_joined(consumer, active).unwrap_or_default() {
                let Some((before, joining)) = divided.join(consumer, shard) else { continue };
                messages.extend(before);
                let (reply, answer) = oneshot::channel();
                answers.push(answer);
                messages.push((shard, Message::Consume { session, group, joining, reply }));
            }
            messages.extend(self.links.join_further(divided, consumer, group, &now));
            messages.extend(divided.on_joining_all(consumer));
            messages
        });
        // It may also have grown between that look and this one.
        self.links.on_grown(group);
        answers
    }

    /// Requests one shard to add a consumer that is registered.
    fn join_as(
        &self,
        shard: ShardId,
        group: LeaseGroupId,
        consumer: ConsumerId,
    ) -> Option<oneshot::Receiver<ConsumeResult>> {
        let (session, (reply, answer)) = (self.links.session, oneshot::channel());
        let joined = self.links.with_divided(|divided| match divided.join(consumer, shard) {
            Some((mut messages, joining)) => {
                messages.push((shard, Message::Consume { session, group, joining, reply }));
                (messages, true)
            }
            None => (DriverMessages::new(), false),
        });
        joined.unwrap_or(false).then_some(answer)
    }

    async fn join(
        &self,
        shard: ShardId,
        group: LeaseGroupId,
        joining: ConsumerRegistration,
    ) -> Result<bool, ConsumeError> {
        let (session, (reply, answer)) = (self.links.session, oneshot::channel());
        self.links.send(shard, Message::Consume { session, group, joining, reply });
        answered(answer).await
    }

    /// Adds to a consumer's credit. If its group lies in several shards, shards that have used up their credit
    /// and need more get it first, then those with the least.
    pub fn grant(&self, consumer: ConsumerId, credit: Credit) {
        match self.links.only() {
            Some(only) => {
                only.send(Message::Grant { session: self.links.session, consumer, credit });
            }
            None => self.links.divide(|divided| divided.grant(consumer, credit)),
        }
    }

    /// Replaces a consumer's credit; records that it holds count. If its group lies in several shards a window
    /// grows or shrinks by the difference, and the rest of grants is split evenly.
    pub fn set_credit(&self, consumer: ConsumerId, credit: Credit) {
        match self.links.only() {
            Some(only) => {
                only.send(Message::SetCredit { session: self.links.session, consumer, credit });
            }
            None => self.links.divide(|divided| divided.set_credit(consumer, credit)),
        }
    }

    /// Limits the unsettled records over all consumers of the session; `None`: unlimited.
    pub fn limit(&self, records: Option<u32>) {
        match self.links.only() {
            Some(only) => only.send(Message::Limit { session: self.links.session, records }),
            None => self.links.divide(|divided| divided.limit(records)),
        }
    }

    /// Ends the consumer. The session keeps its leases, to settle them. Events in flight may still come until
    /// this returns.
    pub async fn cancel(&self, consumer: ConsumerId) {
        if self.links.only().is_some() {
            return self.leave([ShardId::FIRST], consumer).await;
        }
        let remove =
            |divided: &mut SessionCredit| (DriverMessages::new(), divided.remove(consumer));
        let Some(shards) = self.links.with_divided(remove).flatten() else { return };
        let Some((first, others)) = shards.split_first() else { return };
        // No other consumer takes its place before it has left all shards.
        self.leave(others.iter().copied(), consumer).await;
        self.leave([*first], consumer).await;
    }

    async fn leave(&self, shards: impl IntoIterator<Item = ShardId>, consumer: ConsumerId) {
        let session = self.links.session;
        let mut answers = Vec::new();
        for shard in shards {
            let (reply, answer) = oneshot::channel();
            self.links.send(shard, Message::Cancel { session, consumer, reply });
            answers.push(answer);
        }
        join_all(answers).await;
    }

    /// Leases ready records, or waits for some. Empty after a timeout. Records that are being delivered when
    /// the future is dropped are released at once.
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

    /// The order among settles is that of the calls, not of the awaits.
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
            ShardSettleReply::new(settles.len(), self.settle_in(shard, settles))
        };
        SettleReply::several(of_shards.into_iter().map(part).collect(), places)
    }

    fn settle_in(
        &self,
        shard: ShardId,
        settles: Vec<Settle>,
    ) -> oneshot::Receiver<shard::delivery::handle::SettleResults> {
        let (reply, answer) = oneshot::channel();
        self.links.send(
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

    /// Settles and appends in one log entry, all or nothing: after a crash either both happened or neither.
    /// Transactions, and moving a record to another topic, need this. Records that it rejects become dead
    /// letters in the same entry. If they are too many for that (thousands, or megabytes), entries of their own
    /// follow before this returns.
    ///
    /// Batches for partitions of other shards go there by a message in the same entry. This returns when the
    /// message has arrived; after an error it may still be in flight. Such a row has no offset if an election
    /// came in between, and length limits do not apply to it. Settles of records in several shards are part of it,
    /// from [`base::Level::MESSAGE_COMMANDS`] on.
    pub async fn transfer(
        &self,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
    ) -> Result<Vec<Option<AppendedBatch>>, TransferError> {
        transfers_over_shards::transfer(&self.links, settles, batches).await
    }

    /// Same as dropping it.
    pub fn close(self) {}
}

type ConsumeResult = Result<bool, ConsumeError>;

async fn answered(answer: oneshot::Receiver<ConsumeResult>) -> ConsumeResult {
    answer.await.unwrap_or(Err(ConsumeError::Unavailable(Unavailable::Stopping)))
}

impl Drop for LeaseSession {
    fn drop(&mut self) {
        self.links.close();
    }
}
