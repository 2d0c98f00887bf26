//! Options of a node's broker.

use std::sync::Arc;
use std::time::Duration;

use base::Levels;
use shard::delivery::history::HistoryFeed;
use tasks::Failure;

#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// This node's id in the cluster.
    pub node: u32,
    /// Number of shards with rows. `None`: those that the node has, or `shards_new`. A larger number adds shards,
    /// which later topics use as well; a smaller one is an error.
    pub shards: Option<u32>,
    /// Number of shards of a new node without `shards`.
    pub shards_new: u32,
    pub journal: journal::Options,
    /// Size of the log retained after a snapshot for members that lag.
    pub kept_log_bytes_max: u64,
    /// Bytes of produce requests between socket and disk, for the whole node.
    pub request_bytes_in_flight_max: usize,
    /// Interval of retention, compaction and reclaiming of space.
    pub housekeeping_interval: Duration,
    /// Interval of scrubs of all stored data. `None`: only on request of an operator.
    pub scrub_interval: Option<Duration>,
    /// Size in memory of the history of records, for each shard that this node leads. 0: none.
    pub history_bytes: usize,
    /// Receiver of the history of records in shards that this node leads. `None`: no receiver.
    pub feed: Option<HistoryFeed>,
    /// Levels that this binary can replay and write; the same that a member of a cluster has reported to it.
    pub levels: Levels,
    /// The cluster of this node. `None`: it is alone, and leads everything.
    pub cluster: Option<Arc<cluster::Node>>,
    /// Receives the reason why the node must stop; shared with parts of the node older than the broker.
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
            request_bytes_in_flight_max: crate::limits::PRODUCE_BYTES_IN_FLIGHT_MAX,
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
