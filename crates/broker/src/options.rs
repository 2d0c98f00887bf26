//! How a node is run.

use std::sync::Arc;
use std::time::Duration;

use base::Levels;
use tasks::Failure;

use crate::delivery::history::HistoryFeed;

#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// This node's id in the cluster.
    pub node: u32,
    /// Shards with records. `None`: as many as the node has, or `shards_new`. More than it has: it gets more,
    /// which topics made from then on lie in, too. It cannot have fewer.
    pub shards: Option<u32>,
    /// What a node that is new gets where `shards` does not say.
    pub shards_new: u32,
    pub journal: journal::Options,
    /// How much of a shard's log is kept for members that do not have it, behind a snapshot that does.
    pub kept_log_bytes_max: u64,
    /// Bytes of produce requests between socket and disk, for the whole node.
    pub request_bytes_in_flight_max: usize,
    /// How often retention, compaction and space are looked after.
    pub housekeeping_interval: Duration,
    /// How often all that is stored is looked through. `None`: only when an operator asks for it.
    pub scrub_interval: Option<Duration>,
    /// What each shard that this node leads remembers of what happened to records, in memory. 0: nothing.
    pub history_bytes: usize,
    /// Who hears of what happens to records of shards that this node leads. `None`: nobody.
    pub feed: Option<HistoryFeed>,
    /// What this binary can replay and write; a member of a cluster has said it there.
    pub levels: Levels,
    /// The cluster that this node is a member of. `None`: it is alone, and leads everything.
    pub cluster: Option<Arc<cluster::Node>>,
    /// Hears why the node must stop; parts of it that are older than the broker have it, too.
    pub failure: Option<Failure>,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            node: 1,
            shards: None,
            shards_new: 1,
            journal: journal::Options::default(),
            kept_log_bytes_max: base::limits::KEPT_LOG_BYTES_MAX,
            request_bytes_in_flight_max: base::limits::PRODUCE_BYTES_IN_FLIGHT_MAX,
            housekeeping_interval: Duration::from_secs(1),
            scrub_interval: Some(base::limits::SCRUB_INTERVAL_DEFAULT),
            history_bytes: base::limits::HISTORY_BYTES_PER_SHARD_DEFAULT,
            feed: None,
            levels: Levels::OURS,
            cluster: None,
            failure: None,
        }
    }
}
