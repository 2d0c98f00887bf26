//! The directory of a node that is restored from a backup.
//!
//! It belongs to a new cluster of this node alone, with a new id: nodes of the backed-up cluster are refused. The
//! file `node` records that first, and that the restore is not complete. The node does not start before it is
//! complete, and the next attempt restarts it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use thiserror::Error;
use uuid::Uuid;
use world::World;

use crate::directory::{
    Content, Directory, DirectoryError, LockedDirectory, MEMBER_FILE, Record, Records, claim,
};
use crate::seeds::FOUNDER;

/// A directory that is empty, except for the remains of an interrupted attempt. It is locked while this exists.
pub struct VacantDirectory {
    world: World,
    claimed: LockedDirectory,
    begun: Option<Content>,
}

/// A directory that is being restored.
#[derive(Debug)]
pub struct DirectoryRestore {
    directory: Directory,
    cluster: Uuid,
    id: Uuid,
}

#[derive(Debug, Error)]
pub enum VacantError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(
        "{dir} is not empty (it has {found:?}): name an empty directory, or one that is not there yet"
    )]
    NotEmpty { dir: String, found: String },
}

impl fmt::Debug for VacantDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VacantDirectory")
            .field("begun", &self.begun.is_some())
            .finish_non_exhaustive()
    }
}

/// Whether the name may be in an empty directory.
fn is_nothing(name: &str) -> bool {
    name == "LOCK" || name == "lost+found"
}

impl VacantDirectory {
    /// Whether it could be one. Creates nothing.
    pub fn check(world: &World, dir: &Path) -> Result<(), VacantError> {
        let names = match world.disk.list(dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(source) => {
                let doing = format!("reading {}", dir.display());
                return Err(DirectoryError::Io { doing, source }.into());
            }
            Ok(names) => names,
        };
        if names.iter().any(|name| name == MEMBER_FILE) {
            // Its content is read once it is locked.
            return Ok(());
        }
        match names.into_iter().find(|name| !is_nothing(name)) {
            Some(found) => Err(VacantError::NotEmpty { dir: dir.display().to_string(), found }),
            None => Ok(()),
        }
    }

    pub async fn claim(world: &World, dir: &Path) -> Result<Self, VacantError> {
        Self::check(world, dir)?;
        let (claimed, begun) = claim(world, dir).await?;
        if begun.as_ref().is_some_and(|begun| !begun.is_restoring) {
            let (dir, found) = (dir.display().to_string(), MEMBER_FILE.to_owned());
            return Err(VacantError::NotEmpty { dir, found });
        }
        Ok(Self { world: world.clone(), claimed, begun })
    }

    /// Makes the directory that of node 1 of a new cluster, reached at `address`, which does not start yet.
    pub async fn begin(self, address: &str) -> Result<DirectoryRestore, DirectoryError> {
        let Self { world, claimed, begun } = self;
        let begun = begun.and_then(|begun| Some((begun.cluster?, begun.directory)));
        let (cluster, id) = begun.unwrap_or_else(|| (world.entropy.uuid(), world.entropy.uuid()));
        let record = Record { address: address.to_owned(), directory: Some(id), boot: 0 };
        let nodes: Records = BTreeMap::from([(FOUNDER, record)]);
        let content = Content {
            cluster: Some(cluster),
            node: FOUNDER,
            directory: id,
            boot: 0,
            is_founded: true,
            joined: false,
            is_recovering: false,
            is_restoring: true,
            nodes,
        };
        Ok(DirectoryRestore { directory: claimed.write(content).await?, cluster, id })
    }
}

impl DirectoryRestore {
    /// The id of the new cluster.
    pub fn cluster(&self) -> Uuid {
        self.cluster
    }

    /// The number of its node.
    pub fn node(&self) -> u64 {
        FOUNDER.0
    }

    /// The id of the directory.
    pub fn directory(&self) -> Uuid {
        self.id
    }

    /// The restore is complete: its node may start. It counts its starts from `boot` on, the last boot of this
    /// number in the backup. So state that ends with a start of a node does not carry over.
    pub async fn finish(self, boot: u64) -> Result<(), DirectoryError> {
        let finish = |content: &mut Content| {
            content.is_restoring = false;
            content.boot = boot;
            content.nodes.values_mut().for_each(|record| record.boot = boot);
        };
        self.directory.change(finish).await
    }
}
