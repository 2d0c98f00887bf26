//! A session's side of the delivery engine: it consumes, takes and settles.
//!
//! Nothing here waits for anything but the driver's answer: a session sends messages to the
//! driver, which owns all state, and hears through one receiver.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use base::LeaseGroupId;
use dispatch::{ConsumerId, SessionId, Settlement};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::append::{AppendBatch, Appended};
use crate::error::Unavailable;

use super::error::{ConsumeError, SettleError, TakeError, TransferError};
use super::event::Delivery;
use super::events::Events;
use super::handle::{Handle, Message};
use super::options::{ConsumeOptions, Credit, Settle, TakeOptions};

/// Resolves, in the order of the items, once what they changed is durable. Dropping it changes
/// nothing: the settles take effect all the same.
#[derive(Debug)]
pub struct SettleReply {
    items: usize,
    reply: oneshot::Receiver<Vec<Result<(), SettleError>>>,
}

impl Future for SettleReply {
    type Output = Vec<Result<(), SettleError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let items = self.items;
        Pin::new(&mut self.reply)
            .poll(context)
            .map(|reply| reply.unwrap_or_else(|_| vec![Err(Unavailable::Stopping.into()); items]))
    }
}

/// Who leases. Dropped or closed, its consumers leave and its leases come back at once.
#[derive(Debug)]
pub struct LeaseSession {
    id: SessionId,
    driver: Handle,
    events: Mutex<Option<Events>>,
}

impl LeaseSession {
    pub(super) fn open(driver: Handle) -> Self {
        let id = driver.next_session();
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
        let unread = Arc::default();
        driver.tell(Message::Open { session: id, events: sender, unread: Arc::clone(&unread) });
        let events = Events::new(receiver, unread, driver.clone(), id);
        Self { id, driver, events: Mutex::new(Some(events)) }
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The session's one receiver; `None` when it was taken before. What lies unread in it is
    /// bounded by credit, and by bytes for consumers whose credit is not.
    pub fn events(&self) -> Option<Events> {
        self.events.lock().take()
    }

    /// Records of the group come to this session from now on.
    pub async fn consume(
        &self,
        group: LeaseGroupId,
        options: ConsumeOptions,
    ) -> Result<ConsumerId, ConsumeError> {
        let (reply, answer) = oneshot::channel();
        self.driver.tell(Message::Consume { session: self.id, group, options, reply });
        answer.await.unwrap_or(Err(ConsumeError::Unavailable(Unavailable::Stopping)))
    }

    /// Adds to a consumer's credit.
    pub fn grant(&self, consumer: ConsumerId, credit: Credit) {
        self.driver.tell(Message::Grant { session: self.id, consumer, credit });
    }

    /// Sets a consumer's credit anew; what it holds already counts.
    pub fn set_credit(&self, consumer: ConsumerId, credit: Credit) {
        self.driver.tell(Message::SetCredit { session: self.id, consumer, credit });
    }

    /// At most so many unsettled records over all consumers of the session; `None`: any number.
    pub fn limit(&self, records: Option<u32>) {
        self.driver.tell(Message::Limit { session: self.id, records });
    }

    /// The consumer gets no more. What it holds stays with the session, to be settled. Events that
    /// are under way may still come until this returns.
    pub async fn cancel(&self, consumer: ConsumerId) {
        let (reply, answer) = oneshot::channel();
        self.driver.tell(Message::Cancel { session: self.id, consumer, reply });
        let _ = answer.await;
    }

    /// Leases what is ready, and waits if nothing is. Empty when the time is up. Records that are
    /// being handed out when the future is dropped come back at once.
    pub async fn take(
        &self,
        group: LeaseGroupId,
        options: TakeOptions,
    ) -> Result<Vec<Delivery>, TakeError> {
        let (reply, answer) = oneshot::channel();
        self.driver.tell(Message::Take { session: self.id, group, options, reply });
        let mut taking = Taking { session: self, group, answer };
        let answer = (&mut taking.answer).await;
        answer.unwrap_or(Err(TakeError::Unavailable(Unavailable::Stopping)))
    }

    /// Takes its place among the settles when this is called, not when it is awaited.
    pub fn settle(&self, settles: Vec<Settle>) -> SettleReply {
        let (reply, answer) = oneshot::channel();
        let items = settles.len();
        self.driver.tell(Message::Settle { session: self.id, settles, reply });
        SettleReply { items, reply: answer }
    }

    /// Settles and appends in one log entry, all or nothing: after a crash either both happened or
    /// neither. What a transaction, or moving a record to another topic, needs. Records that it
    /// rejects become dead letters in the same entry; where they are too many for that (thousands, or
    /// megabytes), by entries of their own, behind it and before this returns.
    pub async fn transfer(
        &self,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
    ) -> Result<Vec<Appended>, TransferError> {
        let (reply, answer) = oneshot::channel();
        self.driver.tell(Message::Transfer { session: self.id, settles, batches, reply });
        answer.await.unwrap_or(Err(TransferError::Unavailable(Unavailable::Stopping)))
    }

    /// As dropping it.
    pub fn close(self) {}
}

/// A take whose answer may have been sent, and may never be looked at: its future is dropped when
/// somebody's patience ends in the same moment. What lies in it would be leased to nobody.
struct Taking<'a> {
    session: &'a LeaseSession,
    group: LeaseGroupId,
    answer: oneshot::Receiver<Result<Vec<Delivery>, TakeError>>,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        // From here on the driver's sending fails, and it takes back what it wanted to send.
        self.answer.close();
        let Ok(Ok(unseen)) = self.answer.try_recv() else { return };
        let give_back = |delivery: Delivery| Settle {
            group: self.group,
            what: delivery.lease(),
            settlement: Settlement::Release { delay_ms: Some(0), count: false },
        };
        drop(self.session.settle(unseen.into_iter().map(give_back).collect()));
    }
}

impl Drop for LeaseSession {
    fn drop(&mut self) {
        self.driver.tell(Message::Close { session: self.id });
    }
}
