//! Events of a session, and the channel that carries them.

use base::{LeaseGroupId, Offset};
use bytes::Bytes;
use dispatch::{Assignment, Claim, ConsumerId, LeaseAttributes, Selection, SessionId, Token};
use record::{RecordView, SharedRecord};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::divided_credit::Notice;

#[derive(Debug)]
pub enum Event {
    /// Leased records, in the order of delivery; for one or several consumers of the session.
    Deliveries(Vec<Delivery>),
    /// The consumer became the active one of a single-active group, or is it no longer.
    Active { consumer: ConsumerId, active: bool },
    /// The consumer was ended by the broker.
    Gone { consumer: ConsumerId, reason: GoneReason },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GoneReason {
    /// The lease group, or its topic, was deleted.
    Deleted,
    /// Another node leads the shard now, and a different consumer is exclusive there, or this one wanted to be
    /// and there are others.
    LedElsewhere,
}

/// One record, leased to one consumer.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub group: LeaseGroupId,
    /// 0 when it was taken, not consumed.
    pub consumer: ConsumerId,
    /// Identifies this lease among those of its partition while the node runs.
    pub token: Token,
    pub partition: u32,
    pub offset: Offset,
    /// 1 for the first delivery.
    pub attempt: u16,
    /// Terms for the claim of the lease at the next leader. `None`: it was settled on send.
    pub terms: Option<LeaseAttributes>,
    pub record: SharedRecord,
}

impl Delivery {
    /// Selects this lease in a settle.
    #[inline]
    pub fn lease(&self) -> Selection {
        Selection::Lease { partition: self.partition, token: self.token }
    }

    /// The claim of the lease for the session at the next leader.
    #[inline]
    pub fn claim(&self, session: SessionId) -> Option<Claim> {
        let Self { consumer, token, partition, offset, attempt, terms, .. } = *self;
        Claim::of(&Assignment { consumer, session, token, partition, offset, attempt, terms })
    }

    /// Bytes that it counts until its session has read it.
    #[inline]
    pub fn weight(&self) -> usize {
        self.record.encoded_len() + size_of::<Self>()
    }

    /// Timestamp, key, value and headers in place. Parses the record: call it once.
    #[inline]
    pub fn view(&self) -> RecordView<'_> {
        self.record.view()
    }

    /// A slice of the batch, not a copy.
    #[inline]
    pub fn key(&self) -> Option<Bytes> {
        self.record.key()
    }

    /// A slice of the batch, not a copy.
    #[inline]
    pub fn value(&self) -> Option<Bytes> {
        self.record.value()
    }
}

/// Sending end of a session's events.
#[derive(Clone, Debug)]
pub enum EventSender {
    /// A session of this node.
    Here(mpsc::UnboundedSender<SessionMessage>),
    /// A session of another node, whose relay receives the events of all its sessions.
    Relayed { session: SessionId, events: mpsc::UnboundedSender<(SessionId, SessionMessage)> },
}

impl EventSender {
    /// Ignores a closed receiver.
    pub fn send(&self, sent: SessionMessage) {
        match self {
            Self::Here(events) => drop(events.send(sent)),
            Self::Relayed { session, events } => drop(events.send((*session, sent))),
        }
    }
}

/// A message to a session.
#[derive(Debug)]
pub enum SessionMessage {
    /// An event with its weight in bytes.
    Event(Event, usize),
    /// Not for its user.
    Notice(Notice),
}
