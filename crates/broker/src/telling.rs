//! Server of queries about the rows of a shard that this node leads. A node replies only while it leads, and once it
//! has applied everything acknowledged: no reply comes from an empty replica.

use base::limits::{ADOPTED_WITHIN, LEASE_READ_BYTES};
use base::{LeaseGroupId, Offset, PartitionId};
use tokio::time::timeout;

use crate::bounds::Bounds;
use crate::error::{FetchError, Unavailable};
use crate::local_shard::LocalShard;
use crate::question::{
    ASKED_AT_ONCE_MAX, Answered, GroupFacts, MoveFacts, Part, Question, TOLD_AT_ONCE_MAX, Told,
    WAITS_FOR, after, epoch_at,
};

impl LocalShard {
    /// Replies to a query of another node, if this node leads.
    pub(crate) async fn reply_to(&self, question: Question) -> Answered {
        if let Question::Adopted { version } = question {
            // Checked first, so that a query to a follower fails without a wait.
            self.check_serves().await?;
            return match timeout(ADOPTED_WITHIN, self.adopts(version)).await {
                Ok(adopted) => Ok((adopted.map(|()| Told::Adopted)?, Vec::new())),
                Err(_) => Err(Unavailable::Unanswered.into()),
            };
        }
        self.check_serves().await?;
        match question {
            Question::Read { partition, offset, bytes_max } => {
                let bytes_max = (bytes_max as usize).min(LEASE_READ_BYTES);
                let read = self.read_known(partition, offset, bytes_max).await?;
                let mut body = Vec::new();
                read.records.into_iter().for_each(|stored| stored.put_pieces(&mut body));
                let bounds = Bounds { log_start: read.log_start, end: read.high_watermark };
                Ok((Told::Read(bounds), body))
            }
            Question::OffsetAtTime { partition, timestamp_ms } => {
                let found = self.offset_at_time(partition, timestamp_ms).await?;
                Ok((Told::Timed(found), Vec::new()))
            }
            Question::OffsetOfMaxTimestamp(partition) => {
                Ok((Told::Timed(self.offset_of_max_timestamp(partition).await?), Vec::new()))
            }
            Question::Changed(known) => self.reply_when_changed(known).await,
            question => {
                if question.len() > ASKED_AT_ONCE_MAX {
                    return Err(FetchError::Storage("too much is asked at once".to_owned()));
                }
                let told = reply_from_rows(self, &question);
                told.map(|told| (told, Vec::new())).ok_or(Unavailable::NotLeader.into())
            }
        }
    }

    async fn check_serves(&self) -> Result<(), Unavailable> {
        if self.serves_in().is_none() {
            return Err(Unavailable::NotLeader);
        }
        self.shard.pending.apply_answered().await;
        Ok(())
    }

    async fn reply_when_changed(&self, known: Vec<(PartitionId, Option<Bounds>)>) -> Answered {
        let partitions: Vec<PartitionId> = known.iter().map(|(id, _)| *id).collect();
        if partitions.len() > ASKED_AT_ONCE_MAX {
            return Err(FetchError::Storage("too much is asked at once".to_owned()));
        }
        let watch = self.watchers().watch();
        watch.add_all(&partitions);
        let bounds = || {
            let rows = self.shard.rows();
            partitions.iter().map(|id| rows.known(*id).map(Bounds::of)).collect::<Vec<_>>()
        };
        let mut found = bounds();
        let is_new = known.iter().zip(&found).any(|((_, known), found)| known != found);
        if !is_new {
            // After the time limit the client repeats the query.
            let _ = timeout(WAITS_FOR, watch.ready()).await;
            self.check_serves().await?;
            found = bounds();
        }
        Ok((Told::Bounds(found), Vec::new()))
    }
}

/// Returns the reply by rows alone; `None` for a query that needs more.
fn reply_from_rows(shard: &LocalShard, question: &Question) -> Option<Told> {
    let rows = shard.shard.rows();
    let known = |id: &PartitionId| rows.known(*id);
    let at_most = |max: u32| (max as usize).min(TOLD_AT_ONCE_MAX);
    Some(match question {
        Question::Bounds(of) => {
            Told::Bounds(of.iter().map(|id| known(id).map(Bounds::of)).collect())
        }
        Question::EpochsAt(of) => {
            let at = |(id, offset): &(PartitionId, Offset)| Some(epoch_at(known(id)?, *offset));
            Told::Epochs(of.iter().map(at).collect())
        }
        Question::LastAppends(of) => {
            let at = |id| Some(known(id)?.last_append_ms());
            Told::LastAppends(of.iter().map(at).collect())
        }
        Question::LiveBytes(of) => {
            let journal = shard.journal();
            Told::LiveBytes(of.iter().map(|id| journal.stream_bytes(id.stream())).collect())
        }
        Question::LeaseProgress { group, partitions } => {
            let part = Part::find(&rows, *group);
            let of = |index: &u32| part.as_ref()?.progress(*index);
            Told::LeaseProgress(partitions.iter().map(of).collect())
        }
        Question::LeaseFloors(of) => {
            let floor =
                |(group, index): &(LeaseGroupId, u32)| Some(rows.progress(*group, *index)?.floor());
            Told::LeaseFloors(of.iter().map(floor).collect())
        }
        Question::Settled { group, partition, offsets } => {
            let progress = rows.progress(*group, *partition);
            let is = |at: &Offset| progress.is_none_or(|progress| progress.is_settled(*at));
            Told::Settled(offsets.iter().map(is).collect())
        }
        Question::Groups(of) => {
            Told::Groups(of.iter().map(|name| rows.group(name).map(GroupFacts::of)).collect())
        }
        Question::GroupCount => Told::GroupCount(rows.group_count() as u64),
        Question::GroupsAfter { name, max } => {
            let some = rows.groups_after(name).take(at_most(*max));
            Told::GroupNames(some.map(|(name, _)| name.to_owned()).collect())
        }
        Question::Offsets { group, partitions } => {
            let group = rows.group(group);
            Told::Offsets(partitions.iter().map(|id| group?.offset(*id).cloned()).collect())
        }
        Question::OffsetsAfter { group, partition, max } => {
            let group = rows.group(group);
            let after = group.map(|group| after(group, *partition));
            let some = after.into_iter().flatten().take(at_most(*max));
            Told::OffsetsAfter(some.map(|(id, committed)| (*id, committed.clone())).collect())
        }
        Question::Moves(of) => Told::Moves(
            of.iter().map(|(partition, id)| MoveFacts::of(&rows, *partition, *id)).collect(),
        ),
        Question::Adopted { .. }
        | Question::Read { .. }
        | Question::OffsetAtTime { .. }
        | Question::OffsetOfMaxTimestamp(_)
        | Question::Changed(_) => return None,
    })
}
