//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

use base::limits::OFFSET_METADATA_UNITS_MAX;

/// Batches that a producer id remembers per partition, to recognise a retry (Kafka: 5).
pub const PRODUCER_BATCHES_REMEMBERED: usize = 5;
/// Producer ids that a partition remembers. Beyond it the ids with the longest silence are forgotten.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 10_000;
/// A producer id that was silent for so long is forgotten (Kafka's `producer.id.expiration.ms`).
pub const PRODUCER_ID_EXPIRATION: Duration = Duration::from_secs(24 * 60 * 60);
/// Partitions in one shard, all topics together.
pub const PARTITIONS_PER_SHARD_MAX: u64 = 2_000_000;
/// Deleted topics and lease groups that the catalog remembers. A shard that missed more receives the complete list
/// of existing ones.
pub const REMOVALS_REMEMBERED: usize = 65_536;
/// Memory of groups with committed offsets: their names, and offsets with their metadata, some 100 bytes each. A
/// client may commit under any name; commits beyond this are rejected.
pub const OFFSET_GROUPS_BYTES_MAX: u64 = 192 << 20;
/// Groups with a configuration of their own.
pub const GROUP_CONFIGS_MAX: usize = 100_000;
/// Members of one group (`group.max.size`, `group.consumer.max.size` may be less).
pub const GROUP_MEMBERS_MAX: usize = 10_000;
/// Stored members of all groups of a shard.
pub const MEMBERSHIPS_BYTES_MAX: usize = 64 << 20;
/// Metadata of a committed offset in bytes of UTF-8: a UTF-16 code unit takes three at most.
pub const OFFSET_METADATA_BYTES_MAX: usize = 3 * OFFSET_METADATA_UNITS_MAX;
/// A record is kept for this long after its append before it can be deleted by time (Kafka's
/// `log.retention.check.interval.ms`): a backfill of old records can be read.
pub const RETENTION_CHECK_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// Committed offsets of an empty group are kept this long (Kafka's `offsets.retention.minutes`).
pub const OFFSETS_RETENTION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// A document's body.
pub const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// The name of a space of documents, and of a document in it.
pub const DOCUMENT_SPACE_BYTES_MAX: usize = 255;
pub const DOCUMENT_NAME_BYTES_MAX: usize = 4096;
/// Documents in one shard, and the bytes of their names and bodies.
pub const DOCUMENTS_MAX: usize = 1_000_000;
pub const DOCUMENTS_BYTES_MAX: u64 = 256 << 20;

/// Name of a transactional id: the longest that Kafka's requests can have.
pub const TRANSACTIONAL_ID_BYTES_MAX: usize = i16::MAX as usize;
/// Transactional ids of a shard: their names, and 200 bytes each.
pub const TRANSACTIONAL_IDS_BYTES_MAX: u64 = 192 << 20;
/// Open transactions of a shard: at its home, and of others in which it takes part.
pub const OPEN_TRANSACTIONS_MAX: usize = 100_000;
/// Producers with transactions that a shard remembers.
pub const PARTICIPATIONS_MAX: usize = 1_000_000;
/// Partitions of one transaction in one shard: their markers are one entry.
pub const TRANSACTION_PARTITIONS_MAX: usize = 40_000;
/// Open and aborted transactions that a partition remembers, 24 bytes each, until their records are deleted.
pub const ABORTED_PER_PARTITION_MAX: usize = 65_536;
/// The same of all partitions of a shard.
pub const ABORTED_PER_SHARD_MAX: usize = 1_000_000;

/// Nodes whose rows a shard remembers: more than a cluster has.
pub const NUMBERED_NODES_MAX: usize = 256;

/// The largest value of `dedup.ids.max`.
pub const DEDUP_IDS_PER_TOPIC_MAX: u64 = 50_000_000;
/// Bytes of ids in a node unless `dedup.memory.max.bytes` says otherwise.
pub const DEDUP_BYTES_DEFAULT: u64 = 256 << 20;

/// Lease groups in one shard.
pub const LEASE_GROUPS_MAX: usize = 1_000_000;
/// Partitions of lease groups in one shard, each group's counted: an idle one is 16 bytes.
pub const LEASE_GROUP_PARTITIONS_MAX: u64 = 8_000_000;
