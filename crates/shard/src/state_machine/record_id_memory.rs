//! Memory of record ids, over all shards of a node.

use crate::limits::DEDUP_BYTES_PER_ID;

/// Number of ids in the shards of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub ids: u64,
    /// Number of the node's shards with rows.
    pub shards: u64,
}

impl Memory {
    /// Number of ids that a shard with `of_shard` ids has to forget.
    pub fn surplus(self, of_shard: u64, budget_bytes: u64) -> u64 {
        let budget = budget_bytes / DEDUP_BYTES_PER_ID;
        let share = budget / self.shards.max(1);
        self.ids.saturating_sub(budget).min(of_shard.saturating_sub(share))
    }
}
