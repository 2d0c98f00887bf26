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

use base::{PartitionId, TopicId};
use machine::Rows;

use crate::broker::Broker;
use crate::state_lock::Reading;

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

/// A shard's rows, for as long as this is held.
type RowsGuard<'a> = Reading<'a, Rows>;

impl<'a> ShardClient<'a> {
    /// The rows of each shard, one after the other: no two are locked at a time.
    fn each(self) -> impl Iterator<Item = RowsGuard<'a>> {
        self.broker.shards_with_rows().iter().map(|shard| shard.shard.rows())
    }

    /// The rows that a group's offsets are in.
    fn home_of(self, group: &str) -> RowsGuard<'a> {
        self.broker.home_of(group).shard.rows()
    }

    /// Asks each question of the shard that has its partition.
    fn ask<Q, A>(
        self,
        questions: &[Q],
        about: impl Fn(&Q) -> Option<PartitionId>,
        answer: impl Fn(&Rows, &Q) -> Option<A>,
    ) -> Vec<Option<A>> {
        let partition = |question| about(question).unwrap_or(NO_PARTITION);
        let places = self.broker.places_of(questions.iter().map(partition));
        let mut answers: Vec<Option<A>> = questions.iter().map(|_| None).collect();
        for (shard, rows) in self.each().enumerate() {
            let here = questions.iter().zip(&mut answers).zip(&places);
            for ((question, slot), _) in here.filter(|(_, place)| **place == shard) {
                *slot = answer(&rows, question);
            }
        }
        answers
    }
}

/// Of no topic.
const NO_PARTITION: PartitionId = PartitionId::new(TopicId(u32::MAX), 0);
