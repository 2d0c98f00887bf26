//! Findings about a node's stored data, as reported between nodes.

use serde::{Deserialize, Serialize};

/// Result of scrubbing a node's stored data. Travels between nodes: a later field needs a new variant of the query.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoredStatus {
    /// Bytes read by the current pass, and the approximate total.
    pub under_way: Option<(u64, u64)>,
    /// End of the last pass, by the node's clock.
    pub ended_ms: Option<i64>,
    /// Known damage, found by any reader.
    pub damaged: Vec<String>,
}
