//! Backup parts of shards without a replica on this node. One member of the shard's group sends all parts of a shard.
//! It retains the data under the same backup number and within the same bounds.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::ShardId;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use journal::EntryId;
use journal::transfer::{Manifest, Section, SectionSize, SegmentPiece};
use links::NodeId;
use shard::LocalShard;
use shard::error::Unavailable;
use shard_peers::backup_parts::{BackupPart, BackupStep, SendsBackups};
use tasks::Task;
use tokio::time::timeout;

use super::{BackupError, Backups, ENDS_WITHIN, LogPiece, ShardStart};

/// Covers the snapshot, which is saved before it is sent, and the pacing of pieces.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
const ENDED_WITHIN: Duration = Duration::from_secs(2);

impl From<ShardStart> for BackupPart {
    fn from(ShardStart { manifest: Manifest { id, sections }, segments }: ShardStart) -> Self {
        let sections = sections.map(|section| (section.bytes, section.crc));
        Self::Shard { id: (id.term, id.leader, id.index), sections, segments }
    }
}

fn unexpected() -> BackupError {
    Unavailable::Unanswered.into()
}

/// Serves backups of other nodes, for as long as the broker is open.
#[derive(Debug)]
pub struct WeakBackups(Weak<Backups>);

impl WeakBackups {
    pub fn new(backups: &Arc<Backups>) -> Self {
        Self(Arc::downgrade(backups))
    }
}

impl SendsBackups for WeakBackups {
    fn back_up_for_another(
        &self,
        backup: u64,
        shard: ShardId,
        step: BackupStep,
    ) -> BoxFuture<'static, Option<Result<(BackupPart, Bytes), BackupError>>> {
        let backups = self.0.upgrade();
        async move { Some(backups?.back_up_for_another(backup, shard, step).await) }.boxed()
    }
}

impl Backups {
    /// Executes a backup step requested by another node.
    async fn back_up_for_another(
        &self,
        backup: u64,
        shard: ShardId,
        step: BackupStep,
    ) -> Result<(BackupPart, Bytes), BackupError> {
        let local = self.replica(shard)?;
        Ok(match step {
            BackupStep::Shard => {
                if !self.open.knows(backup) {
                    self.open.begin(backup)?;
                    tracing::info!("a backup is taken from this node, by another one");
                }
                (self.start_here(backup, local).await?.into(), Bytes::new())
            }
            BackupStep::Section { section, from } => {
                let section = Section::ALL.get(usize::from(section)).copied();
                let section = section.ok_or(BackupError::NoSuchPlace)?;
                let bytes = self.section_here(backup, local, section, from).await?;
                (BackupPart::Bytes { next: None }, bytes)
            }
            BackupStep::Segment { segment, row } => {
                let SegmentPiece { bytes, next } =
                    self.segment_here(backup, local, segment, row).await?;
                (BackupPart::Bytes { next }, bytes)
            }
            BackupStep::Log { from } => {
                let LogPiece { entries, next, more } = self.log_here(backup, local, from).await?;
                (BackupPart::Log { next, more }, entries)
            }
            BackupStep::Applied { index } => {
                let _guard = self.open.enter(backup)?;
                let applied = timeout(ENDS_WITHIN, local.consensus.applied_to(index)).await;
                let applied = applied.map_err(|_| Unavailable::Unanswered)?;
                applied.map_err(|error| Unavailable::from(&error))?;
                (BackupPart::Done, Bytes::new())
            }
            BackupStep::End => {
                let _ = self.open.end(backup);
                (BackupPart::Done, Bytes::new())
            }
        })
    }

    /// Begins at the first connected node that has the shard and sends it.
    pub(super) async fn start_elsewhere(
        &self,
        backup: u64,
        shard: &LocalShard,
    ) -> Result<ShardStart, BackupError> {
        let _guard = self.open.enter(backup)?;
        let nodes = shard.replicas();
        let mut why = "none of them is connected".to_owned();
        let connected = |node: &&u32| {
            self.peers.remote().is_some_and(|remote| {
                remote.node().connected_for(NodeId(u64::from(**node))).is_some()
            })
        };
        for node in nodes.iter().filter(connected) {
            match self.request_from_member(backup, shard, *node, &BackupStep::Shard).await {
                Ok((BackupPart::Shard { id: (term, leader, index), sections, segments }, _)) => {
                    let id = EntryId { term, leader, index };
                    let sections = sections.map(|(bytes, crc)| SectionSize { bytes, crc });
                    self.open.with(backup, |backup| {
                        backup.elsewhere.insert(shard.id(), *node);
                        Ok(())
                    })?;
                    return Ok(ShardStart { manifest: Manifest { id, sections }, segments });
                }
                Ok(_) => why = unexpected().to_string(),
                Err(error) => why = error.to_string(),
            }
        }
        Err(BackupError::Lacking { shard: shard.id(), nodes, why })
    }

    pub(super) async fn section_elsewhere(
        &self,
        backup: u64,
        shard: &LocalShard,
        section: Section,
        from: u64,
    ) -> Result<Bytes, BackupError> {
        let step = BackupStep::Section { section: section as u8, from };
        match self.request_from_sender(backup, shard, &step).await? {
            (BackupPart::Bytes { .. }, bytes) => Ok(bytes),
            _ => Err(unexpected()),
        }
    }

    pub(super) async fn segment_elsewhere(
        &self,
        backup: u64,
        shard: &LocalShard,
        segment: u64,
        row: u64,
    ) -> Result<SegmentPiece, BackupError> {
        let step = BackupStep::Segment { segment, row };
        match self.request_from_sender(backup, shard, &step).await? {
            (BackupPart::Bytes { next }, bytes) => Ok(SegmentPiece { bytes, next }),
            _ => Err(unexpected()),
        }
    }

    pub(super) async fn log_elsewhere(
        &self,
        backup: u64,
        shard: &LocalShard,
        from: u64,
    ) -> Result<LogPiece, BackupError> {
        match self.request_from_sender(backup, shard, &BackupStep::Log { from }).await? {
            (BackupPart::Log { next, more }, entries) => Ok(LogPiece { entries, next, more }),
            _ => Err(unexpected()),
        }
    }

    /// Waits until the node that sends the shard has applied its log up to `index`.
    pub(super) async fn applied_elsewhere(
        &self,
        backup: u64,
        shard: &LocalShard,
        index: u64,
    ) -> Result<(), BackupError> {
        match self.request_from_sender(backup, shard, &BackupStep::Applied { index }).await? {
            (BackupPart::Done, _) => Ok(()),
            _ => Err(unexpected()),
        }
    }

    /// Ends the backup at the sending nodes. Nodes that miss the request drop it after a time without requests.
    pub(super) fn end_elsewhere(&self, backup: u64, senders: BTreeMap<ShardId, u32>) {
        let Some(remote) = self.peers.remote().filter(|_| !senders.is_empty()) else { return };
        let remote = remote.clone();
        tasks::spawn(Task::RemoteRequest, async move {
            for (shard, node) in senders {
                let _ = remote.back_up(node, shard, backup, &BackupStep::End, ENDED_WITHIN).await;
            }
        });
    }

    async fn request_from_sender(
        &self,
        backup: u64,
        shard: &LocalShard,
        step: &BackupStep,
    ) -> Result<(BackupPart, Bytes), BackupError> {
        let _guard = self.open.enter(backup)?;
        let sender = self.open.with(backup, |backup| {
            backup.elsewhere.get(&shard.id()).copied().ok_or(BackupError::NoShard(shard.id()))
        })?;
        self.request_from_member(backup, shard, sender, step).await
    }

    async fn request_from_member(
        &self,
        backup: u64,
        shard: &LocalShard,
        node: u32,
        step: &BackupStep,
    ) -> Result<(BackupPart, Bytes), BackupError> {
        let remote = self.peers.remote().ok_or(BackupError::NoShard(shard.id()))?;
        remote.back_up(node, shard.id(), backup, step, ANSWERED_WITHIN).await
    }
}
