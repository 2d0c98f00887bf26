//! Creates a node from a backup: a cluster of its own, which other nodes join with empty directories.
//!
//! The backup is verified before anything is written. Its shards fit together, so that they need no repair as after a
//! [recovery](crate::recovery). The same steps run nevertheless, because numbers that the former cluster assigned after
//! the backup must not be reused.

use std::path::Path;

use ::backup::{Manifest, StoredBackup, StoredError};
use base::ShardId;
use broker::recovery::{RecoverError, RecoveryOutcome};
use broker::restore::{RestoreError as ShardsError, write_shards};
use broker::{BrokerOptions, Catalog};
use cluster::{DirectoryError, VacantDirectory, VacantError};
use documents::{Change, StoreError, WritePrecondition};
use uuid::Uuid;
use world::World;

use crate::recovery::{node_options, others_removed};
use crate::registry::{NodeLifecycle, ProgramLevels, Registration, SPACE};

/// Contents of a backup, and the outcome of its restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestoreReport {
    pub manifest: Manifest,
    /// The new cluster; `None`: nothing was written.
    pub cluster: Option<Uuid>,
    /// Committed offsets that were reset to the ends of partitions.
    pub offsets_set_back: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error(transparent)]
    Stored(#[from] StoredError),
    #[error(transparent)]
    Vacant(#[from] VacantError),
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(transparent)]
    Shards(#[from] ShardsError),
    #[error(transparent)]
    Recover(#[from] RecoverError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The backup's cut was inconsistent.
    #[error(
        "the shards of the backup do not fit together ({0}): this is a fault of the program. The directory is not complete, \
         and its node does not start; keep the backup, and tell whoever looks after the program"
    )]
    NoCut(String),
}

/// Verifies a backup, and checks that the directory can take it. Writes nothing.
pub fn verify(world: &World, dir: &Path, from: &Path) -> Result<RestoreReport, RestoreError> {
    let stored = StoredBackup::open(&world.disk, from)?;
    stored.check()?;
    VacantDirectory::check(world, dir)?;
    Ok(RestoreReport { manifest: stored.manifest().clone(), cluster: None, offsets_set_back: 0 })
}

/// Creates the directory of a node, reached at `address`, from a backup. After an interruption, repeat it.
pub async fn restore(
    world: &World,
    dir: &Path,
    from: &Path,
    address: &str,
    options: BrokerOptions,
    written: impl FnMut(ShardId),
) -> Result<RestoreReport, RestoreError> {
    let manifest = verify(world, dir, from)?.manifest;
    let stored = StoredBackup::open(&world.disk, from)?;
    let restoring = VacantDirectory::claim(world, dir).await?.begin(address).await?;
    let (node, directory) = (restoring.node(), restoring.directory());
    let options =
        node_options(options, node).map_err(|error| RestoreError::NoCut(error.to_string()))?;
    write_shards(world, dir, &options, &stored, written).await?;
    let mut boot = 0;
    let change = |catalog: &Catalog| {
        boot = last_boot(catalog, node);
        let mut change = others_removed(catalog, node)?;
        let (address, standing) = (address.to_owned(), NodeLifecycle::Active);
        let here = Registration {
            directory,
            boot,
            address,
            standing,
            can: ProgramLevels::default(),
            rack: None,
        };
        change.put(SPACE, node.to_string(), &here, WritePrecondition::Anything)?;
        Ok::<_, StoreError>(Change::into_inner(change))
    };
    let recovered = broker::recovery::recover(world, dir, &options, address, change).await?;
    let RecoveryOutcome { gaps, topics_dropped, offsets_set_back, resumed } = recovered?;
    if !gaps.is_empty() || topics_dropped > 0 || resumed {
        let what = format!("{gaps:?}, {topics_dropped} topics, channels put right: {resumed}");
        return Err(RestoreError::NoCut(what));
    }
    let cluster = Some(restoring.cluster());
    restoring.finish(boot).await?;
    Ok(RestoreReport { manifest, cluster, offsets_set_back })
}

/// The last boot of the former node of this number, according to the catalog.
fn last_boot(catalog: &Catalog, node: u64) -> u64 {
    let name = node.to_string();
    let document = catalog.documents(SPACE).find(|(known, _)| **known == *name);
    let registration =
        document.and_then(|(_, it)| serde_json::from_slice::<Registration>(&it.body).ok());
    registration.map_or(0, |registration| registration.boot)
}
