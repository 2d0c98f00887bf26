//! Bounds of the ids of records in topics with `dedup.window.ms`.

/// Ids that a topic with `dedup.window.ms` remembers in each shard unless `dedup.ids.max` says otherwise. Beyond
/// it the oldest are forgotten early.
pub const DEDUP_IDS_MAX: usize = 4_000_000;
/// The largest value of `dedup.ids.max`.
pub const DEDUP_IDS_PER_TOPIC_MAX: u64 = 50_000_000;
/// Memory of an id, as counted for `dedup.memory.max.bytes`: 32 bytes, and its part of a hash table.
pub const DEDUP_BYTES_PER_ID: u64 = 40;
/// Bytes of ids in a node unless `dedup.memory.max.bytes` says otherwise.
pub const DEDUP_BYTES_DEFAULT: u64 = 256 << 20;
/// Ids of a topic that one entry forgets: applying it must not take long.
pub const DEDUP_IDS_FORGOTTEN_PER_CHANGE: usize = 65_536;
/// Ids in one entry that were not appended by it: ids of a partition that moves, or ids learned from the log.
pub const DEDUP_IDS_PER_ENTRY: usize = 20_000;
/// Records with an id in one batch, about 18 bytes each in addition to the batch in its entry. A larger batch is
/// rejected.
pub const DEDUP_IDS_PER_BATCH_MAX: usize = 400_000;
