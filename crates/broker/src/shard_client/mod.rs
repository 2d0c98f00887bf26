//! Questions and changes about what shards hold: partitions, the progress of lease groups, committed
//! offsets.
//!
//! A shard may be led by another node. So a question is about a list, takes one step whatever its
//! length, and may fail; a change is an entry of the shard's log. Who asks has looked a topic up in
//! the catalog before, and the topic may be gone by then: what is not there is answered with `None`.
//!
//! One node holds all shards: nothing is waited for, and a question takes the state's lock once. An
//! apply waits for it, so whoever asks about much asks about some at a time.
//!
//! * [`partitions`], [`progress`], [`offsets`]: by subject

pub mod offsets;
pub mod partitions;
pub mod progress;

use machine::Rows;
use parking_lot::{MappedRwLockReadGuard, RwLockReadGuard};

use crate::broker::Broker;

pub use offsets::OffsetAges;
pub use partitions::{EpochEnd, Producer};
pub use progress::LeaseProgress;

/// Asks the shards, each the one that has what the question is about.
#[derive(Clone, Copy, Debug)]
pub struct ShardClient<'a> {
    broker: &'a Broker,
}

impl Broker {
    pub fn shards(&self) -> ShardClient<'_> {
        ShardClient { broker: self }
    }
}

impl<'a> ShardClient<'a> {
    fn rows(self) -> MappedRwLockReadGuard<'a, Rows> {
        RwLockReadGuard::map(self.broker.rows_shard().shard.state(), |state| &state.rows)
    }
}
