//! Topics that reject records when they are full (`limit.records`, `limit.bytes`).
//!
//! Only unsettled records count, which the driver knows and the sequencer does not. So the sequencer uses the
//! driver's last numbers ([`crate::delivery::group_backlog`]), and adds the records sequenced since. Each shard of a
//! topic in several shards has a part of the limit ([`limit_here`]).

use crate::limits::DEDUP_IDS_PER_BATCH_MAX;
use base::PartitionId;
use journal::DiskRoom;
use machine::{LeaseGroup, Partition, Topic};

use crate::delivery::group_backlog::depth;
use crate::delivery::topic_limit::{limit_here, refuses};
use crate::error::AppendError;
use crate::record_ids::RecordIds;
use crate::state_machine::{Shard, View};

/// Returns why a batch of this size does not fit; `None` if it does. `ahead` returns the ends of partitions with
/// pending proposals.
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
    // The records of the lease group with most of them; all stored records without a group.
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
    // A batch above the limit is rejected even if a consumer would take it at once.
    let held = held.max(records);
    // In an empty topic a batch only has to fit into the whole limit: one larger than this shard's part would
    // otherwise never be accepted.
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
    // Records that a consumer takes at once do not wait behind others, and only have to fit by themselves.
    let before = if held > records { waiting } else { 0 };
    if before + bytes > limit {
        return Some(AppendError::Full { limit: "limit.bytes".into() });
    }
    sequenced.note_sequenced(topic.id, ends + records, bytes);
    None
}

/// Notes the bytes of a batch that goes into the topic regardless of its limits.
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

/// Rejects a batch with more ids than fit into an entry.
pub(super) fn refused_for_ids(ids: Option<&RecordIds>) -> Option<AppendError> {
    let (ids, at_most) = (ids.map_or(0, RecordIds::len), DEDUP_IDS_PER_BATCH_MAX);
    (ids > at_most).then_some(AppendError::TooManyIds { ids, at_most })
}

pub(super) fn refused_for_space(room: &DiskRoom) -> Option<AppendError> {
    match *room {
        DiskRoom::Ok => None,
        DiskRoom::Full { free_bytes, reserve_bytes } => {
            Some(AppendError::StorageFull { free_bytes, reserve_bytes })
        }
    }
}
