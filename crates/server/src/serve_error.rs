//! Errors that prevent the start of a node, or end it.

use std::path::PathBuf;

use cli::CommandError;

use crate::listeners::TakenPorts;
use crate::log_ins::UnprotectedListener;
use crate::settings::SettingsError;
use crate::tls_files::TlsFilesError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("{0}")]
    Logging(String),
    #[error("the runtime could not start: {0}")]
    Runtime(std::io::Error),
    #[error("{0}")]
    Open(Box<broker::OpenError>),
    #[error("{0}")]
    Member(Box<cluster::NodeStartError>),
    #[error("the peers' secret in {path} cannot be used: {reason}")]
    PeerSecret { path: PathBuf, reason: String },
    #[error("{0}")]
    Listen(TakenPorts),
    #[error("the data directory {path} {problem}", path = path.display())]
    Data { path: PathBuf, problem: String },
    #[error("the certificate for TLS cannot be used: {0}")]
    Certificate(#[from] TlsFilesError),
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    #[error("what --kafka-config says cannot be set: {0}")]
    Config(broker::ExecuteError),
    #[error("the operators' token cannot be read or made: {0}")]
    OperatorToken(std::io::Error),
    #[error("what clients have declared cannot be read: {0}")]
    Topology(#[from] topology::OpenError),
    #[error("what is kept of users and quotas cannot be read: {0}")]
    Users(#[from] access::OpenError),
    #[error(transparent)]
    Unprotected(#[from] UnprotectedListener),
    #[error("{0}")]
    Injection(String),
    #[error("the thread that ends the process when a part of it fails could not start: {0}")]
    Exit(std::io::Error),
    #[error("stopped: {0}; what was acknowledged is safe on disk, start again to recover it")]
    Failed(String),
    #[error(
        "node {node} was removed from its cluster, and the other nodes refuse it; to have this machine in the cluster \
         again, start a new node with an empty data directory and `--join`"
    )]
    Removed { node: u32 },
    #[error("{0}")]
    Outdated(String),
}

impl From<broker::OpenError> for ServeError {
    fn from(error: broker::OpenError) -> Self {
        Self::Open(Box::new(error))
    }
}

impl From<cluster::NodeStartError> for ServeError {
    fn from(error: cluster::NodeStartError) -> Self {
        Self::Member(Box::new(error))
    }
}

impl From<ServeError> for CommandError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Settings(_)
            | ServeError::Unprotected(_)
            | ServeError::Certificate(_)
            | ServeError::Logging(_) => CommandError::user(error),
            _ => CommandError::server(error),
        }
    }
}
