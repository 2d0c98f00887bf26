//! Files with a read path of their own that are never written.
//!
//! * `cache_bypass`: past the page cache
//! * `read_ahead`: through a window in memory

mod cache_bypass;
mod read_ahead;

use std::fmt::Debug;
use std::io::{self, ErrorKind, IoSlice};

use world::DiskFile;

pub(crate) use cache_bypass::CacheBypassFile;
pub(crate) use read_ahead::ReadAheadFile;

/// A way to read a file.
pub(crate) trait Reader: Debug + Send + Sync {
    fn file(&self) -> &dyn DiskFile;
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;
    /// Without waiting for the disk, as [`DiskFile::read_at_cached`].
    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize>;
}

/// The file of a reader: every change of it is refused.
#[derive(Debug)]
pub(crate) struct ReadOnly<R>(pub(crate) R);

fn refused<T>() -> io::Result<T> {
    Err(ErrorKind::PermissionDenied.into())
}

impl<R: Reader> DiskFile for ReadOnly<R> {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(buf, position)
    }

    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at_cached(buf, position)
    }

    fn write_at(&self, _: &mut [IoSlice<'_>], _: u64) -> io::Result<()> {
        refused()
    }

    fn sync(&self) -> io::Result<()> {
        refused()
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        refused()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.file().len()
    }

    fn next_written(&self, position: u64) -> io::Result<Option<u64>> {
        self.0.file().next_written(position)
    }

    fn forget(&self, _: u64, _: u64) {}
}
