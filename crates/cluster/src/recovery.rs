//! The directory of a node that goes on without the majority of its cluster.
//!
//! It becomes a cluster of its own, with an id of its own: so nobody of the former one is let in as who it was,
//! whatever becomes of those that were called lost. The file `node` says so first, and that the rest is not done yet;
//! the node does not start before it is.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use links::NodeId;
use uuid::Uuid;
use world::World;

use crate::directory::{Claimed, Content, Directory, DirectoryError, Record, claim};

/// The directory of a node that has survived. Nobody else uses it while this is there.
pub struct Survivor {
    world: World,
    claimed: Claimed,
    content: Content,
}

/// A directory whose shards are brought into order.
#[derive(Debug)]
pub struct Recovering {
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

impl fmt::Debug for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survivor").field("node", &self.content.node).finish_non_exhaustive()
    }
}

impl Survivor {
    pub async fn claim(world: &World, dir: &Path) -> Result<Self, SurvivorError> {
        let not_a_member = || SurvivorError::NotAMember { dir: dir.display().to_string() };
        // Claiming makes a directory that is not there.
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

    /// Whether it was begun and not ended.
    pub fn is_recovering(&self) -> bool {
        self.content.is_recovering
    }

    /// From now on the directory is of a new cluster, of this node alone, and its node does not start.
    pub async fn begin(self) -> Result<Recovering, DirectoryError> {
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
        Ok(Recovering { directory: claimed.write(content).await?, cluster: known })
    }
}

impl Recovering {
    /// The id of the new cluster.
    pub fn cluster(&self) -> Uuid {
        self.cluster
    }

    /// All of the directory is in order: its node may start.
    pub async fn finish(self) -> Result<(), DirectoryError> {
        self.directory.change(|content| content.is_recovering = false).await
    }
}
