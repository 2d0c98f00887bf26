//! A delivered record with its lease, and the claim to that lease at another engine.

use base::Offset;
use serde::{Deserialize, Serialize};

use super::{Lease, Selection};
use crate::record::Meta;
use crate::{ConsumerId, SessionId, Token};

/// A record leased to a consumer: read it and send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment {
    pub consumer: ConsumerId,
    pub session: SessionId,
    /// The lease's fencing token; unused if the record was settled on send.
    pub token: Token,
    pub partition: u32,
    pub offset: Offset,
    /// 1 = the first delivery.
    pub attempt: u16,
    /// `None` if the record was settled on send.
    pub terms: Option<LeaseAttributes>,
}

impl Assignment {
    /// Identifies this lease in a settle.
    pub fn selection(&self) -> Selection {
        Selection::Lease { partition: self.partition, token: self.token }
    }

    /// `None` where the record was settled on send.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let Self { consumer, session, token, partition, offset, attempt, terms } = *self;
        let LeaseAttributes { deadline_ms, meta, credit, pooled } = terms?;
        Some(Lease {
            token,
            offset,
            meta,
            deadline_ms,
            session,
            consumer,
            partition,
            attempt,
            credit,
            pooled,
        })
    }
}

/// A lease's fields besides its identity: together they allow its holder to claim it at another
/// engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeaseAttributes {
    /// `i64::MAX`: until the session ends.
    pub(crate) deadline_ms: i64,
    pub(crate) meta: Meta,
    /// It uses credit of its consumer.
    pub(crate) credit: bool,
    /// It uses its session's pool.
    pub(crate) pooled: bool,
}

/// A live lease, with all fields of its record that an engine needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim(pub(crate) Lease);

impl LeaseAttributes {
    /// Converts the deadline to a clock that is ahead by this much.
    pub fn shifted(self, by_ms: i64) -> Self {
        Self { deadline_ms: shifted(self.deadline_ms, by_ms), ..self }
    }
}

fn shifted(deadline_ms: i64, by_ms: i64) -> i64 {
    match deadline_ms {
        i64::MAX => i64::MAX,
        deadline_ms => deadline_ms.saturating_add(by_ms).min(i64::MAX - 1),
    }
}

impl Claim {
    /// Claim of a delivered record; `None` if it was settled on send.
    pub fn of(assignment: &Assignment) -> Option<Self> {
        assignment.lease().map(Self)
    }

    pub fn session(&self) -> SessionId {
        self.0.session
    }

    /// 0: the record was taken, not consumed.
    pub fn consumer(&self) -> ConsumerId {
        self.0.consumer
    }

    pub fn token(&self) -> Token {
        self.0.token
    }

    pub fn place(&self) -> (u32, Offset) {
        (self.0.partition, self.0.offset)
    }

    /// Deadline of the lease; `i64::MAX`: until its session ends.
    pub fn deadline_ms(&self) -> i64 {
        self.0.deadline_ms
    }

    /// As [`LeaseAttributes::shifted`].
    pub fn shifted(self, by_ms: i64) -> Self {
        self.until(shifted(self.0.deadline_ms, by_ms))
    }

    /// With a new deadline, after a renewal.
    pub fn until(self, deadline_ms: i64) -> Self {
        Self(Lease { deadline_ms, ..self.0 })
    }
}
