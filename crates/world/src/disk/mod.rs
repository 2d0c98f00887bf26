//! The file system, behind a trait so that tests can break it.
//!
//! Few operations, all blocking: they are called from the journal's own threads, never from the
//! runtime. A file is replaced by a new one that is written, synced and renamed over it; then the
//! directory is synced ([`replace`]).

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

mod lock_holder;
mod real;
mod simulated;
mod uncached;

pub use lock_holder::{LockHolder, lock_holder};
pub use real::RealDisk;
pub use simulated::SimulatedDisk;

/// Permissions of new directories. Existing ones keep theirs.
pub const DIRECTORY_MODE: u32 = 0o700;

pub trait Disk: Send + Sync + Debug + 'static {
    /// Creates the directory and its parents; an existing one is fine. Its name is durable then.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// File names (not paths) in `dir`, in no particular order.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Opens for reading and writing. With `create`, the file must not exist yet.
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens for reading from the disk itself: bypasses the page cache without changing it. Same as [`Disk::open`]
    /// on file systems without such reads.
    fn open_uncached(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path, false)
    }
    /// Replaces `to` if it is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in `dir` durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Free bytes of the file system of `dir`, and its size.
    fn space(&self, dir: &Path) -> io::Result<Space>;
    /// Claims `dir` for this process until the guard is dropped; `WouldBlock` when another has it.
    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

// No caller checks whether a file is empty.
#[allow(clippy::len_without_is_empty)]
pub trait DiskFile: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;
    /// As `read_at`, but only if it need not wait for the disk: `WouldBlock` otherwise.
    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;
    /// Writes all slices one after the other from `position` on.
    fn write_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()>;
    /// `fdatasync`: the content, and the metadata needed to read it back. An error is final: the kernel may have
    /// dropped the pages, so a sync is never retried.
    fn sync(&self) -> io::Result<()>;
    /// Reserves the blocks of the first `len` bytes and makes the file that long.
    fn allocate(&self, len: u64) -> io::Result<()>;
    fn truncate(&self, len: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    /// The first byte from `position` on that was written, or may have been. `None`: the rest was never written
    /// and reads as zeros.
    fn next_written(&self, position: u64) -> io::Result<Option<u64>>;
    /// Advises the kernel that these bytes will not be read soon. A hint: errors are not reported.
    fn forget(&self, position: u64, len: u64);
    /// Makes the kernel begin to write these bytes to the disk, without waiting for it. A hint: errors are not
    /// reported, and only a sync makes anything durable.
    fn begin_write_back(&self, _position: u64, _len: u64) {}
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    pub free_bytes: u64,
    pub total_bytes: u64,
}

/// Atomically replaces `dir/name` by a file of these bytes. After a crash the name leads to the old content or to
/// the new, and to the new once this has returned.
pub fn replace(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    slices: &mut [IoSlice<'_>],
) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    match disk.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.open(&temporary, true)?;
    file.write_at(slices, 0)?;
    file.sync()?;
    disk.rename(&temporary, &dir.join(name))?;
    disk.sync_dir(dir)
}

/// Reads a file completely.
pub fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, false)?;
    let mut bytes = vec![0; file.len()? as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}
