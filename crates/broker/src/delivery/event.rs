//! What a session is told, and the one place where it hears it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use base::{LeaseGroupId, Offset};
use bytes::Bytes;
use dispatch::{ConsumerId, SessionId, Token};
use record::{RecordView, SharedRecord};
use tokio::sync::mpsc;

#[derive(Debug)]
pub enum Event {
    /// Leased records, in the order of delivery; of one or several consumers of the session.
    Deliveries(Vec<Delivery>),
    /// The consumer became the active one of a single-active group, or is it no longer.
    Active { consumer: ConsumerId, active: bool },
    /// The consumer is no more, and not by its own wish.
    Gone { consumer: ConsumerId, reason: GoneReason },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GoneReason {
    /// The lease group, or its topic, was deleted.
    Deleted,
}

/// One record, leased to one consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub group: LeaseGroupId,
    /// 0 when it was taken, not consumed.
    pub consumer: ConsumerId,
    /// Names this lease and no other, for as long as the node runs.
    pub token: Token,
    pub partition: u32,
    pub offset: Offset,
    /// 1 for the first time.
    pub attempt: u16,
    pub record: SharedRecord,
}

impl Delivery {
    /// Timestamp, key, value and headers in place. Walks the record: call it once.
    pub fn view(&self) -> RecordView<'_> {
        self.record.view()
    }

    /// A slice of the batch, not a copy.
    pub fn key(&self) -> Option<Bytes> {
        self.record.key()
    }

    /// A slice of the batch, not a copy.
    pub fn value(&self) -> Option<Bytes> {
        self.record.value()
    }
}

/// Records that were sent to a session and that it has not yet looked at. What bounds a consumer
/// that has unlimited credit and does not read.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    bytes: AtomicUsize,
    /// The driver holds deliveries back; whoever reads below the bound tells it.
    held_back: std::sync::atomic::AtomicBool,
}

impl Unread {
    pub(super) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    /// Asks to be told when there is room again.
    pub(super) fn hold_back(&self) {
        self.held_back.store(true, Ordering::Release);
    }

    /// True when the driver waits for it and the session has read enough.
    fn read(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        let left = before - bytes;
        left <= base::limits::LEASE_SESSION_UNREAD_BYTES_MAX / 2
            && self.held_back.load(Ordering::Acquire)
            && self.held_back.swap(false, Ordering::AcqRel)
    }
}

/// An event on its way, with what it weighs.
pub(crate) type Sent = (Event, usize);

/// The one receiver of a session's events.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::UnboundedReceiver<Sent>,
    unread: Arc<Unread>,
    driver: super::driver::Handle,
    session: SessionId,
}

impl Events {
    pub(super) fn new(
        receiver: mpsc::UnboundedReceiver<Sent>,
        unread: Arc<Unread>,
        driver: super::driver::Handle,
        session: SessionId,
    ) -> Self {
        Self { receiver, unread, driver, session }
    }

    /// The next event; `None` once the session is closed and everything was received. Dropping
    /// the future loses nothing.
    pub async fn recv(&mut self) -> Option<Event> {
        let sent = self.receiver.recv().await;
        self.note(sent)
    }

    pub fn try_recv(&mut self) -> Option<Event> {
        let sent = self.receiver.try_recv().ok();
        self.note(sent)
    }

    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        self.receiver.poll_recv(context).map(|sent| self.note(sent))
    }

    fn note(&self, sent: Option<Sent>) -> Option<Event> {
        let (event, bytes) = sent?;
        if bytes > 0 && self.unread.read(bytes) {
            self.driver.tell(super::driver::Message::Room { session: self.session });
        }
        Some(event)
    }
}
