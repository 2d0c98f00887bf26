//! Reading past the page cache: `O_DIRECT`, which requires positions, lengths and memory aligned to blocks.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::DiskFile;
use super::real::RealFile;

/// Alignment that every device in use accepts.
const BLOCK: u64 = 4_096;

#[derive(Debug)]
pub(super) struct Uncached(RealFile);

impl Uncached {
    pub(super) fn open(path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let direct = OFlags::DIRECT.bits() as i32;
        match File::options().read(true).custom_flags(direct).open(path) {
            Ok(file) => Ok(Arc::new(Self(RealFile(file)))),
            // A file system in memory, or another one without `O_DIRECT`.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                Ok(Arc::new(RealFile(File::options().read(true).open(path)?)))
            }
            Err(error) => Err(error),
        }
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(ErrorKind::PermissionDenied.into())
}

impl DiskFile for Uncached {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let start = position - position % BLOCK;
        let skipped = (position - start) as usize;
        let wanted = (skipped + buf.len()).next_multiple_of(BLOCK as usize);
        let mut memory = vec![0; wanted + BLOCK as usize];
        let aligned = memory.as_ptr().align_offset(BLOCK as usize);
        let blocks = &mut memory[aligned..aligned + wanted];
        let mut done = 0;
        while done < blocks.len() {
            match self.0.0.read_at(&mut blocks[done..], start + done as u64) {
                Ok(read) => {
                    done += read;
                    // Only the end of the file may be off a block boundary.
                    if read == 0 || !(read as u64).is_multiple_of(BLOCK) {
                        break;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let there = blocks.get(skipped..done).unwrap_or_default();
        let read = there.len().min(buf.len());
        buf[..read].copy_from_slice(&there[..read]);
        Ok(read)
    }

    fn read_at_cached(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }

    fn write_at(&self, _: &mut [IoSlice<'_>], _: u64) -> io::Result<()> {
        read_only()
    }

    fn sync(&self) -> io::Result<()> {
        read_only()
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn truncate(&self, _: u64) -> io::Result<()> {
        read_only()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn next_written(&self, position: u64) -> io::Result<Option<u64>> {
        self.0.next_written(position)
    }

    fn forget(&self, _: u64, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncached_read_returns_the_written_bytes_for_any_range() {
        let dir = tempfile::tempdir().expect("made");
        let path = dir.path().join("file");
        let content: Vec<u8> = (0..30_000_u32).map(|at| (at * 7 / 3) as u8).collect();
        std::fs::write(&path, &content).expect("written");
        let file = Uncached::open(&path).expect("opened");
        assert_eq!(file.len().expect("known"), 30_000);
        for (from, len) in
            [(0, 1), (0, 30_000), (4_095, 2), (4_096, 4_096), (29_999, 10), (8_000, 25_000)]
        {
            let mut buf = vec![0; len];
            let read = file.read_at(&mut buf, from as u64).expect("read");
            let there = &content[from..(from + len).min(content.len())];
            assert_eq!(&buf[..read], there, "{len} from {from}");
        }
        assert_eq!(file.read_at(&mut [0; 10], 30_000).expect("read"), 0);
        assert_eq!(file.read_at(&mut [0; 10], 90_000).expect("read"), 0);
        assert!(file.write_at(&mut [IoSlice::new(b"x")], 0).is_err());
    }
}
