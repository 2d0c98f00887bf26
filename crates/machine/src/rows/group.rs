//! A group's committed offsets. A group exists here while it has an offset.

use std::borrow::Cow;

use crate::limits::OFFSET_METADATA_BYTES_MAX;
use base::{Offset, PartitionId, SharedMap, TopicId};
use serde::{Deserialize, Serialize};

use crate::command::CommitOffset;
use crate::outcome::Refusal;
use crate::stored::CommittedOffsetV1;

/// Also sent between nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommittedOffset {
    pub offset: Offset,
    /// -1: the client sent none.
    pub leader_epoch: i32,
    pub metadata: String,
    pub commit_ms: i64,
    /// Expiry time, if its client requested one.
    pub expire_ms: Option<i64>,
}

impl From<CommittedOffsetV1<'_>> for CommittedOffset {
    fn from(stored: CommittedOffsetV1<'_>) -> Self {
        Self {
            offset: stored.offset,
            leader_epoch: stored.leader_epoch,
            metadata: stored.metadata.into_owned(),
            commit_ms: stored.commit_ms,
            expire_ms: stored.expire_ms,
        }
    }
}

impl CommittedOffset {
    pub(crate) fn stored(&self, partition: PartitionId) -> CommittedOffsetV1<'_> {
        CommittedOffsetV1 {
            topic: partition.topic.0,
            partition: partition.index,
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: Cow::Borrowed(&self.metadata),
            commit_ms: self.commit_ms,
            expire_ms: self.expire_ms,
        }
    }

    /// Whether an offset of a snapshot could be the result of `commit`.
    pub(crate) fn is_sound(&self) -> bool {
        self.offset <= i64::MAX as u64 && self.metadata.len() <= OFFSET_METADATA_BYTES_MAX
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Group {
    pub offsets: SharedMap<PartitionId, CommittedOffset>,
}

impl Group {
    pub fn offset(&self, partition: PartitionId) -> Option<&CommittedOffset> {
        self.offsets.get(&partition)
    }

    pub(crate) fn commit(&mut self, commit: &CommitOffset, now_ms: i64) {
        let committed = CommittedOffset {
            offset: commit.offset,
            leader_epoch: commit.leader_epoch,
            metadata: commit.metadata.clone(),
            commit_ms: now_ms,
            expire_ms: commit.expire_ms,
        };
        self.offsets.insert(commit.partition, committed);
    }

    pub(crate) fn forget_topic(&mut self, topic: TopicId) {
        let of_topic = PartitionId::new(topic, 0)..=PartitionId::new(topic, u32::MAX);
        let partitions: Vec<_> = self.offsets.range(of_topic).map(|(&id, _)| id).collect();
        for partition in partitions {
            self.offsets.remove(&partition);
        }
    }

    /// Removes offsets that expired by their own time at `now_ms`, or were committed before
    /// `before_ms`.
    pub(crate) fn expire(&mut self, now_ms: i64, before_ms: i64) -> u64 {
        let held = self.offsets.len();
        self.offsets.retain(|_, committed| match committed.expire_ms {
            Some(expire_ms) => now_ms < expire_ms,
            None => committed.commit_ms >= before_ms,
        });
        (held - self.offsets.len()) as u64
    }
}

/// Validates a committed offset. Any offset may be committed, as in Kafka, even beyond the log's
/// bounds; it must only fit the wire format.
pub(crate) fn validate_commit(commit: &CommitOffset) -> Result<(), Refusal> {
    let CommitOffset { partition, offset, .. } = *commit;
    if offset > i64::MAX as u64 {
        let (start, end) = (0, i64::MAX as u64);
        return Err(Refusal::OffsetOutOfRange { partition, offset, start, end });
    }
    let bytes = commit.metadata.len();
    if bytes > OFFSET_METADATA_BYTES_MAX {
        return Err(Refusal::MetadataTooLarge { bytes, at_most: OFFSET_METADATA_BYTES_MAX });
    }
    Ok(())
}
