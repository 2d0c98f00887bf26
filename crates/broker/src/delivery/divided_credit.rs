//! Credit that is divided over shards: its kinds, and the messages that move it.
//!
//! A consumer whose group lies in several shards has a share of its credit in each, and so has a session of
//! the number of records that it may hold. A session moves shares by messages ([`Change`]); a driver says
//! when it lacks some, and what it gave back ([`Notice`]). Where all lies in one shard nothing is divided, and
//! none of this is sent.

use base::{LeaseGroupId, ShardId};
use dispatch::ConsumerId;
use serde::{Deserialize, Serialize};

/// What is divided. Each kind has shares of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) enum CreditKind {
    /// Records that a consumer may hold.
    Records(ConsumerId),
    /// Their bytes.
    Bytes(ConsumerId),
    /// Records that all consumers of the session may hold together.
    Session,
}

/// What becomes of a shard's share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Change {
    /// The shard had all of it until now. From now on what it has is its share, in this round.
    Begin { round: u32 },
    /// The share is so much from now on, and nothing is owed. A session that divides an amount anew begins a
    /// round: what shards gave back in an earlier round does not count.
    Set { amount: u64, round: u32 },
    /// There is no bound, and so nothing to divide.
    Unlimited,
    /// So much more.
    Grant(u64),
    /// So much is to be given back in all since the round began: what is not in use at once, the rest as leases
    /// end and before it is used again. Counted from the beginning, so that what was given back before this
    /// arrives is not asked for twice. Instead of what was asked for before.
    GiveBack { in_all: u64 },
}

/// What a driver tells a session that is not for its user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Notice {
    /// Records are ready, and the share is used up; or that is so no longer. Said once, and again after
    /// a change of the share that was not enough.
    Starved {
        shard: ShardId,
        kind: CreditKind,
        starved: bool,
    },
    GaveBack {
        shard: ShardId,
        kind: CreditKind,
        given: GivenBack,
    },
    /// The topic of the group has more partitions now.
    Grown {
        group: LeaseGroupId,
    },
}

/// What a shard gave back of its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct GivenBack {
    pub(crate) round: u32,
    pub(crate) amount: u64,
    /// What it was asked for in this round and is done with.
    pub(crate) in_all: u64,
    /// What it has that is not in use, where use does not give back.
    pub(crate) left: u64,
    /// All that it was given in this round until then.
    pub(crate) granted: u64,
}
