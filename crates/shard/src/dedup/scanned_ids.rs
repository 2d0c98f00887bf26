//! Ids learned by a leader from the log, below [`base::Level::RECORD_IDS`]: those of records that still exist, by
//! their timestamps.

use std::collections::VecDeque;

use base::limits::DEDUP_IDS_MAX;
use base::{HashMap, PartitionId, TopicId};
use machine::KnownId;
use record::{Batch, ReservedHeaders};

use super::{BatchTarget, SeenRecord};
use crate::journal_batches::batches_in;
use crate::record_ids::hash;
use crate::state_machine::Shard;

#[derive(Debug, Default)]
pub(super) struct ScannedIds {
    topics: HashMap<TopicId, Window>,
}

/// The ids of one topic.
#[derive(Debug, Default)]
struct Window {
    seen: HashMap<u128, SeenRecord>,
    /// In the order of arrival, the oldest first.
    in_order: VecDeque<(i64, u128)>,
}

impl ScannedIds {
    pub(super) fn find(&self, topic: TopicId, id: u128) -> Option<SeenRecord> {
        self.topics.get(&topic)?.seen.get(&id).copied()
    }

    /// While the ids are being stored their places must not change, so `keep_all` prevents forgetting.
    pub(super) fn remember(&mut self, topic: TopicId, id: u128, seen: SeenRecord, keep_all: bool) {
        let window = self.topics.entry(topic).or_default();
        window.insert(id, seen);
        if !keep_all {
            window.forget_surplus(DEDUP_IDS_MAX);
        }
    }

    pub(super) fn forget_before(&mut self, topic: TopicId, before_ms: i64) {
        if let Some(window) = self.topics.get_mut(&topic) {
            window.forget_before(before_ms);
        }
    }

    pub(super) fn forget_from(&mut self, ticket: u64) {
        for window in self.topics.values_mut() {
            window.seen.retain(|_, seen| seen.ticket < ticket);
            window.in_order.retain(|(_, id)| window.seen.contains_key(id));
        }
    }

    /// Topics with their numbers of ids, sorted by topic number.
    pub(super) fn topics(&self) -> Vec<(TopicId, usize)> {
        let mut topics: Vec<_> =
            self.topics.iter().map(|(topic, window)| (*topic, window.in_order.len())).collect();
        topics.sort_unstable();
        topics
    }

    pub(super) fn is_empty(&self) -> bool {
        self.topics.values().all(|window| window.in_order.is_empty())
    }

    /// Ids of a topic, in the order of arrival, as the state stores them.
    pub(super) fn part(&self, topic: TopicId, from: usize, to: usize) -> Vec<KnownId> {
        let Some(window) = self.topics.get(&topic) else { return Vec::new() };
        let known = |(_, hash): &(i64, u128)| {
            let SeenRecord { at_ms, partition, offset, .. } = *window.seen.get(hash)?;
            Some(KnownId { hash: *hash, at_ms, partition: partition.index, offset })
        };
        let to = to.min(window.in_order.len());
        window.in_order.range(from.min(to)..to).filter_map(known).collect()
    }

    /// Learns the ids of a stored batch. After the last of several batches, call [`Self::put_in_order`].
    pub(super) fn learn_batch(&mut self, bytes: &[u8], going: BatchTarget) {
        let BatchTarget { partition, base_offset, window_ms, now_ms, ticket } = going;
        let from_ms = now_ms.saturating_sub(window_ms);
        let Ok(batch) = Batch::decode_at(bytes, Some(base_offset)) else { return };
        let window = self.topics.entry(partition.topic).or_default();
        for record in batch.records().map_while(Result::ok) {
            let at_ms = record.timestamp.min(now_ms);
            if let Some(id) = ReservedHeaders::read(&record.headers).id
                && at_ms >= from_ms
            {
                let offset = record.offset;
                window.insert(hash(id), SeenRecord { at_ms, partition, offset, ticket });
            }
        }
    }

    /// Merges the ids just learned into the known ones.
    pub(super) fn put_in_order(&mut self, topic: TopicId) {
        if let Some(window) = self.topics.get_mut(&topic) {
            // The sort merges two sorted runs.
            window.in_order.make_contiguous().sort();
            window.forget_surplus(DEDUP_IDS_MAX);
        }
    }

    /// Learns the ids in the log.
    pub(super) async fn load(shard: &Shard, now_ms: i64) -> Self {
        let mut learned = Self::default();
        let dedups: Vec<(PartitionId, i64)> = shard.read(|state| {
            let topics = state.catalog.topics().filter(|topic| topic.config.dedup_window_ms > 0);
            topics
                .flat_map(|topic| {
                    let window_ms = topic.config.dedup_window_ms;
                    topic.partition_ids().map(move |partition| (partition, window_ms))
                })
                .collect()
        });
        let mut topic = None;
        for (partition, window_ms) in dedups {
            if let Some(former) = topic.replace(partition.topic).filter(|it| *it != partition.topic)
            {
                learned.put_in_order(former);
            }
            if let Err(error) = learned.learn(shard, partition, window_ms, now_ms).await {
                tracing::warn!(%partition, %error, "ids of records cannot be learned from the log");
            }
        }
        if let Some(last) = topic {
            learned.put_in_order(last);
        }
        learned
    }

    async fn learn(
        &mut self,
        shard: &Shard,
        partition: PartitionId,
        window_ms: i64,
        now_ms: i64,
    ) -> Result<(), journal::ReadError> {
        const BYTES_AT_ONCE: usize = 1 << 20;
        let from_ms = now_ms.saturating_sub(window_ms);
        let stream = partition.stream();
        let Some((first, _)) = shard.journal.find_time(stream, from_ms).await? else {
            return Ok(());
        };
        let mut offset = first.base_offset;
        loop {
            let pieces = shard.journal.read(stream, offset, BYTES_AT_ONCE).await?;
            let before = offset;
            for (header, bytes) in batches_in(&pieces).filter_map(Result::ok) {
                offset = header.next_offset();
                // An aborted transaction may be retried with the same ids: its batches are not in the window.
                if header.attributes.is_transactional() {
                    continue;
                }
                let base_offset = header.base_offset;
                let stored = BatchTarget { partition, base_offset, window_ms, now_ms, ticket: 0 };
                self.learn_batch(&bytes, stored);
            }
            let window = self.topics.get(&partition.topic);
            if window.is_some_and(|window| window.in_order.len() > 2 * DEDUP_IDS_MAX) {
                self.put_in_order(partition.topic);
            }
            if offset == before {
                return Ok(());
            }
        }
    }
}

impl Window {
    fn insert(&mut self, id: u128, seen: SeenRecord) {
        if self.seen.insert(id, seen).is_none() {
            self.in_order.push_back((seen.at_ms, id));
        }
    }

    /// Forgets the oldest ids beyond the limit. The caller has put them in order.
    fn forget_surplus(&mut self, at_most: usize) {
        while self.in_order.len() > at_most
            && let Some((_, oldest)) = self.in_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
    }

    fn forget_before(&mut self, before_ms: i64) {
        while let Some(&(at_ms, id)) = self.in_order.front()
            && at_ms < before_ms
        {
            self.in_order.pop_front();
            self.seen.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_forgets_the_oldest_arrivals_of_all_partitions() {
        // The newest ids of partition 0 are learned before the oldest of partition 1.
        let (topic, at_most) = (TopicId(1), 6_000);
        let mut window = Window::default();
        for partition in 0..2_u32 {
            for at_ms in 0..4_000_i64 {
                let id = u128::from(partition) << 64 | at_ms as u128;
                let partition = PartitionId::new(topic, partition);
                window.insert(id, SeenRecord { at_ms, partition, offset: at_ms as u64, ticket: 0 });
            }
        }
        window.in_order.make_contiguous().sort();
        window.forget_surplus(at_most);
        let knows = |partition: u128, at: u128| window.seen.contains_key(&(partition << 64 | at));
        assert!(!knows(0, 999) && !knows(1, 999));
        assert!(knows(0, 1_000) && knows(1, 1_000));
        assert_eq!(window.seen.len(), at_most);
    }
}
