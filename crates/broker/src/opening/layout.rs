//! The places of a node's shards in its data directory, and the conversion of a directory from before the catalog had
//! a shard of its own.
//!
//! ```text
//! layout     the order in use
//! cluster    the cluster's identity
//! node       the node's number in its cluster (crate `cluster`); none where it runs alone
//! shard-0    the catalog
//! shard-1..  shards with rows
//! ```
//!
//! Before, `shard-0` had the catalog and all rows in one log. It becomes `shard-1`, whose next snapshot has the rows
//! alone; a new `shard-0` begins with a snapshot of the catalog. Each step leaves a state from which the next start
//! resumes, wherever it is interrupted:
//!
//! | found | action |
//! |---|---|
//! | a `layout` | nothing |
//! | neither shard | a new directory: `layout` is written |
//! | `shard-0` alone | it is renamed to `shard-1` |
//! | `shard-1` alone | the catalog is written to `shard-0.new`, which is renamed to `shard-0` |
//! | both | `shard-1` saves a snapshot of its rows, unless it has; `layout` is written |

use std::io::{self, IoSlice};
use std::path::Path;

use base::ShardId;
use base::checksum::crc32c;
use machine::Role;
use shard::LocalShard;
use world::Disk;
use world::disk::replace;

use super::directories::{failed, has_files, remove_files};
use super::local_shard::{OpeningContext, open_replica};
use crate::error::OpenError;

const FILE: &str = "layout";
const MAGIC: &[u8; 8] = b"PRlayou1";
/// The order that this version writes. The first one, without a file, had one shard for everything.
const ORDER: u32 = 2;
/// Magic, order, checksum of both.
const LEN: usize = 8 + 4 + 4;

/// Converts the directory if its shards are not at their places yet.
pub(crate) async fn prepare(context: &OpeningContext<'_>) -> Result<(), OpenError> {
    let (disk, dir) = (&*context.world.disk, context.dir);
    if is_known(disk, dir)? {
        return Ok(());
    }
    let catalog = LocalShard::dir(dir, ShardId::CATALOG);
    let rows = LocalShard::dir(dir, ShardId::FIRST);
    let has_rows = has_files(disk, &rows)?;
    if has_files(disk, &catalog)? || has_rows {
        tracing::info!(
            "this data directory was written before the catalog had a shard of its own: it is \
             brought into the new order; an older version cannot open it afterwards"
        );
        if !has_rows {
            rename_dir(disk, dir, &catalog, &rows)?;
        }
        split(context, &catalog, &rows).await?;
    }
    write(disk, dir)
}

/// Splits the state in `rows`, unless that is done.
async fn split(context: &OpeningContext<'_>, catalog: &Path, rows: &Path) -> Result<(), OpenError> {
    let (disk, dir) = (&*context.world.disk, context.dir);
    let (shard, consensus) = open_replica(context, rows, Role::Whole, None).await?;
    if shard.role() == Role::Whole {
        let whole = shard.state().clone();
        let (of_catalog, of_rows) = whole.split();
        if !has_files(disk, catalog)? {
            let new = catalog.with_extension("new");
            remove_files(disk, &new)?;
            save(context, &new, of_catalog).await?;
            rename_dir(disk, dir, &new, catalog)?;
        }
        shard.replace(of_rows);
        consensus.snapshot_now().await.map_err(unsaved)?;
    }
    consensus.shutdown().await;
    shard.journal.close();
    Ok(())
}

/// Creates a shard that begins with this state.
async fn save(
    context: &OpeningContext<'_>,
    dir: &Path,
    state: machine::State,
) -> Result<(), OpenError> {
    let (shard, consensus) = open_replica(context, dir, state.role(), None).await?;
    shard.replace(state);
    consensus.snapshot_now().await.map_err(unsaved)?;
    consensus.shutdown().await;
    shard.journal.close();
    Ok(())
}

fn unsaved(error: consensus::SnapshotError) -> OpenError {
    let source = io::Error::other(error);
    OpenError::Io { doing: "saving a snapshot of the divided state".to_owned(), source }
}

// ------------------------------------------------------------------------------------- directories

fn rename_dir(disk: &dyn Disk, dir: &Path, from: &Path, to: &Path) -> Result<(), OpenError> {
    let renamed = disk.rename(from, to).and_then(|()| disk.sync_dir(dir));
    renamed.map_err(|source| failed("renaming", from, source))
}

// ------------------------------------------------------------------------------------------ the file

fn is_known(disk: &dyn Disk, dir: &Path) -> Result<bool, OpenError> {
    let names = disk.list(dir).map_err(|source| failed("reading", dir, source))?;
    if !names.iter().any(|name| name == FILE) {
        return Ok(false);
    }
    let path = dir.join(FILE);
    let reading = |source| failed("reading", &path, source);
    let mut bytes = [0; LEN];
    let file = disk.open(&path, false).map_err(reading)?;
    let length = file.read_at(&mut bytes, 0).map_err(reading)?;
    let (content, checksum) = bytes.split_at(LEN - 4);
    if length != LEN || !content.starts_with(MAGIC) || checksum != crc32c(content).to_le_bytes() {
        return Err(OpenError::Layout { path, reason: "it is damaged".to_owned() });
    }
    let order = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if order != ORDER {
        let reason = format!("order {order} is not known here, only {ORDER}: use a later version");
        return Err(OpenError::Layout { path, reason });
    }
    Ok(true)
}

pub(crate) fn write(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(&ORDER.to_le_bytes());
    content.extend_from_slice(&crc32c(&content).to_le_bytes());
    let written = replace(disk, dir, FILE, &mut [IoSlice::new(&content)]);
    written.map_err(|source| failed("writing", &dir.join(FILE), source))
}
