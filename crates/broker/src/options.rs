//! How a node is run.

use std::time::Duration;

#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// This node's id in the cluster.
    pub node: u32,
    pub journal: journal::Options,
    /// Bytes of produce requests between socket and disk, for the whole node.
    pub request_bytes_in_flight_max: usize,
    /// How often retention, compaction and space are looked after.
    pub housekeeping_interval: Duration,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            node: 1,
            journal: journal::Options::default(),
            request_bytes_in_flight_max: base::limits::PRODUCE_BYTES_IN_FLIGHT_MAX,
            housekeeping_interval: Duration::from_secs(1),
        }
    }
}
