//! An existing backup: opened, checked and read.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use journal::Encoded;
use thiserror::Error;
use world::Disk;
use world::disk::read_whole;

use crate::files::{Frames, fault};
use crate::manifest::{
    INCOMPLETE, MANIFEST, Manifest, SECTIONS, ShardEntry, log_file, section_file, segment_file,
};

/// Why a directory has no backup that can be restored.
#[derive(Debug, Error)]
pub enum StoredError {
    #[error(
        "{dir} has a backup that was interrupted, and is not complete: take another one with `postroad backup {dir}`, \
         which begins anew"
    )]
    Incomplete { dir: String },
    #[error("{dir} has no backup: it has no file {MANIFEST}")]
    NoBackup { dir: String },
    #[error("{} is damaged: {what}; restore it from a copy of the backup, or take another backup", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("{} cannot be read: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// A complete backup. Clones share it.
#[derive(Clone, Debug)]
pub struct StoredBackup {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    manifest: Arc<Manifest>,
}

impl StoredBackup {
    /// Reads the manifest only. Blocking.
    pub fn open(disk: &Arc<dyn Disk>, dir: &Path) -> Result<Self, StoredError> {
        let path = dir.join(MANIFEST);
        let bytes = match read_whole(&**disk, &path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let is_begun =
                    disk.list(dir).is_ok_and(|names| names.iter().any(|it| it == INCOMPLETE));
                let dir = dir.display().to_string();
                return Err(match is_begun {
                    true => StoredError::Incomplete { dir },
                    false => StoredError::NoBackup { dir },
                });
            }
            Err(source) => return Err(StoredError::Io { path, source }),
        };
        let manifest = Manifest::decode(&bytes);
        let manifest = manifest.map_err(|what| StoredError::Damaged { path, what })?;
        Ok(Self { disk: Arc::clone(disk), dir: dir.to_owned(), manifest: Arc::new(manifest) })
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Verifies every file against the manifest. Blocking: reads all of them.
    pub fn check(&self) -> Result<(), StoredError> {
        let mut files = self.manifest.shards.iter().flat_map(|entry| &entry.files);
        let found = files.find_map(|entry| Some((entry, fault(&*self.disk, &self.dir, entry)?)));
        match found {
            Some((entry, what)) => {
                Err(StoredError::Damaged { path: self.dir.join(&entry.name), what })
            }
            None => Ok(()),
        }
    }

    /// A section of a shard's snapshot, by its position. Blocking.
    pub fn section(&self, shard: u32, section: usize) -> Result<Bytes, StoredError> {
        let path = self.dir.join(section_file(shard, SECTIONS[section]));
        let read = read_whole(&*self.disk, &path);
        read.map(Bytes::from).map_err(|source| StoredError::Io { path, source })
    }

    /// The pieces of a segment, as the node sent them.
    pub fn segment(
        &self,
        shard: u32,
        segment: u64,
    ) -> Result<impl Iterator<Item = Result<Bytes, StoredError>> + use<>, StoredError> {
        self.frames(segment_file(shard, segment))
    }

    /// The log entries of a shard that belong to the backup, some at a time.
    pub fn log(
        &self,
        entry: &ShardEntry,
    ) -> Result<impl Iterator<Item = Result<Vec<Encoded>, StoredError>> + use<>, StoredError> {
        let (name, last) = (log_file(entry.shard), entry.last_index);
        let path = self.dir.join(&name);
        let frames = self.frames(name)?;
        Ok(frames.map(move |frame| -> Result<Vec<Encoded>, StoredError> {
            let entries = decode_entries(frame?);
            let entries =
                entries.map_err(|what| StoredError::Damaged { path: path.clone(), what })?;
            Ok(entries.into_iter().filter(|entry| entry.id().index <= last).collect())
        }))
    }

    fn frames(
        &self,
        name: String,
    ) -> Result<impl Iterator<Item = Result<Bytes, StoredError>> + use<>, StoredError> {
        let path = self.dir.join(&name);
        let unreadable = {
            let path = path.clone();
            move |source| StoredError::Io { path: path.clone(), source }
        };
        let frames = Frames::open(&*self.disk, &self.dir, &name).map_err(&unreadable)?;
        Ok(frames.map(move |frame| frame.map_err(&unreadable)))
    }
}

/// Decodes concatenated entries.
pub(crate) fn decode_entries(mut bytes: Bytes) -> Result<Vec<Encoded>, String> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let entry = Encoded::split_off(&mut bytes);
        entries.push(entry.map_err(|_| "something that is no entry of a log".to_owned())?);
    }
    Ok(entries)
}
