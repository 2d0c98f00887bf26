//! The machine's file system, by plain system calls: `pwritev`, `fdatasync`, `fallocate`.
//!
//! Buffered writes, not `O_DIRECT`: the page cache is the read cache of consumers that lag a
//! little, and a group commit is one large sequential write either way.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::uncached::Uncached;
use super::{DIRECTORY_MODE, Disk, DiskFile, Space};

/// Slices that Linux accepts in one `pwritev` (`UIO_MAXIOV`).
const SLICES_PER_WRITE_MAX: usize = 1024;

/// File whose lock claims its directory.
pub(super) const LOCK: &str = "LOCK";

#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
pub(super) struct RealFile(pub(super) File);

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let Some(parent) = dir.parent() else { return Ok(()) };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        if !dir.is_dir() {
            self.create_dir(parent)?;
            // Stored records are not encrypted: other users of the machine must not read them.
            match DirBuilder::new().mode(DIRECTORY_MODE).create(dir) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        // Also for an existing directory: the process that created it may have been killed before its sync.
        self.sync_dir(parent)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            // The journal's names are UTF-8: skips files that are not its own.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let file = File::options().read(true).write(true).create_new(create).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Uncached::open(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(Space {
            free_bytes: stat.f_bavail * stat.f_frsize,
            total_bytes: stat.f_blocks * stat.f_frsize,
        })
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let path = dir.join(LOCK);
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        // The kernel releases the lock when the process ends in any way.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(file))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.0.read_at(&mut buf[done..], position + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            let mut rest = [IoSliceMut::new(&mut buf[done..])];
            let at = position + done as u64;
            match rustix::io::preadv2(&self.0, &mut rest, at, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                // A file system that does not support the flag: the read might wait.
                Err(Errno::OPNOTSUPP) => return Err(ErrorKind::WouldBlock.into()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn write_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut rest = slices;
        let mut position = position;
        // Leading empty slices would read as "wrote nothing".
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let now = rest.len().min(SLICES_PER_WRITE_MAX);
            match rustix::io::pwritev(&self.0, &rest[..now], position) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    IoSlice::advance_slices(&mut rest, written);
                    position += written as u64;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, len) {
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) => return self.fill_with_zeros(len),
                other => return Ok(other?),
            }
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn next_written(&self, position: u64) -> io::Result<Option<u64>> {
        // Moves the file's own offset, which nothing here uses.
        match rustix::fs::seek(&self.0, SeekFrom::Data(position)) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL) => Ok((position < self.len()?).then_some(position)),
            Err(error) => Err(error.into()),
        }
    }

    fn forget(&self, position: u64, len: u64) {
        let len = std::num::NonZeroU64::new(len);
        let _ = rustix::fs::fadvise(&self.0, position, len, Advice::DontNeed);
    }

    fn begin_write_back(&self, position: u64, len: u64) {
        // Linux starts write-back of dirty pages on this advice, and keeps them until the advice is repeated
        // (mm/fadvise.c). `sync_file_range` would be explicit, but needs `unsafe`.
        self.forget(position, len);
    }
}

impl RealFile {
    /// `allocate` where the file system has no `fallocate`.
    fn fill_with_zeros(&self, len: u64) -> io::Result<()> {
        let zeros = vec![0; 1 << 20];
        let mut position = self.len()?;
        while position < len {
            let now = zeros.len().min((len - position) as usize);
            self.write_at(&mut [IoSlice::new(&zeros[..now])], position)?;
            position += now as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn scratch() -> (tempfile::TempDir, Arc<dyn DiskFile>) {
        let dir = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&dir.path().join("f"), true).unwrap();
        (dir, file)
    }

    #[test]
    fn gathers_more_slices_than_one_system_call_takes() {
        let (_dir, file) = scratch();
        let parts: Vec<[u8; 3]> =
            (0..3000u32).map(|i| [i as u8, (i >> 8) as u8, (i >> 16) as u8]).collect();
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        slices.insert(0, IoSlice::new(&[]));
        file.write_at(&mut slices, 5).unwrap();
        let mut back = vec![0; 9005];
        assert_eq!(file.read_at(&mut back, 0).unwrap(), 9005);
        assert_eq!(back[5..], parts.concat());
    }

    #[test]
    fn reads_are_short_only_at_the_end_of_the_file() {
        let (_dir, file) = scratch();
        file.allocate(1000).unwrap();
        assert_eq!(file.len().unwrap(), 1000);
        let mut buf = [1; 600];
        assert_eq!(file.read_at(&mut buf, 600).unwrap(), 400);
        assert_eq!(file.read_at(&mut buf, 2000).unwrap(), 0);
    }

    #[test]
    fn unwritten_ranges_are_skipped() {
        let (_dir, file) = scratch();
        file.allocate(10 << 20).unwrap();
        file.write_at(&mut [IoSlice::new(&[1; 10])], 5 << 20).unwrap();
        // A file system may not support holes; then it reports all of it as written.
        let found = file.next_written(0).unwrap().unwrap();
        assert!(found == 0 || found == 5 << 20, "{found}");
        assert!(file.next_written((5 << 20) + 5).unwrap() == Some((5 << 20) + 5));
        assert_eq!(file.next_written(20 << 20).unwrap(), None);
    }

    #[test]
    fn directory_lock_is_exclusive() {
        let dir = tempfile::tempdir().unwrap();
        let guard = RealDisk.lock(dir.path()).unwrap();
        let refused = RealDisk.lock(dir.path()).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        drop(guard);
        RealDisk.lock(dir.path()).unwrap();
    }

    #[test]
    fn makes_parents() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        RealDisk.create_dir(&deep).unwrap();
        RealDisk.create_dir(&deep).unwrap();
        assert!(deep.is_dir());
        for made in [dir.path().join("a"), deep] {
            assert_eq!(made.metadata().unwrap().permissions().mode() & 0o777, 0o700, "{made:?}");
        }
    }
}
