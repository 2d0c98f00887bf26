//! Questions and changes about what shards hold: partitions, the progress of lease groups, committed
//! offsets.
//!
//! A shard may be led by another node. So a question is about a list, takes one step whatever its
//! length, and may fail; a change is an entry of the shard's log. The caller has looked the topic up
//! in the catalog before, and the topic may be deleted meanwhile: what is not there is answered with
//! `None`.
//!
//! Here one node holds all shards: nothing is waited for, and a question takes the state's lock once.
//! An apply waits for that lock, so a caller with a long list asks about a part of it at a time.
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
