//! Topics with `dedup.window.ms`: a record whose `postroad.id` was appended within the window is
//! not appended again.
//!
//! Ids are looked at where records get their place, so that two copies under way at once do not
//! both get one. They are learned again from the log when the node starts, by the records' timestamps.

use std::collections::VecDeque;

use base::limits::DEDUP_IDS_MAX;
use base::{HashMap, HashSet, Offset, PartitionId, TopicId};
use record::{Batch, BatchHeader, Reserved, Retained, retain_or_empty};

use crate::record_ids::{RecordIds, hash};
use crate::shard::Shard;
use crate::stored::batches_in;

#[derive(Debug, Default)]
pub(crate) struct Dedup {
    topics: HashMap<TopicId, Window>,
}

/// The ids of one topic.
#[derive(Debug, Default)]
struct Window {
    seen: HashMap<u128, Seen>,
    /// As they came. Time in the log does not run backwards, so the oldest is first.
    in_order: VecDeque<(i64, u128)>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ms: i64,
    partition: PartitionId,
    offset: Offset,
    /// Of the proposal that it is in; 0: it was in the log.
    ticket: u64,
}

/// What is left of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deduplicated {
    /// Nothing was there before.
    Whole,
    /// Everything was; this is where the first record is.
    Nothing { partition: PartitionId, offset: Offset },
    /// Records at these places in the batch were: see [`without`].
    Part(Copies),
}

/// Places of records in their batch, ascending.
pub(crate) type Copies = Vec<u64>;

/// The batch without these records: the same offsets, and the same numbers of its producer. `None`
/// where it cannot be read: it stays as it is.
pub(crate) fn without(batch: &[u8], copies: &[u64]) -> Option<Vec<u8>> {
    let header = BatchHeader::parse(batch).ok()?;
    if copies.len() == header.record_count as usize {
        return record::empty(batch).ok();
    }
    let base = header.base_offset;
    let is_new = |offset: Offset| copies.binary_search(&(offset - base)).is_err();
    match retain_or_empty(batch, |record| is_new(record.offset)) {
        Ok(Retained::Part(rest)) => Some(rest),
        Ok(Retained::All | Retained::None) | Err(_) => None,
    }
}

/// Where a batch is about to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Going {
    pub(crate) partition: PartitionId,
    pub(crate) base_offset: Offset,
    pub(crate) window_ms: i64,
    pub(crate) now_ms: i64,
    pub(crate) ticket: u64,
}

impl Dedup {
    /// Looks for ids that are there, and remembers those that are new.
    pub(crate) fn check(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        ids: Option<RecordIds>,
        going: Going,
    ) -> Deduplicated {
        let RecordIds(ids) = ids.unwrap_or_else(|| RecordIds::read(bytes));
        if ids.is_empty() {
            return Deduplicated::Whole;
        }
        let Going { partition, base_offset, window_ms, now_ms, ticket } = going;
        let window = self.topics.entry(partition.topic).or_default();
        window.forget_before(now_ms.saturating_sub(window_ms));
        let mut copies: Vec<u64> = Vec::new();
        let mut first = None;
        for (delta, id) in ids {
            if let Some(seen) = window.seen.get(&id) {
                copies.push(delta);
                first.get_or_insert(*seen);
            } else {
                let offset = base_offset + delta;
                window.remember(id, Seen { at_ms: now_ms, partition, offset, ticket });
            }
        }
        // An idempotent producer counts what it sends: its batch keeps its place, be it empty.
        if let Some(Seen { partition, offset, .. }) = first
            && copies.len() == header.record_count as usize
            && !header.is_idempotent()
        {
            return Deduplicated::Nothing { partition, offset };
        }
        if copies.is_empty() { Deduplicated::Whole } else { Deduplicated::Part(copies) }
    }

    /// Which of a batch's records are copies of others in it or of those that came since `from_ms`, if
    /// some are and some are not. Nothing is remembered.
    pub(crate) fn copies_among(
        &self,
        topic: TopicId,
        header: &BatchHeader,
        ids: &RecordIds,
        from_ms: i64,
    ) -> Option<Copies> {
        let window = self.topics.get(&topic);
        let is_there = |id: &u128| {
            window.and_then(|it| it.seen.get(id)).is_some_and(|seen| seen.at_ms >= from_ms)
        };
        let mut own = HashSet::default();
        let copies = ids.0.iter().filter(|(_, id)| is_there(id) || !own.insert(*id));
        let copies: Copies = copies.map(|(delta, _)| *delta).collect();
        (!copies.is_empty() && copies.len() < header.record_count as usize).then_some(copies)
    }

    /// Learns the ids in a batch that is stored already. After the last of several, [`Self::put_in_order`].
    pub(crate) fn learn_batch(&mut self, bytes: &[u8], going: Going) {
        let Going { partition, base_offset, window_ms, now_ms, ticket } = going;
        let from_ms = now_ms.saturating_sub(window_ms);
        let Ok(batch) = Batch::decode_at(bytes, Some(base_offset)) else { return };
        let window = self.topics.entry(partition.topic).or_default();
        for record in batch.records().map_while(Result::ok) {
            let at_ms = record.timestamp.min(now_ms);
            if let Some(id) = Reserved::read(&record.headers).id
                && at_ms >= from_ms
            {
                let offset = record.offset;
                window.remember(hash(id), Seen { at_ms, partition, offset, ticket });
            }
        }
    }

    /// What was learned may be older than what the window had: it goes to its place among that.
    pub(crate) fn put_in_order(&mut self, topic: TopicId) {
        if let Some(window) = self.topics.get_mut(&topic) {
            // Two runs that are sorted: this sort merges them.
            window.in_order.make_contiguous().sort();
        }
    }

    /// Proposals from this one on failed: what they would have brought is not there.
    pub(crate) fn forget_from(&mut self, ticket: u64) {
        for window in self.topics.values_mut() {
            window.seen.retain(|_, seen| seen.ticket < ticket);
            window.in_order.retain(|(_, id)| window.seen.contains_key(id));
        }
    }

    /// Where this topic is new, forgets those that are gone or do not ask for it any more.
    pub(crate) fn keep(&mut self, topic: TopicId, asks: impl Fn(TopicId) -> bool) {
        if !self.topics.contains_key(&topic) {
            self.topics.retain(|topic, _| asks(*topic));
        }
    }

    /// Learns the ids that the log holds.
    pub(crate) async fn load(&mut self, shard: &Shard, now_ms: i64) {
        let asking: Vec<(PartitionId, i64)> = shard.read(|state| {
            let topics = state.catalog.topics().filter(|topic| topic.config.dedup_window_ms > 0);
            topics
                .flat_map(|topic| {
                    let window_ms = topic.config.dedup_window_ms;
                    topic.partition_ids().map(move |partition| (partition, window_ms))
                })
                .collect()
        });
        for (partition, window_ms) in asking {
            if let Err(error) = self.learn(shard, partition, window_ms, now_ms).await {
                tracing::warn!(%partition, %error, "ids of records cannot be learned from the log");
            }
        }
        for window in self.topics.values_mut() {
            // Partitions were read one after another.
            window.in_order.make_contiguous().sort_unstable();
        }
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
                let base_offset = header.base_offset;
                let stored = Going { partition, base_offset, window_ms, now_ms, ticket: 0 };
                self.learn_batch(&bytes, stored);
            }
            if offset == before {
                return Ok(());
            }
        }
    }
}

impl Window {
    fn remember(&mut self, id: u128, seen: Seen) {
        if self.in_order.len() >= DEDUP_IDS_MAX
            && let Some((_, oldest)) = self.in_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        if self.seen.insert(id, seen).is_none() {
            self.in_order.push_back((seen.at_ms, id));
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
    use record::{BatchBuilder, BatchOptions, Header};

    use super::*;

    const PARTITION: PartitionId = PartitionId::new(TopicId(1), 0);

    fn batch(ids: &[Option<&str>], producer_id: i64) -> Vec<u8> {
        let options = BatchOptions {
            producer_id,
            producer_epoch: if producer_id < 0 { -1 } else { 0 },
            base_sequence: if producer_id < 0 { -1 } else { 0 },
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options);
        for id in ids {
            let key = base::headers::ID.as_bytes();
            let headers: Vec<Header<'_>> =
                id.iter().map(|id| Header { key, value: Some(id.as_bytes()) }).collect();
            builder.push(0, None, Some(b"v"), &headers).expect("it fits");
        }
        builder.finish()
    }

    fn check(dedup: &mut Dedup, bytes: &[u8], base_offset: u64, now_ms: i64) -> Deduplicated {
        let header = BatchHeader::parse(bytes).expect("a batch");
        let (partition, window_ms, ticket) = (PARTITION, 1_000, base_offset + 1);
        dedup.check(
            &header,
            bytes,
            None,
            Going { partition, base_offset, window_ms, now_ms, ticket },
        )
    }

    #[test]
    fn an_id_is_taken_once_within_the_window() {
        let mut dedup = Dedup::default();
        let both = batch(&[Some("a"), Some("b")], -1);
        assert_eq!(check(&mut dedup, &both, 0, 0), Deduplicated::Whole);
        let again = Deduplicated::Nothing { partition: PARTITION, offset: 1 };
        assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 2, 500), again);
        assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 2, 1_001), Deduplicated::Whole);
        assert_eq!(check(&mut dedup, &batch(&[None, None], -1), 3, 1_001), Deduplicated::Whole);
    }

    #[test]
    fn of_a_batch_that_is_new_in_part_the_new_part_is_taken_at_its_own_offsets() {
        let mut dedup = Dedup::default();
        check(&mut dedup, &batch(&[Some("a")], -1), 0, 0);
        // The same id twice in one batch is one too many as well.
        let mixed = batch(&[Some("b"), Some("a"), None, Some("b"), Some("c")], -1);
        let Deduplicated::Part(copies) = check(&mut dedup, &mixed, 1, 0) else { panic!("a part") };
        let rest = without(&mixed, &copies).expect("it can be read");
        let rest = Batch::decode(&rest).expect("a batch");
        let offsets: Vec<u64> = rest.records().map(|it| it.expect("a record").offset).collect();
        assert_eq!((offsets, rest.header().last_offset_delta), (vec![0, 2, 4], 4));
    }

    #[test]
    fn a_producer_that_counts_keeps_its_place_though_nothing_is_new() {
        let mut dedup = Dedup::default();
        check(&mut dedup, &batch(&[Some("a")], 7), 0, 0);
        let bytes = batch(&[Some("a")], 7);
        let again = check(&mut dedup, &bytes, 1, 0);
        let Deduplicated::Part(copies) = again else { panic!("an empty batch") };
        let rest = without(&bytes, &copies).expect("it can be read");
        let header = BatchHeader::parse(&rest).expect("a batch");
        assert_eq!((header.record_count, header.last_offset_delta), (0, 0));
        assert_eq!((header.producer_id, header.base_sequence), (7, 0));
    }

    #[test]
    fn ids_that_were_read_before_are_not_read_again() {
        let mut dedup = Dedup::default();
        let bytes = batch(&[Some("a"), None, Some("b")], -1);
        let header = BatchHeader::parse(&bytes).expect("a batch");
        let going =
            Going { partition: PARTITION, base_offset: 0, window_ms: 1_000, now_ms: 0, ticket: 1 };
        // Of the bytes only the header is looked at.
        let ids = Some(RecordIds::read(&bytes));
        let cut = &bytes[..record::HEADER_LEN];
        assert_eq!(dedup.check(&header, cut, ids, going), Deduplicated::Whole);
        let again = Deduplicated::Nothing { partition: PARTITION, offset: 2 };
        assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 3, 1), again);
    }

    #[test]
    fn what_a_failed_proposal_brought_is_forgotten() {
        let mut dedup = Dedup::default();
        check(&mut dedup, &batch(&[Some("a")], -1), 0, 0);
        check(&mut dedup, &batch(&[Some("b")], -1), 1, 0);
        dedup.forget_from(2);
        assert_eq!(check(&mut dedup, &batch(&[Some("b")], -1), 1, 0), Deduplicated::Whole);
        let again = Deduplicated::Nothing { partition: PARTITION, offset: 0 };
        assert_eq!(check(&mut dedup, &batch(&[Some("a")], -1), 2, 0), again);
    }
}
