//! Topics that refuse records when they hold too much (`limit.records`, `limit.bytes`).
//!
//! Only what waits counts, which the driver knows and the sequencer does not: it goes by what the driver
//! noted last ([`crate::delivery::standings`]), and adds what it has given a place since. Of a topic in several
//! shards each of them has a part of the limit ([`limit_here`]).

use base::PartitionId;
use base::limits::DEDUP_IDS_PER_BATCH_MAX;
use journal::Room;
use machine::{LeaseGroup, Partition, Topic};

use crate::delivery::policy::{limit_here, refuses};
use crate::delivery::view::depth;
use crate::error::AppendError;
use crate::record_ids::RecordIds;
use crate::shard::{Shard, View};

/// Why a batch with so many records and bytes does not fit; `None` when it does. `ahead` tells the
/// ends of partitions that are proposed and not yet applied.
pub(super) fn refused(
    state: &View<'_>,
    topic: &Topic,
    shard: &Shard,
    ahead: impl Fn(PartitionId) -> Option<base::Offset>,
    records: u64,
    batch: &[u8],
) -> Option<AppendError> {
    let config = &topic.config;
    if !refuses(config) {
        return None;
    }
    let rows = state.rows.topic(topic.id)?;
    let applied: u64 = rows.partitions().map(|(_, row)| row.next_offset()).sum();
    let end = |(id, row): (PartitionId, &Partition)| ahead(id).unwrap_or(row.next_offset());
    let ends: u64 = rows.partitions().map(end).sum();
    // Of the lease group that has most of them; all that is stored where there is none.
    let held_by = |group: &LeaseGroup| {
        let delivery = shard.delivery.get();
        match delivery.and_then(|delivery| delivery.standings.of(group.id)) {
            Some(standing) => standing.held_at(ends + records),
            None => {
                let known = state.rows.lease_group(group.id);
                let depth = known.map_or(0, |progress| depth(progress, rows));
                depth + ends.saturating_sub(applied) + records
            }
        }
    };
    let held = state.catalog.lease_groups_of(topic.id).map(held_by).max();
    let held = held.unwrap_or_else(|| rows.stored() + ends.saturating_sub(applied) + records);
    // What is more than the limit by itself is too much even if somebody would take it at once.
    let held = held.max(records);
    // Where nothing waits a batch has to fit into the limit alone, or one that is larger than this shard's
    // part would never be taken.
    let alone = held == records;
    let here = |limit| match alone {
        true => limit,
        false => limit_here(limit, rows.row_count(), topic.partition_count()),
    };
    if config.limit_records.is_some_and(|limit| held > here(limit)) {
        return Some(AppendError::Full { limit: "limit.records".into() });
    }
    let limit = here(config.limit_bytes?);
    let delivery = shard.delivery.get()?;
    let sequenced = &delivery.standings;
    let all = state.catalog.lease_groups_of(topic.id).filter_map(|group| sequenced.of(group.id));
    let standing = all.max_by_key(|standing| standing.bytes).unwrap_or_default();
    let waiting = standing.bytes + sequenced.bytes_since(topic.id, standing.known, ends);
    let bytes = record::value_bytes(batch);
    // What somebody takes at once does not wait for anything, and only has to fit by itself.
    let before = if held > records { waiting } else { 0 };
    if before + bytes > limit {
        return Some(AppendError::Full { limit: "limit.bytes".into() });
    }
    sequenced.note_sequenced(topic.id, ends + records, bytes);
    None
}

/// Notes the bytes of a batch that goes into the topic however full it is.
pub(super) fn note_waived(
    state: &View<'_>,
    topic: &Topic,
    shard: &Shard,
    ahead: impl Fn(PartitionId) -> Option<base::Offset>,
    records: u64,
    batch: &[u8],
) {
    if !refuses(&topic.config) || topic.config.limit_bytes.is_none() {
        return;
    }
    let (Some(rows), Some(delivery)) = (state.rows.topic(topic.id), shard.delivery.get()) else {
        return;
    };
    let end = |(id, row): (PartitionId, &Partition)| ahead(id).unwrap_or(row.next_offset());
    let ends: u64 = rows.partitions().map(end).sum();
    delivery.standings.note_sequenced(topic.id, ends + records, record::value_bytes(batch));
}

/// An entry has room for so many ids.
pub(super) fn refused_for_ids(ids: Option<&RecordIds>) -> Option<AppendError> {
    let (ids, at_most) = (ids.map_or(0, RecordIds::len), DEDUP_IDS_PER_BATCH_MAX);
    (ids > at_most).then_some(AppendError::TooManyIds { ids, at_most })
}

pub(super) fn refused_for_space(room: &Room) -> Option<AppendError> {
    match *room {
        Room::Ok => None,
        Room::Full { free_bytes, reserve_bytes } => {
            Some(AppendError::StorageFull { free_bytes, reserve_bytes })
        }
    }
}
