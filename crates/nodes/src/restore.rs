//! A node is made of a backup: a cluster of its own, which others join with empty directories.
//!
//! The backup is looked through before anything is written. Its shards fit together, so that nothing has to be put right
//! between them as after a [recovery](crate::recovery); the same steps are made all the same, since numbers that the former
//! cluster gave out after the backup are not to be given out again.

use std::path::Path;

use ::backup::{Manifest, Stored, StoredError};
use base::ShardId;
use broker::recovery::{RecoverError, Recovered};
use broker::restore::{RestoreError as ShardsError, write_shards};
use broker::{BrokerOptions, Catalog};
use cluster::{DirectoryError, Vacant, VacantError};
use documents::{Change, Expect, StoreError};
use uuid::Uuid;
use world::World;

use crate::recovery::{of_node, others_removed};
use crate::registry::{Can, Registration, SPACE, Standing};

/// What a backup has, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    pub manifest: Manifest,
    /// The new cluster; `None` where nothing was written.
    pub cluster: Option<Uuid>,
    /// Offsets of groups that were set back to the ends of partitions.
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
    /// The backup's cut was not one.
    #[error(
        "the shards of the backup do not fit together ({0}): this is a fault of the program. The directory is not complete, \
         and its node does not start; keep the backup, and tell whoever looks after the program"
    )]
    NoCut(String),
}

/// Looks through a backup, and whether the directory could take it. Writes nothing.
pub fn look(world: &World, dir: &Path, from: &Path) -> Result<Restored, RestoreError> {
    let stored = Stored::open(&world.disk, from)?;
    stored.check()?;
    Vacant::look(world, dir)?;
    Ok(Restored { manifest: stored.manifest().clone(), cluster: None, offsets_set_back: 0 })
}

/// Makes the directory of a node, reached at `address`, of a backup. After an interruption it is to be done again.
pub async fn restore(
    world: &World,
    dir: &Path,
    from: &Path,
    address: &str,
    options: BrokerOptions,
    written: impl FnMut(ShardId),
) -> Result<Restored, RestoreError> {
    let manifest = look(world, dir, from)?.manifest;
    let stored = Stored::open(&world.disk, from)?;
    let restoring = Vacant::claim(world, dir).await?.begin(address).await?;
    let (node, directory) = (restoring.node(), restoring.directory());
    let options = of_node(options, node).map_err(|error| RestoreError::NoCut(error.to_string()))?;
    write_shards(world, dir, &options, &stored, written).await?;
    let mut boot = 0;
    let change = |catalog: &Catalog| {
        boot = last_boot(catalog, node);
        let mut change = others_removed(catalog, node)?;
        let (address, standing) = (address.to_owned(), Standing::Active);
        let here =
            Registration { directory, boot, address, standing, can: Can::default(), rack: None };
        change.put(SPACE, node.to_string(), &here, Expect::Anything)?;
        Ok::<_, StoreError>(Change::into_inner(change))
    };
    let recovered = broker::recovery::recover(world, dir, &options, address, change).await?;
    let Recovered { gaps, topics_dropped, offsets_set_back, resumed } = recovered?;
    if !gaps.is_empty() || topics_dropped > 0 || resumed {
        let what = format!("{gaps:?}, {topics_dropped} topics, channels put right: {resumed}");
        return Err(RestoreError::NoCut(what));
    }
    let cluster = Some(restoring.cluster());
    restoring.finish(boot).await?;
    Ok(Restored { manifest, cluster, offsets_set_back })
}

/// The last start of the former node of this number that the catalog knows of.
fn last_boot(catalog: &Catalog, node: u64) -> u64 {
    let name = node.to_string();
    let document = catalog.documents(SPACE).find(|(known, _)| **known == *name);
    let registration =
        document.and_then(|(_, it)| serde_json::from_slice::<Registration>(&it.body).ok());
    registration.map_or(0, |registration| registration.boot)
}
