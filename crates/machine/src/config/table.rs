//! Every configuration of a topic, by the names of Kafka 4 and a few of our own.

use base::limits::BATCH_BYTES_MAX;

use super::entry::ConfigKind::{Boolean, Double, Int, List, Long, String};
use super::entry::Effect::{Inherent, OnlyDefault, Sets};
use super::entry::{ConfigEntry, ids_per_topic, minus_one_or_more, one_or_more, zero_or_more};
use super::traced::{TRACE_CONFIG, per_million};
use super::{
    CleanupPolicy, CompressionType, Durability, LimitOverflow, PrioritiesOrder, TimestampType,
    TopicConfig,
};

type Topic = ConfigEntry<TopicConfig>;

const TIERED: &str = "there is no tiered storage";
const THROTTLE: &str = "replication has no throttle";
const NO_INDEX_FILES: &str = "a partition has no index files";

fn compression_type(name: &str) -> Option<CompressionType> {
    Some(match name {
        "producer" => CompressionType::Producer,
        "uncompressed" => CompressionType::Uncompressed,
        "gzip" => CompressionType::Gzip,
        "snappy" => CompressionType::Snappy,
        "lz4" => CompressionType::Lz4,
        "zstd" => CompressionType::Zstd,
        _ => return None,
    })
}

fn timestamp_type(name: &str) -> Option<TimestampType> {
    Some(match name {
        "CreateTime" => TimestampType::CreateTime,
        "LogAppendTime" => TimestampType::LogAppendTime,
        _ => return None,
    })
}

fn durability(name: &str) -> Option<Durability> {
    Some(match name {
        "fsync" => Durability::Fsync,
        "replicated" => Durability::Replicated,
        _ => return None,
    })
}

fn priorities_order(name: &str) -> Option<PrioritiesOrder> {
    Some(match name {
        "strict" => PrioritiesOrder::Strict,
        "two-to-one" => PrioritiesOrder::TwoToOne,
        _ => return None,
    })
}

fn limit_overflow(name: &str) -> Option<LimitOverflow> {
    Some(match name {
        "reject" => LimitOverflow::Reject,
        "drop-oldest" => LimitOverflow::DropOldest,
        "reject-dead-letter" => LimitOverflow::RejectDeadLetter,
        _ => return None,
    })
}

pub static TOPIC_CONFIGS: [Topic; 46] = [
    // --------------------------------------------------------------------- retention and
    // compaction
    Topic::new(
        "cleanup.policy",
        List,
        "delete",
        Sets(|config, value| {
            let has = |policy| value.items().contains(&policy);
            config.cleanup_policy =
                CleanupPolicy { delete: has("delete"), compact: has("compact") };
        }),
        "Whether old records are deleted by time and size, or all but the newest of each key, \
         or both.",
    )
    .valid("delete, compact or both, separated by a comma", |value| {
        let known = |item: &&str| matches!(*item, "delete" | "compact");
        !value.items().is_empty() && value.items().iter().all(known)
    })
    .on_node("log.cleanup.policy"),
    Topic::new(
        "retention.ms",
        Long,
        "604800000",
        Sets(|config, value| config.retention_ms = Some(value.whole()).filter(|&ms| ms >= 0)),
        "How long records are kept where cleanup.policy has delete; -1 is for ever.",
    )
    .valid("-1 or more", minus_one_or_more)
    .on_node("log.retention.ms"),
    Topic::new(
        "retention.bytes",
        Long,
        "-1",
        Sets(|config, value| config.retention_bytes = u64::try_from(value.whole()).ok()),
        "How many bytes of each partition are kept where cleanup.policy has delete; -1 is all.",
    )
    .on_node("log.retention.bytes"),
    Topic::new(
        "segment.bytes",
        Int,
        "1073741824",
        Sets(|config, value| config.segment_bytes = value.whole() as u32),
        "Compaction leaves alone what is both among so many newest bytes of a partition and younger \
         than segment.ms. Partitions share the journal's segments, whose size is the server's to set.",
    )
    .valid("14 or more", |value| value.whole() >= 14)
    .on_node("log.segment.bytes"),
    Topic::new(
        "segment.ms",
        Long,
        "604800000",
        Sets(|config, value| config.segment_ms = value.whole()),
        "Compaction leaves alone what is both younger than this and among the newest segment.bytes \
         of a partition. Partitions share the journal's segments, so nothing is rolled for it.",
    )
    .valid("1 or more", one_or_more)
    .on_node("log.roll.ms"),
    Topic::new(
        "delete.retention.ms",
        Long,
        "86400000",
        Sets(|config, value| config.delete_retention_ms = value.whole()),
        "How long compaction keeps a tombstone, so that a consumer that started before it sees it.",
    )
    .valid("0 or more", zero_or_more)
    .on_node("log.cleaner.delete.retention.ms"),
    Topic::new(
        "min.cleanable.dirty.ratio",
        Double,
        "0.5",
        Sets(|config, value| config.min_cleanable_dirty_ratio = value.real()),
        "How much of a partition must not have been compacted yet before it is compacted again.",
    )
    .valid("0 to 1", |value| (0.0..=1.0).contains(&value.real()))
    .on_node("log.cleaner.min.cleanable.ratio"),
    Topic::new(
        "min.compaction.lag.ms",
        Long,
        "0",
        Sets(|config, value| config.min_compaction_lag_ms = value.whole()),
        "How long a record stays before compaction may remove it.",
    )
    .valid("0 or more", zero_or_more)
    .on_node("log.cleaner.min.compaction.lag.ms"),
    Topic::new(
        "max.compaction.lag.ms",
        Long,
        "9223372036854775807",
        Sets(|config, value| config.max_compaction_lag_ms = value.whole()),
        "After this time a record is compacted whatever min.cleanable.dirty.ratio says.",
    )
    .valid("1 or more", one_or_more)
    .on_node("log.cleaner.max.compaction.lag.ms"),
    // -------------------------------------------------------------------------- validation of
    // batches
    Topic::new(
        "max.message.bytes",
        Int,
        "1048588",
        Sets(|config, value| config.max_message_bytes = value.whole() as u32),
        "The largest batch of records that is taken, as it is on the wire.",
    )
    .valid("0 to 67108864", |value| (0..=i64::from(BATCH_BYTES_MAX)).contains(&value.whole()))
    .on_node("message.max.bytes"),
    Topic::new(
        "message.timestamp.type",
        String,
        "CreateTime",
        Sets(|config, value| {
            if let Some(kind) = timestamp_type(value.text()) {
                config.timestamp_type = kind;
            }
        }),
        "Whether a record has the time of its creation or of its arrival.",
    )
    .valid("CreateTime or LogAppendTime", |value| timestamp_type(value.text()).is_some())
    .on_node("log.message.timestamp.type"),
    Topic::new(
        "message.timestamp.before.max.ms",
        Long,
        "9223372036854775807",
        Sets(|config, value| config.timestamp_before_max_ms = value.whole()),
        "How far a record's CreateTime may lie before its arrival.",
    )
    .valid("0 or more", zero_or_more)
    .on_node("log.message.timestamp.before.max.ms"),
    Topic::new(
        "message.timestamp.after.max.ms",
        Long,
        "3600000",
        Sets(|config, value| config.timestamp_after_max_ms = value.whole()),
        "How far a record's CreateTime may lie after its arrival.",
    )
    .valid("0 or more", zero_or_more)
    .on_node("log.message.timestamp.after.max.ms"),
    Topic::new(
        "compression.type",
        String,
        "producer",
        Sets(|config, value| {
            if let Some(kind) = compression_type(value.text()) {
                config.compression_type = kind;
            }
        }),
        "What batches are stored with; producer keeps them as they came.",
    )
    .valid("producer, uncompressed, gzip, snappy, lz4 or zstd", |value| {
        compression_type(value.text()).is_some()
    })
    .on_node("compression.type"),
    Topic::new(
        "compression.gzip.level",
        Int,
        "-1",
        Sets(|config, value| config.compression_gzip_level = value.whole() as i32),
        "The level where compression.type is gzip; -1 is the library's default.",
    )
    .valid("1 to 9, or -1", |value| matches!(value.whole(), -1 | 1..=9))
    .on_node("compression.gzip.level"),
    Topic::new(
        "compression.lz4.level",
        Int,
        "9",
        OnlyDefault { why: "the LZ4 encoder has one level" },
        "The level where compression.type is lz4. The encoder here has one.",
    )
    .on_node("compression.lz4.level"),
    Topic::new(
        "compression.zstd.level",
        Int,
        "3",
        Sets(|config, value| config.compression_zstd_level = value.whole() as i32),
        "The level where compression.type is zstd.",
    )
    .valid("-131072 to 22", |value| (-131_072..=22).contains(&value.whole()))
    .on_node("compression.zstd.level"),
    // ------------------------------------------------------------------------- durability
    Topic::new(
        "durability",
        String,
        "fsync",
        Sets(|config, value| {
            if let Some(kind) = durability(value.text()) {
                config.durability = kind;
            }
        }),
        "When a record is acknowledged: fsync, once it is synced to disk on a quorum; \
         replicated, once it is in the page caches of a quorum.",
    )
    .valid("fsync or replicated (memory is not offered yet)", |value| {
        durability(value.text()).is_some()
    })
    .on_node("durability"),
    Topic::new(
        "min.insync.replicas",
        Int,
        "1",
        Sets(|config, value| config.min_insync_replicas = value.whole() as u32),
        "How many replicas must be there for a produce with acks=all to be taken.",
    )
    .valid("1 or more", one_or_more)
    .on_node("min.insync.replicas"),
    Topic::new(
        "flush.messages",
        Long,
        "9223372036854775807",
        Sets(|config, value| config.flush_messages = value.whole()),
        "How many records may be unsynced. Any value is met with durability=fsync, which syncs \
         every record before it is acknowledged; with durability=replicated it is refused.",
    )
    .valid("1 or more", one_or_more)
    .on_node("log.flush.interval.messages"),
    Topic::new(
        "flush.ms",
        Long,
        "9223372036854775807",
        Sets(|config, value| config.flush_ms = value.whole()),
        "How long a record may be unsynced. Any value is met with durability=fsync, which syncs \
         every record before it is acknowledged; with durability=replicated it is refused.",
    )
    .valid("0 or more", zero_or_more)
    .on_node("log.flush.interval.ms"),
    Topic::new(
        "unclean.leader.election.enable",
        Boolean,
        "false",
        Inherent,
        "Allows a replica that lacks records to lead. The permission is never used: only a \
         replica with every acknowledged record can be elected.",
    )
    .on_node("unclean.leader.election.enable"),
    Topic::new(
        "preallocate",
        Boolean,
        "false",
        Inherent,
        "Asks for files that are allocated ahead. The journal's always are.",
    )
    .on_node("log.preallocate"),
    // ------------------------------------------------------------- consumption by leases
    Topic::new(
        "retention.settled",
        Boolean,
        "false",
        Sets(|config, value| config.retention_settled = value.boolean()),
        "Whether a record's bytes go once every lease group of the topic has settled it. Other          retention holds beside it; a topic that no lease group reads keeps everything.",
    ),
    Topic::new(
        "priorities.max",
        Int,
        "0",
        Sets(|config, value| config.priorities_max = value.whole() as u8),
        "The highest priority of a record: those with the highest are leased first, a higher one          counts as this one. 0 is none: records are leased in their order.",
    )
    .valid("0 to 255", |value| (0..=255).contains(&value.whole())),
    Topic::new(
        "priorities.order",
        String,
        "strict",
        Sets(|config, value| {
            if let Some(order) = priorities_order(value.text()) {
                config.priorities_order = order;
            }
        }),
        "Which record goes first: one with the highest priority, as priorities.max counts them; or, \
         with two-to-one, two with a priority above 4 for each one of the others.",
    )
    .valid("strict or two-to-one", |value| priorities_order(value.text()).is_some()),
    Topic::new(
        "limit.records",
        Long,
        "-1",
        Sets(|config, value| config.limit_records = u64::try_from(value.whole()).ok()),
        "How many records may wait in the topic: not settled, and not leased at the moment. -1 is any          number. limit.overflow says what happens beyond.",
    )
    .valid("-1 or more", minus_one_or_more),
    Topic::new(
        "limit.bytes",
        Long,
        "-1",
        Sets(|config, value| config.limit_bytes = u64::try_from(value.whole()).ok()),
        "How many bytes of values of records may wait in the topic: not settled, and not leased at the moment.          -1 is any number. limit.overflow says what happens beyond.",
    )
    .valid("-1 or more", minus_one_or_more),
    Topic::new(
        "limit.overflow",
        String,
        "reject",
        Sets(|config, value| {
            if let Some(overflow) = limit_overflow(value.text()) {
                config.limit_overflow = overflow;
            }
        }),
        "What happens to a record that would pass limit.records or limit.bytes: it is refused, or          the oldest ones make room, or it is refused and becomes a dead letter.",
    )
    .valid("reject, drop-oldest or reject-dead-letter", |value| {
        limit_overflow(value.text()).is_some()
    }),
    Topic::new(
        "dedup.window.ms",
        Long,
        "0",
        Sets(|config, value| config.dedup_window_ms = value.whole()),
        "For how long a record's postroad.id is remembered: a second one with the same id is          answered like the first and not appended. 0 is not at all.",
    )
    .valid("0 or more", zero_or_more),
    Topic::new(
        "dedup.ids.max",
        Long,
        "4000000",
        Sets(|config, value| config.dedup_ids_max = value.whole() as u64),
        "How many ids a shard remembers of the topic. Beyond it the oldest ids are forgotten before dedup.window.ms is over. Needs feature level 7.",
    )
    .valid("1 to 50000000", ids_per_topic),
    Topic::new(
        "errors.deadletterqueue.group.enable",
        Boolean,
        "false",
        Sets(|config, value| config.dead_letters_of_groups = value.boolean()),
        "Whether share groups may write their dead letters to this topic, as Kafka asks before \
         one may name it in errors.deadletterqueue.topic.name.",
    ),
    Topic::new(
        TRACE_CONFIG,
        String,
        "off",
        Sets(|config, value| {
            config.traced_per_million = per_million(value.text()).unwrap_or_default();
        }),
        "Of which records it is written to _postroad.trace when they are delivered, given back and \
         settled, and to whom: of all, of none, or of a share such as 1% or 0.5%. Needs feature \
         level 4.",
    )
    .valid("off, on, or a share above 0% and below 100% with at most 4 decimals, such as 0.5%", |value| {
        per_million(value.text()).is_some()
    }),
    // ------------------------------------------------------------- Kafka's names without effect
    // here
    Topic::new(
        "segment.index.bytes",
        Int,
        "10485760",
        OnlyDefault { why: NO_INDEX_FILES },
        "The size of a segment's index file in Kafka. Partitions have no files here.",
    )
    .on_node("log.index.size.max.bytes"),
    Topic::new(
        "segment.jitter.ms",
        Long,
        "0",
        OnlyDefault { why: "a partition has no segment that is rolled by time" },
        "Spreads the rolling of segments in Kafka. Partitions share the journal's segments here.",
    )
    .on_node("log.roll.jitter.ms"),
    Topic::new(
        "index.interval.bytes",
        Int,
        "4096",
        OnlyDefault { why: NO_INDEX_FILES },
        "How dense a segment's index is in Kafka. Every batch is indexed here.",
    )
    .on_node("log.index.interval.bytes"),
    Topic::new(
        "file.delete.delay.ms",
        Long,
        "60000",
        OnlyDefault { why: "a partition has no files" },
        "How long Kafka keeps the file of a deleted segment. Partitions have no files here.",
    )
    .on_node("log.segment.delete.delay.ms"),
    Topic::new(
        "leader.replication.throttled.replicas",
        List,
        "",
        OnlyDefault { why: THROTTLE },
        "Replicas whose leader is slowed down in Kafka.",
    ),
    Topic::new(
        "follower.replication.throttled.replicas",
        List,
        "",
        OnlyDefault { why: THROTTLE },
        "Replicas whose follower is slowed down in Kafka.",
    ),
    Topic::new(
        "remote.storage.enable",
        Boolean,
        "false",
        OnlyDefault { why: TIERED },
        "Keeps old segments in another storage in Kafka.",
    ),
    Topic::new(
        "remote.log.copy.disable",
        Boolean,
        "false",
        OnlyDefault { why: TIERED },
        "Stops copying to another storage in Kafka.",
    ),
    Topic::new(
        "remote.log.delete.on.disable",
        Boolean,
        "false",
        OnlyDefault { why: TIERED },
        "Deletes what is in another storage, when that is given up, in Kafka.",
    ),
    Topic::new(
        "remote.copy.lag.ms",
        Long,
        "0",
        OnlyDefault { why: TIERED },
        "How long Kafka waits before it copies to another storage.",
    ),
    Topic::new(
        "remote.copy.lag.bytes",
        Long,
        "0",
        OnlyDefault { why: TIERED },
        "How much Kafka gathers before it copies to another storage.",
    ),
    Topic::new(
        "local.retention.ms",
        Long,
        "-2",
        OnlyDefault { why: TIERED },
        "How long Kafka keeps what it also has in another storage.",
    ),
    Topic::new(
        "local.retention.bytes",
        Long,
        "-2",
        OnlyDefault { why: TIERED },
        "How much Kafka keeps of what it also has in another storage.",
    ),
];
