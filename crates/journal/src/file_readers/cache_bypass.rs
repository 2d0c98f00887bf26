//! Reads cached bytes from the page cache and all others past it, so that a single pass over all
//! data does not evict the working set of other readers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use world::{Disk, DiskFile};

use super::{ReadOnly, Reader};

#[derive(Debug)]
pub(crate) struct CacheBypassFile {
    cached: Arc<dyn DiskFile>,
    uncached: Arc<dyn DiskFile>,
}

impl CacheBypassFile {
    /// `cached` is the file at `path`, opened before.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: &Path,
        cached: Arc<dyn DiskFile>,
    ) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ReadOnly(Self { uncached: disk.open_uncached(path)?, cached })))
    }
}

impl Reader for CacheBypassFile {
    fn file(&self) -> &dyn DiskFile {
        &*self.cached
    }

    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        match self.cached.read_at_cached(buf, position) {
            // Only a part of it may be cached.
            Ok(read) if read == buf.len() => Ok(read),
            _ => self.uncached.read_at(buf, position),
        }
    }

    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.cached.read_at_cached(buf, position)
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use world::RealDisk;

    use super::*;

    #[test]
    fn reads_past_the_cache_equal_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (disk, path) = (RealDisk, folder.path().join("file"));
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
        let file = disk.open(&path, true).unwrap();
        file.write_at(&mut [IoSlice::new(&content)], 0).unwrap();
        file.sync().unwrap();
        file.forget(0, content.len() as u64);
        let past = CacheBypassFile::open(&disk, &path, file).unwrap();
        for (from, len) in [(0, 10), (4_095, 9_000), (99_990, 100)] {
            let mut buf = vec![0; len];
            let read = past.read_at(&mut buf, from as u64).unwrap();
            assert_eq!(&buf[..read], &content[from..(from + len).min(content.len())]);
        }
    }
}
