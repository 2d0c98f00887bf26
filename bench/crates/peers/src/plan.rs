//! What a system must say about itself so that one piece of code installs and runs all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tier::Tier;

use crate::install::Installer;
use crate::launch::Launch;
use crate::{Endpoint, FolderError, InstallError, Peer, StartError};

/// One system: a file in `systems` each.
pub(crate) trait System: Sync {
    fn peer(&self) -> &'static Peer;

    /// Puts the software where the installer says. The version that came, if it is not known before.
    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError>;

    /// The system's own program by which a running server is asked and told things; arguments are
    /// the caller's.
    fn console(&self, _: &Site) -> Result<Option<Command>, StartError> {
        Ok(None)
    }

    /// Writes the configuration, prepares empty data folders, and says what to start. Run again on
    /// data that is there, it leaves the data as it is.
    fn plan(&self, site: &Site) -> Result<Plan, StartError>;
}

/// Where a system is to run, and how.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) peer: &'static Peer,
    pub(crate) software: PathBuf,
    /// Configuration, logs and data of all nodes are below.
    pub(crate) home: PathBuf,
    pub(crate) tier: Tier,
    pub(crate) nodes: u32,
    /// Further arguments of the server, for those that take any.
    pub(crate) arguments: Vec<String>,
}

impl Site {
    /// One that is somewhere.
    #[cfg(test)]
    pub(crate) fn somewhere(peer: &'static Peer, tier: Tier, nodes: u32) -> Self {
        let (software, home) = ("/s".into(), "/h".into());
        Self { peer, software, home, tier, nodes, arguments: Vec::new() }
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        1..=self.nodes
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.nodes > 1
    }

    pub(crate) fn port(&self, purpose: &str, node: u32) -> u16 {
        self.peer.port(purpose, node)
    }

    /// `127.0.0.1:PORT`.
    pub(crate) fn address(&self, purpose: &str, node: u32) -> String {
        format!("127.0.0.1:{}", self.port(purpose, node))
    }

    pub(crate) fn log(&self, role: &str, node: u32) -> PathBuf {
        self.home.join("log").join(format!("{role}-{node}.log"))
    }

    /// A node's data, made if it is not there. One node's data is never taken for a cluster's.
    pub(crate) fn data(&self, node: u32) -> Result<PathBuf, FolderError> {
        folder(self.data_root().join(format!("node-{node}")))
    }

    pub(crate) fn data_root(&self) -> PathBuf {
        self.home.join("data").join(format!("of-{}", self.nodes))
    }

    /// A node's configuration, made if it is not there.
    pub(crate) fn config(&self, node: u32) -> Result<PathBuf, FolderError> {
        folder(self.home.join("config").join(format!("node-{node}")))
    }
}

/// A folder, made if it is not there.
pub(crate) fn folder(path: PathBuf) -> Result<PathBuf, FolderError> {
    std::fs::create_dir_all(&path).map_err(FolderError::new("create", &path))?;
    Ok(path)
}

pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), FolderError> {
    std::fs::write(path, text).map_err(FolderError::new("write", path))
}

pub(crate) fn read(path: &Path) -> Result<String, FolderError> {
    std::fs::read_to_string(path).map_err(FolderError::new("read", path))
}

/// What to start, and what there is when it runs.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Started before all nodes, and not counted as part of any: a name server, a port mapper.
    pub(crate) helpers: Vec<Launch>,
    /// One for each node, in order.
    pub(crate) nodes: Vec<Launch>,
    /// Run when all nodes serve, and must go well: that they are one cluster, say.
    pub(crate) check: Option<Command>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) settings: BTreeMap<String, String>,
}

impl Plan {
    /// Of one process a node, and nothing else.
    pub(crate) fn of(nodes: Vec<Launch>, endpoints: Vec<Endpoint>) -> Self {
        Self {
            helpers: Vec::new(),
            nodes,
            check: None,
            endpoints,
            user: None,
            password: None,
            settings: BTreeMap::new(),
        }
    }

    pub(crate) fn with_settings(mut self, settings: BTreeMap<String, String>) -> Self {
        self.settings.extend(settings);
        self
    }
}
