//! Settles that are repeated in the next term.
//!
//! A settle ends leases in memory at once, and is durable later. If the term ends in between, its leases are
//! presented to the next leader like those that are still held, and the settle is repeated there, each lease by
//! its token. A settle that took effect before the term ended has left no lease to take over, so nothing is
//! settled, counted or dead-lettered twice.

use base::LeaseGroupId;
use dispatch::{Claim, Selection, SessionId, Settlement};
use shard::delivery::error::SettleError;
use shard::delivery::handle::{Message, SettleResults};
use shard::delivery::options::Settle;
use shard::delivery::settle_reply::{Fold, SettleSender};

/// The leases that a settle ended, kept until it is durable.
#[derive(Debug)]
pub(crate) struct Repeat {
    session: SessionId,
    ended: Vec<(LeaseGroupId, Claim, Settlement)>,
    /// Number of leases that each of its items ended.
    of_items: Vec<u32>,
}

/// A settle that the term did not make durable: its leases, and the message that repeats it.
pub(crate) struct UncommittedSettle {
    pub(crate) claims: Vec<(LeaseGroupId, Claim)>,
    pub(crate) message: Message,
}

impl Repeat {
    pub(crate) fn new(session: SessionId, items: usize) -> Self {
        Self { session, ended: Vec::new(), of_items: Vec::with_capacity(items) }
    }

    /// The next item ended `claims`.
    pub(crate) fn add(&mut self, settle: &Settle, claims: impl IntoIterator<Item = Claim>) {
        let before = self.ended.len();
        let ended = claims.into_iter().map(|claim| (settle.group, claim, settle.settlement));
        self.ended.extend(ended);
        self.of_items.push((self.ended.len() - before) as u32);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty()
    }

    /// `results`: those of the settle's items.
    pub(crate) fn lost(self, results: SettleResults, reply: SettleSender) -> UncommittedSettle {
        let Self { session, ended, of_items } = self;
        let fold = |(result, count): (Result<(), SettleError>, u32)| match (&result, count) {
            (Ok(()), 1..) => Fold::Next(count),
            _ => Fold::Known(result),
        };
        let reply = reply.folded(results.into_iter().zip(of_items).map(fold).collect());
        let settle = |&(group, claim, settlement): &(LeaseGroupId, Claim, Settlement)| Settle {
            group,
            what: named(session, &claim),
            settlement,
        };
        let settles = ended.iter().map(settle).collect();
        let message = Message::Settle { session, settles, again: true, reply };
        UncommittedSettle {
            claims: ended.into_iter().map(|(group, claim, _)| (group, claim)).collect(),
            message,
        }
    }
}

/// Selects exactly this lease, also if another session settles it.
pub(crate) fn named(session: SessionId, claim: &Claim) -> Selection {
    let (partition, token) = (claim.place().0, claim.token());
    match claim.session() {
        holder if holder != session => Selection::Held { partition, token, session: holder },
        _ => Selection::Lease { partition, token },
    }
}
