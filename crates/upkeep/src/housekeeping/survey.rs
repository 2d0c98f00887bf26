//! A walk over all partitions with records, or over those of a topic, in steps: an apply waits while they are listed,
//! and the caller has other work as well.

use std::collections::VecDeque;
use std::ops::Bound;

use base::{PartitionId, TopicId};
use shard::LocalShard;

/// Number of rows passed under one lock.
const ROWS_PER_READ: usize = 1_000;
/// Number of topics listed under one lock.
const TOPICS_PER_READ: usize = 1_000;
/// Number of partitions with records in a round.
const PARTITIONS_PER_ROUND: usize = 10_000;
/// Number of rows passed in a round, with records or without.
const ROWS_PER_ROUND: usize = 100_000;

#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The last topic listed so far, while all topics are listed.
    all_after: Option<Bound<String>>,
    /// Topics to walk, and the position in the first of them.
    topics: VecDeque<TopicId>,
    next_index: u32,
}

impl Survey {
    /// Starts at the first topic, also while a walk is in progress.
    pub(crate) fn add_all(&mut self) {
        self.all_after = Some(Bound::Unbounded);
    }

    pub(crate) fn add(&mut self, topic: TopicId) {
        // The current topic is added again, since some of its partitions were passed already.
        if !self.topics.iter().skip(1).any(|known| *known == topic) {
            self.topics.push_back(topic);
        }
    }

    /// Returns the partitions of this round.
    pub(crate) fn next(&mut self, shard: &LocalShard) -> Vec<PartitionId> {
        let mut found = Vec::new();
        let mut passed = 0;
        while found.len() < PARTITIONS_PER_ROUND && passed < ROWS_PER_ROUND {
            let Some(&topic) = self.topics.front() else {
                if !self.list(shard) {
                    break;
                }
                continue;
            };
            passed += self.pass(shard, topic, &mut found);
        }
        found
    }

    /// Lists more topics. `false` when there are no more.
    fn list(&mut self, shard: &LocalShard) -> bool {
        let Some(after) = self.all_after.take() else { return false };
        let from = after.as_ref().map(String::as_str);
        let (topics, last) = shard.read(|state| {
            let mut last = None;
            let listed = state.catalog.topics_from(from).take(TOPICS_PER_READ).inspect(|topic| {
                last = Some(topic.name.clone());
            });
            let topics: Vec<TopicId> = listed.map(|topic| topic.id).collect();
            (topics, last)
        });
        self.all_after = last.map(|name| Bound::Excluded(name.to_string()));
        self.topics.extend(topics);
        self.all_after.is_some()
    }

    /// Continues in the first topic; returns the number of rows passed, at least one.
    fn pass(&mut self, shard: &LocalShard, topic: TopicId, found: &mut Vec<PartitionId>) -> usize {
        let (from, to) = (self.next_index, self.next_index.saturating_add(ROWS_PER_READ as u32));
        let rows = shard.read(|state| {
            let rows = state.rows.topic(topic)?;
            let topic = state.catalog.topic(topic)?;
            let end = topic.partition_count().min(to);
            found.extend((from..end).filter_map(|index| {
                let row = rows.partition(index)?;
                let holds = row.next_offset() > row.log_start();
                holds.then(|| PartitionId::new(topic.id, index))
            }));
            (end < topic.partition_count()).then_some(end - from)
        });
        match rows {
            Some(rows) => {
                self.next_index = to;
                rows as usize
            }
            None => {
                self.topics.pop_front();
                self.next_index = 0;
                ROWS_PER_READ.min(100)
            }
        }
    }
}
