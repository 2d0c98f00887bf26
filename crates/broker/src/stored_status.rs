//! What a node knows of what it has stored: what nodes tell one another of it.

use serde::{Deserialize, Serialize};

/// What came of looking through what a node has stored. Travels between nodes: what is added later needs a variant
/// of its own in what they ask.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoredStatus {
    /// Bytes that the pass under way has looked at, and of about how many.
    pub under_way: Option<(u64, u64)>,
    /// When the last pass ended, by the node's clock.
    pub ended_ms: Option<i64>,
    /// What is known to be damaged now, whoever found it.
    pub damaged: Vec<String>,
}
