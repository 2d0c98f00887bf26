//! A disk in memory that fails as real disks do, controlled by a seed.
//!
//! Fault model. Synced bytes stay, except under [`SimulatedDisk::flip_bit`] and the other changes on the medium.
//! At power loss each 512-byte sector written since its file's last sync is kept or reverted on its own (so writes
//! are dropped, reordered and torn). The same holds for a length that was not synced, and for each name in a
//! directory that changed since the directory was synced. After a failed sync the pages count as clean, as on
//! Linux: later syncs succeed and do not save them.
//!
//! Pages are sparse and zeros cost nothing, so that a run with 128 MB files takes microseconds.
//!
//! * [`faults`]: the faults that a test injects
//! * [`state`]: its names and files
//! * [`content`]: the bytes of a file, and the bytes that a power loss reverts
//! * [`image`]: packing into one byte string, and unpacking
//! * [`random`]: numbers from a seed

mod content;
mod faults;
mod file;
mod image;
mod random;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::HashSet;
use parking_lot::{Condvar, Mutex};

use super::{Disk, DiskFile, Space};

use content::Content;
use file::SimulatedFile;
use state::State;
/// Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signalled when hung syncs may continue.
    released: Condvar,
    /// A lock of its own, because a guard may be dropped while the state is locked.
    locks: Mutex<HashSet<PathBuf>>,
}

struct LockGuard {
    shared: Arc<Shared>,
    dir: PathBuf,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.shared.locks.lock().remove(&self.dir);
    }
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new()
    }
}

fn power_off() -> io::Error {
    io::Error::other("simulated power loss")
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(ErrorKind::NotFound, path.display().to_string())
}

impl Disk for SimulatedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        state.dirs.insert(dir.to_owned());
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.shared.state.lock();
        state.alive()?;
        if !state.dirs.contains(dir) {
            return Err(not_found(dir));
        }
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        let id = match (state.names.get(path), create) {
            (Some(_), true) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(id), false) => *id,
            (None, false) => return Err(not_found(path)),
            (None, true) => {
                state.count()?;
                state.files_made += 1;
                let id = state.files_made;
                state.names.insert(path.to_owned(), id);
                state.files.insert(id, Content::default());
                id
            }
        };
        let path = path.to_string_lossy().into_owned();
        Ok(Arc::new(SimulatedFile { shared: self.shared.clone(), id, path }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        match state.names.remove(from) {
            Some(id) => drop(state.names.insert(to.to_owned(), id)),
            None if state.dirs.contains(from) => state.rename_dir(from, to)?,
            None => return Err(not_found(from)),
        }
        state.count()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        state.names.remove(path).ok_or_else(|| not_found(path))?;
        state.count()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.count()?;
        let State { names, durable_names, .. } = &mut *state;
        durable_names.retain(|path, _| path.parent() != Some(dir));
        let inside = names.iter().filter(|(path, _)| path.parent() == Some(dir));
        durable_names.extend(inside.map(|(path, id)| (path.clone(), *id)));
        state.renamed_dirs.retain(|(_, to)| to.parent() != Some(dir));
        Ok(())
    }

    fn space(&self, _dir: &Path) -> io::Result<Space> {
        let state = self.shared.state.lock();
        state.alive()?;
        let total_bytes = state.capacity_bytes.unwrap_or(1 << 50);
        let free_bytes = total_bytes.saturating_sub(state.used_bytes());
        Ok(Space { free_bytes, total_bytes })
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.shared.state.lock().alive()?;
        if !self.shared.locks.lock().insert(dir.to_owned()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(LockGuard { shared: self.shared.clone(), dir: dir.to_owned() }))
    }
}
