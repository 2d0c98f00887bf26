//! Directories of a node's shards: checks for files, and removes them.

use std::io::{self, ErrorKind};
use std::path::Path;

use world::Disk;

use crate::error::OpenError;

pub(crate) fn has_files(disk: &dyn Disk, dir: &Path) -> Result<bool, OpenError> {
    match disk.list(dir) {
        Ok(names) => Ok(!names.is_empty()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(failed("reading", dir, source)),
    }
}

pub(crate) fn remove_files(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    if !has_files(disk, dir)? {
        return Ok(());
    }
    let names = disk.list(dir).map_err(|source| failed("reading", dir, source))?;
    for name in names {
        let path = dir.join(name);
        disk.remove(&path).map_err(|source| failed("removing", &path, source))?;
    }
    Ok(())
}

pub(crate) fn failed(doing: &str, path: &Path, source: io::Error) -> OpenError {
    OpenError::Io { doing: format!("{doing} {}", path.display()), source }
}
