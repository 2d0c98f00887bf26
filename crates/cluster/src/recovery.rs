//! The directory of a node that continues without the majority of its cluster.
//!
//! It becomes a cluster of its own with a new id. So no node of the former cluster is admitted under its old
//! identity, whatever happens to the nodes that were declared lost. The file `node` records that first, and that
//! the recovery is not complete. The node does not start before it is complete.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use links::NodeId;
use uuid::Uuid;
use world::World;

use crate::directory::{Content, Directory, DirectoryError, LockedDirectory, Record, claim};

/// The directory of a surviving node, locked while this exists.
pub struct SurvivorDirectory {
    world: World,
    claimed: LockedDirectory,
    content: Content,
}

/// A directory whose shards are being recovered.
#[derive(Debug)]
pub struct DirectoryRecovery {
    directory: Directory,
    cluster: Uuid,
}

#[derive(Debug, thiserror::Error)]
pub enum SurvivorError {
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    #[error(
        "{dir} is of no node of a founded cluster: name the directory that `postroad serve --data` names on a node \
         that has survived"
    )]
    NotAMember { dir: String },
}

impl fmt::Debug for SurvivorDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SurvivorDirectory")
            .field("node", &self.content.node)
            .finish_non_exhaustive()
    }
}

impl SurvivorDirectory {
    pub async fn claim(world: &World, dir: &Path) -> Result<Self, SurvivorError> {
        let not_a_member = || SurvivorError::NotAMember { dir: dir.display().to_string() };
        // Locking would create an absent directory.
        let listed = world.disk.list(dir);
        if !listed.is_ok_and(|names| names.iter().any(|name| name == crate::MEMBER_FILE)) {
            return Err(not_a_member());
        }
        let (claimed, content) = claim(world, dir).await?;
        let is_member = |it: &Content| it.is_founded && it.cluster.is_some() && !it.is_restoring;
        let content = content.filter(is_member);
        let content = content.ok_or_else(not_a_member)?;
        Ok(Self { world: world.clone(), claimed, content })
    }

    pub fn node(&self) -> NodeId {
        self.content.node
    }

    /// `HOST:PORT` of its peer port.
    pub fn address(&self) -> Option<&str> {
        self.content.nodes.get(&self.content.node).map(|record| record.address.as_str())
    }

    /// The nodes of its cluster as it last knew them, with their addresses.
    pub fn nodes(&self) -> BTreeMap<u64, String> {
        self.content.nodes.iter().map(|(id, record)| (id.0, record.address.clone())).collect()
    }

    /// Whether a recovery was begun and not finished.
    pub fn is_recovering(&self) -> bool {
        self.content.is_recovering
    }

    /// Makes the directory that of a new cluster of this node alone, whose node does not start yet.
    pub async fn begin(self) -> Result<DirectoryRecovery, DirectoryError> {
        let Self { world, claimed, mut content } = self;
        let known = match content.cluster {
            Some(cluster) if content.is_recovering => cluster,
            _ => world.entropy.uuid(),
        };
        content.cluster = Some(known);
        content.is_recovering = true;
        content.joined = false;
        let (here, directory, boot) = (content.node, content.directory, content.boot);
        content.nodes.retain(|id, _| *id == here);
        content.nodes.entry(here).and_modify(|record: &mut Record| {
            (record.directory, record.boot) = (Some(directory), boot);
        });
        Ok(DirectoryRecovery { directory: claimed.write(content).await?, cluster: known })
    }
}

impl DirectoryRecovery {
    /// The id of the new cluster.
    pub fn cluster(&self) -> Uuid {
        self.cluster
    }

    /// The recovery is complete: its node may start.
    pub async fn finish(self) -> Result<(), DirectoryError> {
        self.directory.change(|content| content.is_recovering = false).await
    }
}
