//! State of a shard for operators.

use base::ShardId;
use consensus::CatchUp;
use shard::LocalShard;

use crate::broker::Broker;

/// A shard of this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardStatus {
    pub shard: ShardId,
    /// The newest term with an applied entry.
    pub term: u64,
    /// The index after the last entry of its log.
    pub log_end: u64,
    /// Numbers of topics and partitions in the shard; none in the catalog's shard.
    pub topics: u64,
    pub partitions: u64,
    pub segments: u64,
    /// Bytes of bodies in its segments that may still be read.
    pub live_bytes: u64,
    /// Since the node was started.
    pub syncs: u64,
    /// Average duration of a sync since the node was started.
    pub sync_micros: u64,
    /// Records from other shards whose topic was deleted before they arrived, since the node was started: they are
    /// dropped.
    pub unplaced: u64,
    /// Nodes that lack entries which the log has dropped, as far as the leader knows: they get a snapshot.
    pub catching_up: Vec<CatchUpProgress>,
}

/// A node that receives a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CatchUpProgress {
    pub node: u64,
    /// Bytes received by its last report, of the missing batches' total; 0 of 0 before the first report.
    pub bytes: u64,
    pub of_bytes: u64,
}

impl Broker {
    /// The shards of this node, the catalog's first.
    pub fn shard_statuses(&self) -> Vec<ShardStatus> {
        self.local_shards().iter().map(|shard| status(shard)).collect()
    }

    /// The newest term with an applied entry in the catalog.
    pub fn catalog_epoch(&self) -> i32 {
        self.catalog_shard().consensus.term() as i32
    }

    /// The index after the last entry of the catalog's log.
    pub fn catalog_log_end(&self) -> u64 {
        self.catalog_shard().journal().last_id().map_or(0, |last| last.index + 1)
    }
}

fn status(local: &LocalShard) -> ShardStatus {
    let (topics, partitions) = local.read(|view| {
        let rows = view.rows.topics().map(|topic| topic.partition_count() as u64);
        (view.rows.topics().count() as u64, rows.sum())
    });
    let journal = local.journal();
    let segments = journal.segments();
    let stats = journal.stats();
    ShardStatus {
        shard: local.id(),
        term: local.consensus.term(),
        log_end: journal.last_id().map_or(0, |last| last.index + 1),
        topics,
        partitions,
        segments: segments.len() as u64,
        live_bytes: segments.iter().map(|segment| segment.live_bytes).sum(),
        syncs: stats.syncs,
        sync_micros: stats.total_sync_micros.checked_div(stats.syncs).unwrap_or(0),
        unplaced: local.shard.unplaced.records(),
        catching_up: catching_up(local),
    }
}

fn catching_up(local: &LocalShard) -> Vec<CatchUpProgress> {
    let nodes = local.consensus.catching_up().into_iter();
    let known =
        nodes.map(|(node, CatchUp { bytes, of_bytes })| CatchUpProgress { node, bytes, of_bytes });
    known.collect()
}
