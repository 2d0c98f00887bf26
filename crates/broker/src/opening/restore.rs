//! Creates the shards of a data directory from a backup. Each shard gets its snapshot, installed like one from
//! another member, and the entries of its log up to the cut. The next start recovers the shard from these.

use std::path::Path;

use backup::{StoredBackup, StoredError};
use base::ShardId;
use base::limits::PROPOSAL_BYTES_MAX;
use bytes::Bytes;
use journal::transfer::{ImportError, ReceivedSections, ReceiverState};
use journal::{Encoded, EntryId, Journal, JournalFailed};
use machine::Role;
use operations::backup::LogId;
use shard::LocalShard;
use tokio::sync::oneshot;
use world::World;

use super::local_shard::journal_options;
use super::{directories, layout};
use crate::error::OpenError;
use crate::options::BrokerOptions;

/// Reason why the directory was not restored. The restore may be tried again.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Stored(#[from] StoredError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{shard} of the backup cannot be written: {source}")]
    Import { shard: ShardId, source: ImportError },
    #[error("the log of {shard} cannot be written: {source}")]
    Journal { shard: ShardId, source: JournalFailed },
    #[error("there is no room for {shard}: free some space, and type the command again")]
    NoRoom { shard: ShardId },
}

/// Writes all shards of a backup, in place of the remains of an interrupted attempt.
pub async fn write_shards(
    world: &World,
    dir: &Path,
    options: &BrokerOptions,
    stored: &StoredBackup,
    mut written: impl FnMut(ShardId),
) -> Result<(), RestoreError> {
    for entry in &stored.manifest().shards {
        directories::remove_files(&*world.disk, &LocalShard::dir(dir, ShardId(entry.shard)))?;
    }
    layout::write(&*world.disk, dir)?;
    for entry in &stored.manifest().shards {
        let shard = ShardId(entry.shard);
        let role = if shard == ShardId::CATALOG { Role::Catalog } else { Role::Rows(shard) };
        let of_journal = journal_options(options, role);
        let opened = Journal::open(world, &LocalShard::dir(dir, shard), of_journal);
        let journal = opened.map_err(OpenError::from)?.journal;
        let done = write_shard(world, stored, entry, &journal).await;
        let closing = world.workers.blocking(tasks::Task::JournalClosing, move || journal.close());
        let _ = closing.await;
        done?;
        written(shard);
    }
    Ok(())
}

async fn write_shard(
    world: &World,
    stored: &StoredBackup,
    entry: &backup::ShardEntry,
    journal: &Journal,
) -> Result<(), RestoreError> {
    let number = entry.shard;
    let shard = ShardId(number);
    let refused = |source| match source {
        ImportError::NoRoom => RestoreError::NoRoom { shard },
        source => RestoreError::Import { shard, source },
    };
    let section = |place| stored.section(number, place);
    let (meta, machine): (Bytes, Bytes) = (section(0)?, section(1)?);
    let LogId { index, term, leader } = entry.snapshot;
    let id = EntryId { term, leader, index };
    let mut import = journal.import().map_err(refused)?;
    import.expect(id, &section(2)?, &section(3)?).map_err(refused)?;
    while let Some(segment) = import.next_segment() {
        for piece in stored.segment(number, segment)? {
            import.push(piece?).map_err(refused)?;
        }
        import.finish_segment().map_err(refused)?;
    }
    let received = ReceivedSections { id, meta, machine };
    if !import.has_room(&received) {
        return Err(RestoreError::NoRoom { shard });
    }
    let installed =
        journal.install(world, import, received, ReceiverState::default(), |switch| switch()).await;
    installed.map_err(refused)?;
    let failed = |source| RestoreError::Journal { shard, source };
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for entries in stored.log(entry)? {
        for entry in entries? {
            bytes += entry.size();
            waiting.push(entry);
        }
        if bytes >= PROPOSAL_BYTES_MAX {
            append(journal, std::mem::take(&mut waiting)).await.map_err(failed)?;
            bytes = 0;
        }
    }
    append(journal, waiting).await.map_err(failed)
}

/// Durable on return.
async fn append(journal: &Journal, entries: Vec<Encoded>) -> Result<(), JournalFailed> {
    let (reply, durable) = oneshot::channel();
    journal.append_encoded(entries, move |result| drop(reply.send(result)))?;
    durable.await.unwrap_or(Err(JournalFailed::Closed))
}
