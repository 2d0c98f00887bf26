//! Sequential reads of a file through a read-ahead window, so that small pieces need few system
//! calls.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use parking_lot::Mutex;
use world::DiskFile;

use super::{ReadOnly, Reader};

/// Size of the read-ahead window.
const AHEAD_BYTES: usize = 256 << 10;

/// A file with a read-ahead window in memory.
#[derive(Debug)]
pub(crate) struct ReadAheadFile {
    file: Arc<dyn DiskFile>,
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    position: u64,
    bytes: Vec<u8>,
}

impl ReadAheadFile {
    pub(crate) fn read(file: Arc<dyn DiskFile>) -> ReadOnly<Self> {
        ReadOnly(Self { file, window: Mutex::default() })
    }
}

impl Reader for ReadAheadFile {
    fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        if buf.len() > AHEAD_BYTES {
            return self.file.read_at(buf, position);
        }
        let mut window = self.window.lock();
        let there = |window: &Window| {
            let from = usize::try_from(position.checked_sub(window.position)?).ok()?;
            let end = from.checked_add(buf.len())?;
            (end <= window.bytes.len()).then_some(from..end)
        };
        let place = match there(&window) {
            Some(place) => place,
            None => {
                window.bytes.resize(AHEAD_BYTES, 0);
                let read = self.file.read_at(&mut window.bytes, position);
                window.bytes.truncate(*read.as_ref().unwrap_or(&0));
                window.position = position;
                0..read?.min(buf.len())
            }
        };
        let bytes = &window.bytes[place];
        buf[..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn read_at_cached(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(ErrorKind::WouldBlock.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::path::Path;

    use world::{Disk, SimulatedDisk};

    use super::*;

    #[test]
    fn reads_through_the_window_equal_the_file_at_any_position() {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        let file = disk.open(Path::new("/d/file"), true).unwrap();
        let content: Vec<u8> = (0..3 * AHEAD_BYTES / 2).map(|at| (at * 7 / 3) as u8).collect();
        file.write_at(&mut [IoSlice::new(&content)], 0).unwrap();
        let ahead = ReadAheadFile::read(file);
        let end = content.len();
        for (from, len) in
            [(0, 1), (5, 9_000), (AHEAD_BYTES - 3, 9), (end - 4, 90), (end, 4), (0, end)]
        {
            let mut buf = vec![0; len];
            let read = ahead.read_at(&mut buf, from as u64).unwrap();
            assert_eq!(&buf[..read], &content[from..(from + len).min(end)], "{len} from {from}");
        }
    }
}
