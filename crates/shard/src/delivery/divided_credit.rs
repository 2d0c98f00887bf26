//! Credit that is split over shards: its kinds, and the messages that move it.
//!
//! A consumer whose group lies in several shards has a share of its credit in each. The same holds for the
//! record limit of a session. A session moves shares by messages ([`Change`]); a driver reports that it lacks
//! credit, and how much it returned ([`Notice`]). Nothing is split, and no such message sent, while all of it
//! lies in one shard.

use base::{LeaseGroupId, ShardId};
use dispatch::ConsumerId;
use serde::{Deserialize, Serialize};

/// The credit that is split. Each kind has its own shares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum CreditKind {
    /// Records that a consumer may hold.
    Records(ConsumerId),
    /// Their bytes.
    Bytes(ConsumerId),
    /// Records that all consumers of the session may hold together.
    Session,
}

/// A change of a shard's share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// The shard had all of the credit until now. From now on its remainder is its share, in this round.
    Begin { round: u32 },
    /// Sets the share; no debt remains. A session that splits an amount again begins a round: credit returned
    /// in an earlier round does not count.
    Set { amount: u64, round: u32 },
    /// There is no limit, and so nothing to split.
    Unlimited,
    /// Adds to the share.
    Grant(u64),
    /// The total to return since the round began: unused credit at once, the rest as leases end and before it
    /// is used again. It is a total, so that credit returned before this message arrives is not requested
    /// twice. Replaces the earlier request.
    Return { in_all: u64 },
}

/// A driver's message to a session that is not for its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// Records are ready and the share is used up, or no longer. Sent once, and again after a change of the
    /// share that was not enough.
    Starved {
        shard: ShardId,
        kind: CreditKind,
        starved: bool,
    },
    Returned {
        shard: ShardId,
        kind: CreditKind,
        given: ReturnedCredit,
    },
    /// The topic of the group has more partitions now.
    Grown {
        group: LeaseGroupId,
    },
}

/// Credit that a shard returned from its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReturnedCredit {
    pub round: u32,
    pub amount: u64,
    /// Total of the requests to return credit in this round that are fulfilled.
    pub in_all: u64,
    /// Credit left that is not in use, for credit that a settle does not return.
    pub left: u64,
    /// Total granted in this round until then.
    pub granted: u64,
}
