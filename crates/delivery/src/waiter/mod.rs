//! Callers that wait until settles are durable, and the replies that they get.

pub(crate) mod in_transit;
pub(crate) mod repeat;

use base::LeaseGroupId;
use dispatch::Settlement;
use shard::delivery::handle::{SettleResults, TransferOutcome, TransferResult};
use shard::delivery::options::Settle;
use shard::delivery::settle_reply::SettleSender;
use shard::error::Unavailable;
use tasks::Task;
use tokio::sync::oneshot;

use crate::waiter::in_transit::DeadLettersInTransit;
use crate::waiter::repeat::{Repeat, UncommittedSettle};

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) reply: Reply,
    /// Groups of the settled records.
    pub(crate) groups: Vec<LeaseGroupId>,
    pub(crate) rejects: Vec<Reject>,
    /// Repeats the settle in the next term. `None`: the session's node repeats it, or there is nothing to
    /// repeat.
    pub(crate) repeat: Option<Repeat>,
    /// Dead letters that are in the log and on their way to other shards.
    pub(crate) arrivals: Vec<DeadLettersInTransit>,
}

/// The reply and its receiver.
#[derive(Debug)]
pub(crate) enum Reply {
    Settles(SettleResults, SettleSender),
    Transfer(TransferOutcome, oneshot::Sender<TransferResult>),
}

/// A group in which something was rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reject {
    pub(crate) group: LeaseGroupId,
    /// The engine that accepted the reject, and the number of its dead letters that must be appended before the
    /// reject is durable. Known once the group's changes are drained.
    pub(crate) engine: u64,
    pub(crate) dead_lettered: u64,
}

impl Waiter {
    pub(crate) fn new(reply: Reply, groups: Vec<LeaseGroupId>, rejects: Vec<Reject>) -> Self {
        Self { reply, groups, rejects, repeat: None, arrivals: Vec::new() }
    }

    /// A rejected record becomes a dead letter whether or not a caller waits.
    pub(crate) fn is_awaited(&self) -> bool {
        let caller_is_there = match &self.reply {
            Reply::Settles(_, reply) => !reply.is_closed(),
            Reply::Transfer(_, reply) => !reply.is_closed(),
        };
        caller_is_there || !self.rejects.is_empty()
    }

    /// The settle is durable. Replies once its dead letters have arrived.
    pub(crate) fn answer(mut self) {
        self.arrivals.retain(|arrival| !arrival.has_arrived());
        if self.arrivals.is_empty() {
            return self.answer_now();
        }
        let arrivals = std::mem::take(&mut self.arrivals);
        tasks::spawn(Task::Channels, async move {
            DeadLettersInTransit::all(arrivals).await;
            self.answer_now();
        });
    }

    fn answer_now(self) {
        // The caller may be gone.
        match self.reply {
            Reply::Settles(results, reply) => reply.send(results),
            Reply::Transfer(appended, reply) => drop(reply.send(Ok(appended))),
        }
    }

    /// It is unknown whether the settle is durable.
    pub(crate) fn fail(self, why: &Unavailable) {
        match self.reply {
            Reply::Settles(mut results, reply) => {
                for result in results.iter_mut().filter(|result| result.is_ok()) {
                    *result = Err(why.clone().into());
                }
                reply.send(results);
            }
            Reply::Transfer(_, reply) => drop(reply.send(Err(why.clone().into()))),
        }
    }

    /// The term is over, and its settles may not be durable. The caller of one that cannot be repeated gets
    /// `why`.
    pub(crate) fn lost(self, why: &Unavailable) -> Option<UncommittedSettle> {
        match self {
            Self { reply: Reply::Settles(results, reply), repeat: Some(repeat), .. } => {
                Some(repeat.lost(results, reply))
            }
            waiter => {
                waiter.fail(why);
                None
            }
        }
    }
}

/// Records the settle's group if it rejects.
pub(crate) fn note_reject(rejects: &mut Vec<Reject>, settle: &Settle) {
    let known = rejects.iter().any(|reject| reject.group == settle.group);
    if settle.settlement == Settlement::Reject && !known {
        rejects.push(Reject { group: settle.group, engine: 0, dead_lettered: 0 });
    }
}
