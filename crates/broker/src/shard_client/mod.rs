//! Questions and changes about what shards hold: partitions, the progress of lease groups, committed
//! offsets.
//!
//! A shard may be led by another node. So a question is about a list, takes one step whatever its
//! length, and may fail; a change is an entry of the shard's log. The caller has looked the topic up
//! in the catalog before, and the topic may be deleted meanwhile: what is not there is answered with
//! `None`.
//!
//! Of a shard that this node is a member of, nothing is waited for: its own copy is asked, and a question takes the
//! state's lock once. An apply waits for that lock, so a caller with a long list asks about a part of it at a time. Of
//! another shard the node that leads it is asked.
//!
//! * [`partitions`], [`progress`], [`offsets`]: by subject
//! * `elsewhere`: asking leaders ([`crate::asking`]) about lists; `reading`: records

mod elsewhere;
pub mod offsets;
pub mod partitions;
pub mod progress;
mod reading;

use base::{PartitionId, ShardId, TopicId};
use machine::Rows;

use crate::broker::Broker;
use crate::error::Unavailable;
use crate::local_shard::LocalShard;

pub(crate) use elsewhere::Elsewhere;

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

impl ShardClient<'_> {
    /// Asks each question of the shard that has its partition.
    async fn ask<Q: Clone, A>(
        self,
        questions: &[Q],
        about: impl Fn(&Q) -> Option<PartitionId>,
        answer: impl Fn(&LocalShard, &Rows, &Q) -> Option<A>,
        elsewhere: Elsewhere<Q, Option<A>>,
    ) -> Result<Vec<Option<A>>, Unavailable> {
        let partition = |question| about(question).unwrap_or(NO_PARTITION);
        let places = self.broker.places_of(questions.iter().map(partition));
        let mut answers: Vec<Option<A>> = questions.iter().map(|_| None).collect();
        let mut asked: Vec<(ShardId, Vec<(usize, Q)>)> = Vec::new();
        for (place, shard) in self.broker.shards_with_rows().iter().enumerate() {
            let here = || (0..questions.len()).filter(|at| places[*at] == place);
            if !shard.has_rows() {
                let of_shard: Vec<_> = here().map(|at| (at, questions[at].clone())).collect();
                if !of_shard.is_empty() {
                    asked.push((shard.id(), of_shard));
                }
                continue;
            }
            let rows = shard.shard.rows();
            for at in here() {
                answers[at] = answer(shard, &rows, &questions[at]);
            }
        }
        if !asked.is_empty() {
            for (at, answer) in self.broker.ask_lists(asked, &elsewhere).await? {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }
}

/// Of no topic.
const NO_PARTITION: PartitionId = PartitionId::new(TopicId(u32::MAX), 0);
