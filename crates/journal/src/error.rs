//! Errors, one type per operation. Each names the place and the remedy.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// The journal stopped for good. A failed write or sync is never retried: the kernel may have
/// dropped the pages and report success the next time. The node stops; recovery after a restart
/// establishes the content of the disk.
#[derive(Clone, Debug, Error)]
pub enum JournalFailed {
    #[error("journal: {operation} failed in {}: {source}", file.display())]
    Io { operation: &'static str, file: PathBuf, source: Arc<io::Error> },
    #[error("journal: {file} is damaged at {position}: {what}", file = file.display())]
    Damaged { file: PathBuf, position: u64, what: &'static str },
    /// A thread of the journal panicked; its message is in the log.
    #[error("journal: its thread {thread} panicked")]
    Panicked { thread: &'static str },
    #[error("journal: closed")]
    Closed,
}

impl JournalFailed {
    pub(crate) fn io(operation: &'static str, file: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { operation, file: file.into(), source: Arc::new(source) }
    }
}

/// Why a journal was not opened. Nothing was changed then.
#[derive(Debug, Error)]
pub enum OpenError {
    #[error("{} is in use by another process", dir.display())]
    InUse { dir: PathBuf },
    #[error("cannot {operation} {}: {source}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} is damaged at byte {position}: {what}. Complete entries follow, so nothing was cut; \
         restore the file from a copy, or look at it with `postroad journal inspect {}`",
        file.display(), dir.display()
    )]
    Damaged { dir: PathBuf, file: PathBuf, position: u64, what: String },
    #[error("{}: {what}", file.display())]
    Unusable { file: PathBuf, what: String },
    #[error("option {name}: {what}")]
    Option { name: &'static str, what: String },
}

impl ReadError {
    /// Whether the stored bytes are lost or changed: a retry does not help.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Io { source, .. } => crate::damage::is_loss(source),
            Self::NoSuchEntry { .. } | Self::Closed => false,
        }
    }
}

impl OpenError {
    /// Whether durable bytes are lost or changed: a retry does not help.
    pub fn is_loss(&self) -> bool {
        match self {
            Self::Damaged { .. } | Self::Unusable { .. } => true,
            Self::Io { source, .. } => crate::damage::is_loss(source),
            Self::InUse { .. } | Self::Option { .. } => false,
        }
    }
}

/// Why stored bytes could not be read.
#[derive(Clone, Debug, Error)]
pub enum ReadError {
    /// Covered by a snapshot, or never appended.
    #[error("log entry {index} is not in the journal (it holds {first} to {last})")]
    NoSuchEntry { index: u64, first: u64, last: u64 },
    #[error("cannot read {} at {position}: {source}", file.display())]
    Io { file: PathBuf, position: u64, source: Arc<io::Error> },
    #[error("{} is damaged at {position}: {what}", file.display())]
    Damaged { file: PathBuf, position: u64, what: &'static str },
    #[error("the journal is closed")]
    Closed,
}
