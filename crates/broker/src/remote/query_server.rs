//! Server of queries about the rows of a shard that this node leads. A node replies only while it leads, and once it
//! has applied everything acknowledged: no reply comes from an empty replica.

use base::limits::LEASE_READ_BYTES;
use base::{LeaseGroupId, Offset, PartitionId};
use bytes::Bytes;
use machine::Rows;
use shard::LocalShard;
use shard::error::{FetchError, Unavailable};
use shard_peers::bounds::{Bounds, LogRange};
use shard_peers::shard_query::{
    ASKED_AT_ONCE_MAX, GroupFacts, GroupSnapshot, MoveFacts, QueryResult, ShardQuery,
    ShardQueryReply, TOLD_AT_ONCE_MAX, WAITS_FOR, after, epoch_at,
};
use tokio::time::timeout;

use crate::limits::ADOPTED_WITHIN;
use crate::shard_reads::{RawBatches, offset_at_time, offset_of_max_timestamp, read_known};

/// Replies to a query of another node, if this node leads.
#[tasks::boxed]
pub(crate) async fn reply_to(shard: &LocalShard, query: ShardQuery) -> QueryResult {
    if let ShardQuery::Adopted { version } = query {
        // Checked first, so that a query to a follower fails without a wait.
        check_serves(shard).await?;
        return match timeout(ADOPTED_WITHIN, shard.adopts(version)).await {
            Ok(adopted) => Ok((adopted.map(|()| ShardQueryReply::Adopted)?, Vec::new())),
            Err(_) => Err(Unavailable::Unanswered.into()),
        };
    }
    check_serves(shard).await?;
    match query {
        ShardQuery::Read { partition, offset, bytes_max } => {
            let bytes_max = (bytes_max as usize).min(LEASE_READ_BYTES);
            let (read, bounds) = read_known(shard, partition, offset, bytes_max).await?;
            Ok((ShardQueryReply::Read(bounds.into()), pieces(read)))
        }
        ShardQuery::ReadStable { partition, offset, bytes_max } => {
            let bytes_max = (bytes_max as usize).min(LEASE_READ_BYTES);
            let (read, bounds) = read_known(shard, partition, offset, bytes_max).await?;
            let aborted = read.aborted();
            Ok((ShardQueryReply::ReadStable { bounds, aborted }, pieces(read)))
        }
        ShardQuery::OffsetAtTime { partition, timestamp_ms } => {
            let found = offset_at_time(shard, partition, timestamp_ms).await?;
            Ok((ShardQueryReply::Timed(found), Vec::new()))
        }
        ShardQuery::OffsetOfMaxTimestamp(partition) => Ok((
            ShardQueryReply::Timed(offset_of_max_timestamp(shard, partition).await?),
            Vec::new(),
        )),
        ShardQuery::Changed(known) => {
            let range = |rows: &Rows, id| rows.known(id).map(LogRange::of);
            reply_when_changed(shard, known, range, ShardQueryReply::Bounds).await
        }
        ShardQuery::StableChanged(known) => {
            reply_when_changed(shard, known, Bounds::known, ShardQueryReply::StableBounds).await
        }
        query => {
            if query.item_count() > ASKED_AT_ONCE_MAX {
                return Err(FetchError::Storage("too much is asked at once".to_owned()));
            }
            let reply = reply_from_rows(shard, &query);
            reply.map(|reply| (reply, Vec::new())).ok_or(Unavailable::NotLeader.into())
        }
    }
}

async fn check_serves(shard: &LocalShard) -> Result<(), Unavailable> {
    if shard.serves_in().is_none() {
        return Err(Unavailable::NotLeader);
    }
    shard.shard.pending.apply_answered().await;
    Ok(())
}

fn pieces(read: RawBatches) -> Vec<Bytes> {
    let mut body = Vec::new();
    read.records.into_iter().for_each(|stored| stored.put_pieces(&mut body));
    body
}

/// Replies once `bounds` differs from the known value in one of the partitions, or after [`WAITS_FOR`].
async fn reply_when_changed<T: PartialEq>(
    shard: &LocalShard,
    known: Vec<(PartitionId, Option<T>)>,
    bounds: impl Fn(&Rows, PartitionId) -> Option<T>,
    reply: impl Fn(Vec<Option<T>>) -> ShardQueryReply,
) -> QueryResult {
    let partitions: Vec<PartitionId> = known.iter().map(|(id, _)| *id).collect();
    if partitions.len() > ASKED_AT_ONCE_MAX {
        return Err(FetchError::Storage("too much is asked at once".to_owned()));
    }
    let watch = shard.watchers().watch();
    watch.add_all(&partitions);
    let current = || {
        let rows = shard.shard.rows();
        partitions.iter().map(|id| bounds(&rows, *id)).collect::<Vec<_>>()
    };
    let mut found = current();
    let is_new = known.iter().zip(&found).any(|((_, known), found)| known != found);
    if !is_new {
        // After the time limit the client repeats the query.
        let _ = timeout(WAITS_FOR, watch.ready()).await;
        check_serves(shard).await?;
        found = current();
    }
    Ok((reply(found), Vec::new()))
}

/// Returns the reply by rows alone; `None` for a query that needs more.
fn reply_from_rows(shard: &LocalShard, query: &ShardQuery) -> Option<ShardQueryReply> {
    let rows = shard.shard.rows();
    let known = |id: &PartitionId| rows.known(*id);
    let at_most = |max: u32| (max as usize).min(TOLD_AT_ONCE_MAX);
    Some(match query {
        ShardQuery::Bounds(of) => {
            ShardQueryReply::Bounds(of.iter().map(|id| known(id).map(LogRange::of)).collect())
        }
        ShardQuery::StableBounds(of) => {
            let bounds = of.iter().map(|id| Bounds::known(&rows, *id));
            ShardQueryReply::StableBounds(bounds.collect())
        }
        ShardQuery::EpochsAt(of) => {
            let at = |(id, offset): &(PartitionId, Offset)| Some(epoch_at(known(id)?, *offset));
            ShardQueryReply::Epochs(of.iter().map(at).collect())
        }
        ShardQuery::LastAppends(of) => {
            let at = |id| Some(known(id)?.last_append_ms());
            ShardQueryReply::LastAppends(of.iter().map(at).collect())
        }
        ShardQuery::LiveBytes(of) => {
            let journal = shard.journal();
            ShardQueryReply::LiveBytes(
                of.iter().map(|id| journal.stream_bytes(id.stream())).collect(),
            )
        }
        ShardQuery::LeaseProgress { group, partitions } => {
            let part = GroupSnapshot::find(&rows, *group);
            let of = |index: &u32| part.as_ref()?.progress(*index);
            ShardQueryReply::LeaseProgress(partitions.iter().map(of).collect())
        }
        ShardQuery::LeaseFloors(of) => {
            let floor =
                |(group, index): &(LeaseGroupId, u32)| Some(rows.progress(*group, *index)?.floor());
            ShardQueryReply::LeaseFloors(of.iter().map(floor).collect())
        }
        ShardQuery::Settled { group, partition, offsets } => {
            let progress = rows.progress(*group, *partition);
            let is = |at: &Offset| progress.is_none_or(|progress| progress.is_settled(*at));
            ShardQueryReply::Settled(offsets.iter().map(is).collect())
        }
        ShardQuery::Groups(of) => ShardQueryReply::Groups(
            of.iter().map(|name| rows.group(name).map(GroupFacts::of)).collect(),
        ),
        ShardQuery::GroupCount => ShardQueryReply::GroupCount(rows.group_count() as u64),
        ShardQuery::GroupsAfter { name, max } => {
            let some = rows.groups_after(name).take(at_most(*max));
            ShardQueryReply::GroupNames(some.map(|(name, _)| name.to_owned()).collect())
        }
        ShardQuery::Offsets { group, partitions } => {
            let group = rows.group(group);
            ShardQueryReply::Offsets(
                partitions.iter().map(|id| group?.offset(*id).cloned()).collect(),
            )
        }
        ShardQuery::OffsetsAfter { group, partition, max } => {
            let group = rows.group(group);
            let after = group.map(|group| after(group, *partition));
            let some = after.into_iter().flatten().take(at_most(*max));
            ShardQueryReply::OffsetsAfter(
                some.map(|(id, committed)| (*id, committed.clone())).collect(),
            )
        }
        ShardQuery::Moves(of) => ShardQueryReply::Moves(
            of.iter().map(|(partition, id)| MoveFacts::of(&rows, *partition, *id)).collect(),
        ),
        ShardQuery::Adopted { .. }
        | ShardQuery::Read { .. }
        | ShardQuery::ReadStable { .. }
        | ShardQuery::OffsetAtTime { .. }
        | ShardQuery::OffsetOfMaxTimestamp(_)
        | ShardQuery::Changed(_)
        | ShardQuery::StableChanged(_) => return None,
    })
}
