//! Errors: one line each, with a remedy. Lines of a log are kept in `details`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;
use tier::Tier;

/// A file or folder of the suite cannot be used.
#[derive(Debug, Error)]
#[error("cannot {what} {path}: {why}", path = path.display())]
pub struct FolderError {
    pub what: &'static str,
    pub path: PathBuf,
    pub why: io::Error,
}

impl FolderError {
    pub(crate) fn new(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |why| Self { what, path, why }
    }
}

#[derive(Debug, Error)]
#[error("there is no peer {name:?}; there are {}", known.join(", "))]
pub struct UnknownPeer {
    pub name: String,
    pub known: Vec<&'static str>,
}

#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{} is in use by another postroad-bench; wait for it, or name another folder with --peers-dir", path.display())]
    InUse { path: PathBuf },
    #[error("{} has a space in it, which the scripts of RabbitMQ and Pulsar cannot take; name another folder with --peers-dir", path.display())]
    Space { path: PathBuf },
    #[error(transparent)]
    Folder(#[from] FolderError),
}

#[derive(Debug, Error)]
pub enum InstallError {
    #[error(transparent)]
    Unknown(#[from] UnknownPeer),
    #[error("{peer} needs {what}: {remedy}")]
    Missing { peer: &'static str, what: String, remedy: &'static str },
    #[error("{peer} runs; stop it before it is installed anew")]
    Running { peer: &'static str },
    #[error("{what} ended with {status}; read {}", log.display())]
    Command { what: String, status: String, log: PathBuf, details: Vec<String> },
    #[error("{what} cannot be run: {why}")]
    NotRun { what: String, why: io::Error },
    #[error("the installation of {peer} lacks {}", path.display())]
    Incomplete { peer: &'static str, path: PathBuf },
    #[error("{file}: {why}")]
    Program { file: PathBuf, why: &'static str },
    #[error(transparent)]
    Folder(#[from] FolderError),
}

#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Unknown(#[from] UnknownPeer),
    #[error("{peer} is not installed; run `postroad-bench peers install {peer}`")]
    NotInstalled { peer: &'static str },
    #[error("{peer} runs already at {tier} on {nodes} node(s); stop it first")]
    Running { peer: &'static str, tier: Tier, nodes: u32 },
    #[error("{peer} cannot hold {asked} ({meaning}) on {nodes} node(s); it can: {can}", meaning = asked.meaning())]
    Tier { peer: &'static str, asked: Tier, nodes: u32, can: String },
    #[error("{peer} runs here on {can} node(s), not on {asked}")]
    Nodes { peer: &'static str, asked: u32, can: &'static str },
    #[error("port {port}, which {peer} needs, is taken by {by}; end that first")]
    PortTaken { peer: &'static str, port: u16, by: String },
    #[error("{peer} cannot run as root, and the user {user} may not enter {}; name another folder with --peers-dir", path.display())]
    Unreachable { peer: &'static str, user: &'static str, path: PathBuf },
    #[error("{what} cannot be run: {why}")]
    NotRun { what: String, why: io::Error },
    #[error("{what} ended with {status}; read {}", log.display())]
    Command { what: String, status: String, log: PathBuf, details: Vec<String> },
    #[error("{peer} node {node} ended while it started; read {}", log.display())]
    Ended { peer: &'static str, node: u32, log: PathBuf, details: Vec<String> },
    #[error("{peer} node {node} did not serve within {within:?}; read {}", log.display())]
    NotReady { peer: &'static str, node: u32, within: Duration, log: PathBuf, details: Vec<String> },
    #[error("{peer} has no node {node} that was started")]
    NoNode { peer: &'static str, node: u32 },
    #[error("{peer} node {node} still runs; kill it first")]
    NodeRuns { peer: &'static str, node: u32 },
    #[error("{peer}: {file} does not look as expected: {why}", file = file.display())]
    Distribution { peer: &'static str, file: PathBuf, why: &'static str },
    #[error("the server did not stop: {0}")]
    Stop(#[from] Box<StopError>),
    #[error(transparent)]
    Folder(#[from] FolderError),
}

#[derive(Debug, Error)]
pub enum StopError {
    #[error(transparent)]
    Unknown(#[from] UnknownPeer),
    #[error("{peer} does not run, or was not started from this folder")]
    NotRunning { peer: &'static str },
    #[error("{peer} has no node {node} that runs")]
    NoNode { peer: &'static str, node: u32 },
    #[error("{peer} runs; stop it before its data is wiped")]
    Runs { peer: &'static str },
    #[error("process {pid} ({peer}) does not end, even when killed: {why}")]
    DoesNotEnd { peer: &'static str, pid: u32, why: String },
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// A peer's own disk is unavailable.
#[derive(Debug, Error)]
pub enum DiskError {
    #[error(transparent)]
    Unknown(#[from] UnknownPeer),
    #[error("only root can mount a disk")]
    NotRoot,
    #[error("{peer} runs; stop it before it gets another disk")]
    Runs { peer: &'static str },
    #[error("cannot mount {}: {why}", path.display())]
    Mount { path: PathBuf, why: io::Error },
    #[error("cannot make a file system in {}: {why}", path.display())]
    Format { path: PathBuf, why: io::Error },
    #[error("cannot cut {} off: {why}", path.display())]
    Cut { path: PathBuf, why: io::Error },
    #[error(transparent)]
    Stop(#[from] StopError),
    #[error(transparent)]
    Folder(#[from] FolderError),
}

/// The error followed by these lines, marked as quoted.
fn quoting(error: &impl std::fmt::Display, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("\n    | {line}")).collect();
    format!("{error}{lines}")
}

impl InstallError {
    /// The error, and the last output lines of the failed command.
    pub fn with_details(&self) -> String {
        quoting(self, self.details())
    }

    /// The last output lines of the failed command.
    pub fn details(&self) -> &[String] {
        match self {
            Self::Command { details, .. } => details,
            _ => &[],
        }
    }
}

impl StartError {
    /// The error, and the last lines of the log.
    pub fn with_details(&self) -> String {
        quoting(self, self.details())
    }

    /// The last lines of the log.
    pub fn details(&self) -> &[String] {
        match self {
            Self::Command { details, .. }
            | Self::Ended { details, .. }
            | Self::NotReady { details, .. } => details,
            _ => &[],
        }
    }
}
