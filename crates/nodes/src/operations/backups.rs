//! Steps of a backup that an operator takes.

use ::operations::backup::{
    BackupBegun, BackupEnded, BackupEnds, BackupPiece, Blob, LogId, LogPiece, SectionSize,
    ShardBackupBegun, Step,
};
use ::operations::family::OperationError;
use base::ShardId;
use broker::Broker;
use broker::backup::BackupError;
use journal::transfer::Section;

use super::written;

pub(crate) async fn answer(broker: &Broker, step: Step) -> Result<Vec<u8>, OperationError> {
    match step {
        Step::Begin {} => {
            let backup = broker.backups().begin().map_err(refused)?;
            written(&BackupBegun {
                backup,
                cluster: broker.cluster_id().to_string(),
                node: broker.node().into(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                now_ms: broker.clock().now_ms(),
                shards: broker.backups().shards().into_iter().map(|shard| shard.0).collect(),
            })
        }
        Step::Shard { backup, shard } => {
            let start =
                broker.backups().begin_shard(backup, ShardId(shard)).await.map_err(refused)?;
            let id = start.manifest.id;
            let sections = start.manifest.sections.iter();
            written(&ShardBackupBegun {
                snapshot: LogId { index: id.index, term: id.term, leader: id.leader },
                sections: sections.map(|it| SectionSize { bytes: it.bytes, crc: it.crc }).collect(),
                segments: start.segments,
            })
        }
        Step::Section { backup, shard, section, from } => {
            let section = Section::ALL.get(usize::from(section)).copied();
            let section = section.ok_or_else(|| refused(BackupError::NoSuchPlace))?;
            let bytes = broker.backups().section(backup, ShardId(shard), section, from).await;
            written(&BackupPiece { bytes: Blob(bytes.map_err(refused)?), next: None })
        }
        Step::Segment { backup, shard, segment, row } => {
            let piece = broker.backups().segment(backup, ShardId(shard), segment, row).await;
            let piece = piece.map_err(refused)?;
            written(&BackupPiece { bytes: Blob(piece.bytes), next: piece.next })
        }
        Step::Log { backup, shard, from } => {
            let piece =
                broker.backups().log(backup, ShardId(shard), from).await.map_err(refused)?;
            let (entries, next, more) = (Blob(piece.entries), piece.next, piece.more);
            written(&LogPiece { entries, next, more })
        }
        Step::Ends { backup } => {
            written(&BackupEnds { ends: broker.backups().ends(backup).await.map_err(refused)? })
        }
        Step::End { backup } => {
            broker.backups().end(backup);
            written(&BackupEnded {})
        }
    }
}

fn refused(error: BackupError) -> OperationError {
    let words = error.to_string();
    match error {
        BackupError::Unknown => OperationError::NotFound(words),
        BackupError::NoShard(_) | BackupError::NoSuchPlace | BackupError::TooMany => {
            OperationError::Invalid(words)
        }
        BackupError::Unavailable(_) | BackupError::Moving | BackupError::Lacking { .. } => {
            OperationError::Unavailable(words)
        }
        BackupError::TooSlow(_) | BackupError::Replaced(_) | BackupError::Unreadable { .. } => {
            OperationError::Failed(words)
        }
    }
}
