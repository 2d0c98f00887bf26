//! What a session is told, and how much of that it has not looked at.

use base::{LeaseGroupId, Offset};
use bytes::Bytes;
use dispatch::{Assignment, Claim, ConsumerId, Selection, SessionId, Terms, Token};
use record::{RecordView, SharedRecord};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::divided_credit::Notice;

#[derive(Debug)]
pub enum Event {
    /// Leased records, in the order of delivery; of one or several consumers of the session.
    Deliveries(Vec<Delivery>),
    /// The consumer became the active one of a single-active group, or is it no longer.
    Active { consumer: ConsumerId, active: bool },
    /// The consumer is no more, and not by its own wish.
    Gone { consumer: ConsumerId, reason: GoneReason },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GoneReason {
    /// The lease group, or its topic, was deleted.
    Deleted,
    /// Another node leads the shard now, and somebody else consumes the group exclusively there, or does so and
    /// this one wanted to.
    LedElsewhere,
}

/// One record, leased to one consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub group: LeaseGroupId,
    /// 0 when it was taken, not consumed.
    pub consumer: ConsumerId,
    /// Names this lease and no other of its partition, for as long as the node runs.
    pub token: Token,
    pub partition: u32,
    pub offset: Offset,
    /// 1 for the first time.
    pub attempt: u16,
    /// By which the node of its session claims the lease where another node leads next. `None`: it was settled on send.
    pub(crate) terms: Option<Terms>,
    pub record: SharedRecord,
}

impl Delivery {
    /// What names this lease in a settle.
    pub fn lease(&self) -> Selection {
        Selection::Lease { partition: self.partition, token: self.token }
    }

    /// The lease, to be claimed for the session if another node leads next.
    pub(super) fn claim(&self, session: SessionId) -> Option<Claim> {
        let Self { consumer, token, partition, offset, attempt, terms, .. } = *self;
        Claim::of(&Assignment { consumer, session, token, partition, offset, attempt, terms })
    }

    /// What it counts as until its session has looked at it.
    pub(super) fn weight(&self) -> usize {
        self.record.encoded_len() + size_of::<Self>()
    }

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

/// Where a session hears what it is told.
#[derive(Clone, Debug)]
pub(crate) enum EventSender {
    /// It is one of this node's.
    Here(mpsc::UnboundedSender<Sent>),
    /// It is another node's, whose relay takes the events of all its sessions.
    Relayed { session: SessionId, events: mpsc::UnboundedSender<(SessionId, Sent)> },
}

impl EventSender {
    /// Who does not listen any more need not hear it.
    pub(super) fn send(&self, sent: Sent) {
        match self {
            Self::Here(events) => drop(events.send(sent)),
            Self::Relayed { session, events } => drop(events.send((*session, sent))),
        }
    }
}

/// What is on its way to a session.
#[derive(Debug)]
pub(crate) enum Sent {
    /// With what it weighs.
    Event(Event, usize),
    /// Not for its user.
    Notice(Notice),
}
