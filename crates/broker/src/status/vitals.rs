//! State of a node for probes and metrics. Reading it costs a few words a shard and a walk over the list of its
//! segments, independent of the number of topics, partitions and groups.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{ShardId, TopicId};
use journal::DiskRoom;
use machine::rows::record_ids::TopicIds;
use shard::LocalShard;
use shard::View;
use shard::delivery::rates::LeaseTotals;
use upkeep::limits::SYNC_HUNG_AFTER;

use crate::broker::Broker;

/// State of a node at one time.
#[derive(Clone, Debug)]
pub struct Vitals {
    pub topics: u64,
    pub partitions: u64,
    pub lease_groups: u64,
    /// Bytes of producers' requests in flight, and their limit.
    pub produce_bytes: (u64, u64),
    /// Limit of the memory for record ids (`dedup.memory.max.bytes`).
    pub record_id_bytes_max: u64,
    /// Bytes of deliveries that no consumer has read, and the limit above which connections with much unread data
    /// wait.
    pub unread_bytes: (u64, u64),
    /// The catalog's first.
    pub shards: Vec<ShardVitals>,
}

/// State of one shard.
#[derive(Clone, Debug)]
pub struct ShardVitals {
    pub shard: ShardId,
    /// The leader, as far as this node knows.
    pub leader: Option<u32>,
    pub is_led_here: bool,
    pub term: u64,
    /// The index after the last entry of its log.
    pub log_end: u64,
    /// Index up to which the log was applied since the start; 0 if none was.
    pub applied: u64,
    /// Entries that the most lagging member lacks. `None`: another node leads the shard, or it has no other members.
    pub lag_max: Option<u64>,
    pub journal: journal::Stats,
    pub segments: u64,
    pub segment_bytes: u64,
    /// Bytes of bodies in the segments that may still be read.
    pub live_bytes: u64,
    /// Time for which a write or sync has hung, if one does.
    pub hung_for: Option<Duration>,
    /// Whether records are rejected until the disk has room.
    pub is_full: bool,
    pub leases: LeaseTotals,
    /// Records from other shards whose topic was deleted.
    pub unplaced: u64,
    pub record_ids: RecordIdVitals,
}

/// Record ids in the shard's state (`dedup.window.ms`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecordIdVitals {
    pub ids: u64,
    /// Memory of the ids.
    pub bytes: u64,
    /// Number of ids displaced by a limit before their window was over.
    pub forgotten_early: u64,
    /// Number of topics that do not reach back to the start of their window, because a limit displaced ids.
    pub windows_cut: u64,
}

/// Reason of the broker why clients should not use this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnreadyReason {
    /// The catalog has no leader.
    NoLeader,
    /// A write or sync has not returned for this time.
    DiskHangs(Duration),
}

impl Broker {
    pub fn vitals(&self) -> Vitals {
        let (topics, partitions, lease_groups, record_id_bytes_max) = {
            let catalog = self.catalog();
            let (topics, groups) = (catalog.topic_count(), catalog.lease_group_count());
            let bytes_max = catalog.node_config().own.dedup_memory_bytes_max;
            (topics as u64, catalog.partition_count(), groups as u64, bytes_max)
        };
        let produce_bytes = self.produce_budget().used_and_max();
        let shards = self.local_shards().iter().map(|shard| vitals(shard)).collect();
        let unread_bytes = self.drivers().unread().used_and_max();
        Vitals {
            topics,
            partitions,
            lease_groups,
            produce_bytes,
            record_id_bytes_max,
            unread_bytes,
            shards,
        }
    }

    /// Whether clients should use another node. Not for a full disk: reads and settles still work.
    pub fn unready(&self) -> Option<UnreadyReason> {
        let shards = self.local_shards();
        let hung = shards.iter().find_map(|shard| hung_for(&shard.journal().stats()));
        if let Some(since) = hung {
            return Some(UnreadyReason::DiskHangs(since));
        }
        shards[0].leader().is_none().then_some(UnreadyReason::NoLeader)
    }
}

/// Returns for how long a write or sync has hung.
fn hung_for(stats: &journal::Stats) -> Option<Duration> {
    stats.busy_for.filter(|busy| *busy >= SYNC_HUNG_AFTER)
}

fn vitals(local: &LocalShard) -> ShardVitals {
    let journal = local.journal();
    let (segments, stats) = (journal.segments(), journal.stats());
    let is_led_here = local.is_led_here();
    let lags = if is_led_here { local.consensus.lags() } else { BTreeMap::new() };
    ShardVitals {
        shard: local.id(),
        leader: local.leader(),
        is_led_here,
        term: local.term(),
        log_end: journal.last_id().map_or(0, |last| last.index + 1),
        applied: local.shard.applied(),
        lag_max: lags.into_values().max(),
        segments: segments.len() as u64,
        segment_bytes: segments.iter().map(|segment| segment.file_bytes).sum(),
        live_bytes: segments.iter().map(|segment| segment.live_bytes).sum(),
        hung_for: hung_for(&stats),
        is_full: matches!(journal.room(), DiskRoom::Full { .. }),
        leases: local.delivery().map(|delivery| delivery.totals.seen()).unwrap_or_default(),
        unplaced: local.shard.unplaced.records(),
        record_ids: local.read(record_ids),
        journal: stats,
    }
}

fn record_ids(view: &View<'_>) -> RecordIdVitals {
    let stored = view.rows.record_ids();
    let is_cut = |(id, topic): &(TopicId, &TopicIds)| {
        let window_ms = view.catalog.topic(*id).map_or(0, |topic| topic.config.dedup_window_ms);
        let from_ms = view.last_ms.saturating_sub(window_ms);
        topic.forgotten_to_ms().is_some_and(|forgotten_to_ms| forgotten_to_ms >= from_ms)
    };
    RecordIdVitals {
        ids: stored.len(),
        bytes: stored.bytes(),
        forgotten_early: stored.forgotten_early(),
        windows_cut: stored.topics().filter(is_cut).count() as u64,
    }
}
