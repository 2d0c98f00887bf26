//! Reads of partitions without rows on this node, by their leader.

use base::{Level, Offset, PartitionId};
use bytes::Bytes;
use journal::StoredBatches;
use record::verify_checksum;
use shard::committed::ReadView;
use shard::error::{FetchError, Unavailable};
use shard_peers::bounds::{Bounds, TimedOffset};
use shard_peers::shard_query::{ShardQuery, ShardQueryReply};

use crate::broker::Broker;
use crate::shard_reads::RawBatches;

impl Broker {
    /// Returns the start and end of a partition, from this node's rows or else from the leader. `None` if there is no
    /// such partition.
    pub async fn bounds_of(&self, partition: PartitionId) -> Result<Option<Bounds>, Unavailable> {
        let shard = self.shard_of(partition);
        if shard.has_rows() {
            return Ok(self.bounds(partition));
        }
        let part = |reply| match reply {
            ShardQueryReply::StableBounds(bounds) if bounds.len() == 1 => Some(bounds[0]),
            ShardQueryReply::Bounds(range) if range.len() == 1 => Some(range[0].map(Bounds::from)),
            _ => None,
        };
        let query = match self.knows_transactions() {
            true => ShardQuery::StableBounds(vec![partition]),
            false => ShardQuery::Bounds(vec![partition]),
        };
        self.query_leader_for(shard, &query, part).await
    }

    /// Whether all nodes know the queries with stable ends. Below this level there are no transactions.
    pub(crate) fn knows_transactions(&self) -> bool {
        self.level().now() >= Level::TRANSACTIONS
    }

    pub(crate) async fn read_elsewhere(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<RawBatches, FetchError> {
        let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        let query = match self.knows_transactions() {
            true => ShardQuery::ReadStable { partition, offset, bytes_max },
            false => ShardQuery::Read { partition, offset, bytes_max },
        };
        let (bounds, aborted, body) =
            match self.query_leader(self.shard_of(partition), &query).await? {
                (ShardQueryReply::ReadStable { bounds, aborted }, body) => (bounds, aborted, body),
                (ShardQueryReply::Read(range), body) => (Bounds::from(range), Vec::new(), body),
                _ => return Err(Unavailable::Unanswered.into()),
            };
        if bounds.stable > bounds.end || !are_sound(&body, offset, bounds.end) {
            tracing::warn!(%partition, offset, "what a leader reads is damaged");
            return Err(Unavailable::Unanswered.into());
        }
        let records = match body.is_empty() {
            true => Vec::new(),
            false => vec![StoredBatches { bytes: body, base_offset: None }],
        };
        let view = ReadView::received(bounds.stable, aborted);
        Ok(RawBatches::new(offset, records, bounds, view))
    }

    pub(crate) async fn offset_at_time_elsewhere(
        &self,
        partition: PartitionId,
        timestamp_ms: i64,
    ) -> Result<Option<TimedOffset>, FetchError> {
        self.timed_elsewhere(partition, ShardQuery::OffsetAtTime { partition, timestamp_ms }).await
    }

    pub(crate) async fn offset_of_max_timestamp_elsewhere(
        &self,
        partition: PartitionId,
    ) -> Result<Option<TimedOffset>, FetchError> {
        self.timed_elsewhere(partition, ShardQuery::OffsetOfMaxTimestamp(partition)).await
    }

    async fn timed_elsewhere(
        &self,
        partition: PartitionId,
        query: ShardQuery,
    ) -> Result<Option<TimedOffset>, FetchError> {
        match self.query_leader(self.shard_of(partition), &query).await? {
            (ShardQueryReply::Timed(found), _) => Ok(found),
            _ => Err(Unavailable::Unanswered.into()),
        }
    }
}

/// Whether these are whole ascending batches, the first of which contains `offset` or comes after it.
fn are_sound(body: &Bytes, offset: Offset, end: Offset) -> bool {
    let mut next = None;
    record::split_at(body, None).all(|batch| {
        let Ok((header, place)) = batch else { return false };
        let follows = match next {
            None => header.last_offset() >= offset,
            Some(next) => header.base_offset >= next,
        };
        next = Some(header.next_offset());
        follows && header.next_offset() <= end && verify_checksum(&body[place]).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use record::{BatchBuilder, BatchOptions};

    use super::*;

    fn batch(base_offset: u64) -> Vec<u8> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        builder.push(0, None, Some(b"one"), &[]).expect("it fits");
        builder.push(0, None, Some(b"two"), &[]).expect("it fits");
        let mut bytes = builder.finish();
        record::assign(&mut bytes, base_offset, 1);
        bytes.to_vec()
    }

    #[test]
    fn batches_of_a_leader_are_accepted_if_whole_and_ascending() {
        let sound = |batches: &[Vec<u8>], offset| are_sound(&batches.concat().into(), offset, 9);
        assert!(sound(&[], 3));
        assert!(sound(&[batch(2), batch(4), batch(7)], 3));
        assert!(!sound(&[batch(4), batch(2)], 3), "it goes back");
        assert!(!sound(&[batch(2), batch(4)], 4), "it begins too early");
        assert!(!sound(&[batch(8)], 3), "it goes beyond the end");
        let mut damaged = batch(4);
        *damaged.last_mut().expect("it has bytes") ^= 1;
        assert!(!sound(&[damaged], 3));
        assert!(!sound(&[batch(2)[..20].to_vec()], 2), "it is cut");
    }
}
