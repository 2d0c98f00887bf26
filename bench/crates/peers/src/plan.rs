//! Interface of a system, by which common code installs and runs all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use tier::Tier;

use crate::install::Installer;
use crate::launch::Launch;
use crate::{Endpoint, FolderError, InstallError, Peer, StartError};

/// One system, implemented in a file of `systems`.
pub(crate) trait System: Sync {
    fn peer(&self) -> &'static Peer;

    /// Installs the software into the installer's folder. Returns the version, if it is not known
    /// before.
    fn install(&self, installer: &Installer<'_>) -> Result<Option<String>, InstallError>;

    /// The system's own admin program for a running server; the caller adds arguments.
    fn console(&self, _: &Site) -> Result<Option<Command>, StartError> {
        Ok(None)
    }

    /// Writes the configuration, prepares empty data folders, and returns the processes to start.
    /// Existing data is left as it is.
    fn plan(&self, site: &Site) -> Result<Plan, StartError>;
}

/// Folders and parameters of a system's run.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) peer: &'static Peer,
    pub(crate) software: PathBuf,
    /// Contains configuration, logs and data of all nodes.
    pub(crate) home: PathBuf,
    pub(crate) tier: Tier,
    pub(crate) nodes: u32,
    /// Further arguments of the server, for those that accept any.
    pub(crate) arguments: Vec<String>,
}

impl Site {
    /// A site with dummy folders.
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

    /// A node's data folder, created if needed. A single node and a cluster have separate data.
    pub(crate) fn data(&self, node: u32) -> Result<PathBuf, FolderError> {
        folder(self.data_root().join(format!("node-{node}")))
    }

    pub(crate) fn data_root(&self) -> PathBuf {
        self.home.join("data").join(format!("of-{}", self.nodes))
    }

    /// A node's configuration folder, created if needed.
    pub(crate) fn config(&self, node: u32) -> Result<PathBuf, FolderError> {
        folder(self.home.join("config").join(format!("node-{node}")))
    }
}

/// Creates the folder if needed.
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

/// Processes to start, and the endpoints that they serve.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Started before all nodes, and not part of any: a name server, a port mapper.
    pub(crate) helpers: Vec<Launch>,
    /// One for each node, in order.
    pub(crate) nodes: Vec<Launch>,
    /// Run when all nodes serve, and must succeed: for example, that they form one cluster.
    pub(crate) check: Option<Command>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) settings: BTreeMap<String, String>,
}

impl Plan {
    /// A plan of one process for each node, and nothing else.
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
