//! Reads by offset and by time. A client that waits for further records creates a [`Watch`](shard::watch::Watch); its
//! protocol decides how many records, and of which partitions.
//!
//! * `remote_reads`: reads of partitions without rows on this node, from their leader
//! * `follower_reads`: partitions that clients may read from this node though another one leads

mod follower_reads;
mod remote_reads;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use base::limits::BARRIER_WITHIN;
use base::{Offset, PartitionId, TopicId};
use futures_util::future::try_join_all;
use machine::config::Durability;
use shard::LocalShard;
use shard::committed::ReadView;
use shard::error::{FetchError, Unavailable};
use shard::limits::MAJORITY_AWAITED_FOR;
use shard_peers::bounds::{Bounds, TimedOffset};
use tokio::time::{Instant, sleep, timeout};

use crate::broker::Broker;
use crate::shard_reads::{
    Batches, RawBatches, bounds_and_view, bounds_here, bounds_known, offset_at_time_within,
    offset_of_max_timestamp, read_committed, read_within,
};

/// Delay before the next attempt to find or query the shard's leader.
const RETRY_DELAY: Duration = Duration::from_millis(10);

impl Broker {
    /// Returns the start and end of a partition as known to this node; `None` also if it has no rows of the
    /// partition. [`Broker::bounds_of`] queries the leader in that case.
    pub fn bounds(&self, partition: PartitionId) -> Option<Bounds> {
        self.known(partition).ok().map(|(_, (bounds, _))| bounds)
    }

    /// Returns the partition's shard as known to this node, and the partition's bounds there. A moved partition stays
    /// in its former shard until this node knows the new one.
    fn known(
        &self,
        partition: PartitionId,
    ) -> Result<(&Arc<LocalShard>, (Bounds, ReadView)), FetchError> {
        let shard = self.shard_of(partition);
        let (known, gone_to) = {
            let rows = shard.shard.rows();
            let known = rows.known(partition);
            let known = known.map(|found| bounds_and_view(&rows, partition, found));
            (known, rows.gone_to(partition))
        };
        let next = gone_to.and_then(|to| {
            let next = self.shards_with_rows().iter().find(|shard| shard.id() == to)?;
            let rows = next.shard.rows();
            let bounds = bounds_and_view(&rows, partition, rows.partition(partition)?);
            Some((next, bounds))
        });
        match next.or_else(|| Some((shard, known?))) {
            Some(known) => Ok(known),
            None => bounds_known(shard, partition).map(|bounds| (shard, bounds)),
        }
    }

    /// Waits until everything that was acknowledged in this topic can be read. With durability `replicated`, that may
    /// be one sync later than the acknowledgement.
    pub async fn acknowledged_is_readable(&self, topic: TopicId) {
        let durability = self.catalog().topic(topic).map(|topic| topic.config().durability);
        if durability == Some(Durability::Replicated) {
            for shard in self.shards_of(topic) {
                shard.shard.pending.apply_answered().await;
            }
        }
    }

    /// Waits until the replicas of these partitions have everything acknowledged by any node before the call. Fails
    /// if a leader does not reply within [`BARRIER_WITHIN`].
    ///
    /// Every reader of state goes through [`Broker::shards_are_current`]: by this function, by
    /// [`Broker::group_is_current`], or by [`ShardClient`](crate::ShardClient).
    #[tasks::boxed]
    pub async fn copies_are_current(&self, partitions: &[PartitionId]) -> Result<(), Unavailable> {
        let mut places: BTreeSet<usize> =
            self.places_of(partitions.iter().copied()).into_iter().collect();
        let mut passed = BTreeSet::new();
        while !places.is_subset(&passed) {
            self.shards_are_current(places.difference(&passed).copied()).await?;
            passed.extend(places);
            // This node's copy of the catalog may have learned of a topic meanwhile, and a replica of a move.
            places = self.places_with(partitions);
        }
        Ok(())
    }

    /// The shards that have these partitions or had them, as far as this node knows, as places in
    /// [`Broker::shards_with_rows`].
    fn places_with(&self, partitions: &[PartitionId]) -> BTreeSet<usize> {
        let shards = self.shards_with_rows();
        let has_moves = shards.iter().map(|shard| shard.shard.rows().has_moves());
        let has_moves: Vec<bool> = has_moves.collect();
        let places = self.places_of(partitions.iter().copied());
        // This node's copy of the catalog may be older than a move.
        let gone = places.iter().zip(partitions).filter_map(|(&place, partition)| {
            let rows = has_moves[place].then(|| shards[place].shard.rows())?;
            let to = rows.gone_to(*partition)?;
            shards.iter().position(|shard| shard.id() == to)
        });
        places.iter().copied().chain(gone).collect()
    }

    /// Waits until this node's replica of a group's stored state is current.
    pub async fn group_is_current(&self, group: &str) -> Result<(), Unavailable> {
        self.shard_is_current(self.home_of(group)).await
    }

    /// Waits until the replicas of all shards are current, for `within` at most.
    pub async fn all_are_current(&self, within: Duration) -> Result<(), Unavailable> {
        self.are_current(self.shards_with_rows().iter().map(|shard| &**shard), within).await
    }

    /// Waits until the shards led by this node are current: a new leader has yet to apply acknowledged entries.
    pub async fn led_are_current(&self) -> Result<(), Unavailable> {
        let led = self.shards_with_rows().iter().filter(|shard| shard.is_led_here());
        self.are_current(led.map(|shard| &**shard), BARRIER_WITHIN).await
    }

    /// Waits until the replicas of these shards, given as places in [`Broker::shards_with_rows`], are current.
    pub(crate) async fn shards_are_current(
        &self,
        places: impl Iterator<Item = usize>,
    ) -> Result<(), Unavailable> {
        let places: BTreeSet<usize> = places.collect();
        let shards = places.into_iter().map(|place| &*self.shards_with_rows()[place]);
        self.are_current(shards, BARRIER_WITHIN).await
    }

    /// Waits until this node's replica of one shard is current.
    pub(crate) async fn shard_is_current(&self, shard: &LocalShard) -> Result<(), Unavailable> {
        self.are_current(std::iter::once(shard), BARRIER_WITHIN).await
    }

    async fn are_current(
        &self,
        shards: impl Iterator<Item = &LocalShard>,
        within: Duration,
    ) -> Result<(), Unavailable> {
        let current = try_join_all(shards.map(|shard| self.copy_is_current(shard)));
        match timeout(within, current).await {
            Ok(current) => current.map(drop),
            Err(_) => Err(Unavailable::Unanswered),
        }
    }

    async fn copy_is_current(&self, shard: &LocalShard) -> Result<(), Unavailable> {
        if shard.is_alone() {
            shard.shard.pending.apply_answered().await;
            return Ok(());
        }
        shard.reads.pass(self.becomes_current(shard)).await
    }

    #[tasks::boxed]
    async fn becomes_current(&self, shard: &LocalShard) -> Result<(), Unavailable> {
        let begun = Instant::now();
        loop {
            let index = match shard.is_led_here() {
                // A new leader has yet to apply entries acknowledged by earlier leaders, and a slow leader may have
                // been replaced without noticing.
                true => shard.read_index().await,
                false => self.peers().read_index(shard.leader(), shard.id()).await,
            };
            match index {
                // All reads go to the leader, which has everything.
                Ok(_) if !shard.has_rows() => return Ok(()),
                Ok(index) => {
                    shard.shard.applied_to(index).await;
                    return Ok(());
                }
                Err(why @ (Unavailable::NotLeader | Unavailable::Unanswered)) => {
                    if begun.elapsed() >= MAJORITY_AWAITED_FOR && !shard.majority_is_connected() {
                        return Err(why);
                    }
                    sleep(RETRY_DELAY).await;
                }
                Err(ended) => return Err(ended),
            }
        }
    }

    /// Reads consecutive batches of committed records from the one with `offset` on (or from the next one, if
    /// compaction removed it): at most `bytes_max`, but at least one batch.
    pub async fn read_batches(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<Batches, FetchError> {
        let shard = self.shard_of(partition);
        let known = bounds_here(shard, partition)?;
        read_committed(shard, known, partition, offset, bytes_max).await
    }

    /// Reads batches like [`Self::read_batches`], up to the high watermark: with markers, and with batches of open and
    /// aborted transactions. Only for the protocol of Kafka, whose clients sort them out.
    pub async fn read_raw_batches(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<RawBatches, FetchError> {
        let shard = self.shard_of(partition);
        let known = bounds_here(shard, partition)?;
        read_within(shard, known, partition, offset, bytes_max).await
    }

    /// Reads committed records like [`Self::read_batches`] from this node's replica, which may lack the newest ones
    /// where another node leads. Without a replica the leader is queried, which returns at most [`LEASE_READ_BYTES`].
    ///
    /// [`LEASE_READ_BYTES`]: base::limits::LEASE_READ_BYTES
    pub async fn read_known_batches(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<Batches, FetchError> {
        if !self.shard_of(partition).has_rows() {
            return self.read_elsewhere(partition, offset, bytes_max).await.map(Batches::from);
        }
        let (shard, known) = self.known(partition)?;
        read_committed(shard, known, partition, offset, bytes_max).await
    }

    /// Reads batches like [`Self::read_known_batches`], up to the high watermark: see [`Self::read_raw_batches`].
    pub async fn read_known_raw_batches(
        &self,
        partition: PartitionId,
        offset: Offset,
        bytes_max: usize,
    ) -> Result<RawBatches, FetchError> {
        if !self.shard_of(partition).has_rows() {
            return self.read_elsewhere(partition, offset, bytes_max).await;
        }
        let (shard, known) = self.known(partition)?;
        read_within(shard, known, partition, offset, bytes_max).await
    }

    /// Returns the first record whose timestamp is at least `timestamp_ms` in this node's replica, which may lack the
    /// newest records where another node leads. Without a replica the leader is queried.
    pub async fn known_offset_at_time(
        &self,
        partition: PartitionId,
        timestamp_ms: i64,
    ) -> Result<Option<TimedOffset>, FetchError> {
        if !self.shard_of(partition).has_rows() {
            return self.offset_at_time_elsewhere(partition, timestamp_ms).await;
        }
        let (shard, (bounds, _)) = self.known(partition)?;
        offset_at_time_within(shard, partition, bounds, timestamp_ms).await
    }

    /// Returns the record with the largest timestamp, the first of several, in this node's replica. Without a replica
    /// the leader is queried.
    pub async fn known_offset_of_max_timestamp(
        &self,
        partition: PartitionId,
    ) -> Result<Option<TimedOffset>, FetchError> {
        if !self.shard_of(partition).has_rows() {
            return self.offset_of_max_timestamp_elsewhere(partition).await;
        }
        let (shard, _) = self.known(partition)?;
        offset_of_max_timestamp(shard, partition).await
    }
}
