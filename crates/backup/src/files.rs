//! Files of a backup: written sequentially under a checksum, and read in the same order.
//!
//! A section of a snapshot is stored as it is. Batches and the log are stored in frames: 4 bytes of length,
//! little-endian, then one piece as the node sent it.

use std::io::{self, ErrorKind, IoSlice};
use std::path::Path;
use std::sync::Arc;

use base::checksum::crc32c_append;
use bytes::Bytes;
use world::{Disk, DiskFile};

use crate::manifest::FileEntry;

/// Read size when a file is verified.
const CHECK_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct FileWriter {
    name: String,
    file: Arc<dyn DiskFile>,
    bytes: u64,
    checksum: u32,
}

impl FileWriter {
    /// Creates a new file. Blocking.
    pub fn create(disk: &dyn Disk, dir: &Path, name: String) -> io::Result<Self> {
        let file = disk.open(&dir.join(&name), true)?;
        Ok(Self { name, file, bytes: 0, checksum: 0 })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn checksum(&self) -> u32 {
        self.checksum
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(&mut [IoSlice::new(bytes)], self.bytes)?;
        self.checksum = crc32c_append(self.checksum, bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub fn write_frame(&mut self, frame: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::new(ErrorKind::InvalidInput, "a piece that is too long");
        let len = u32::try_from(frame.len()).map_err(too_long)?;
        self.write(&len.to_le_bytes())?;
        self.write(frame)
    }

    /// Makes the contents durable, but not the file's name.
    pub fn finish(self) -> io::Result<FileEntry> {
        self.file.sync()?;
        let Self { name, bytes, checksum, .. } = self;
        Ok(FileEntry { name, bytes, checksum })
    }
}

/// The frames of a file, in order.
#[derive(Debug)]
pub struct Frames {
    file: Arc<dyn DiskFile>,
    position: u64,
    bytes: u64,
}

impl Frames {
    pub fn open(disk: &dyn Disk, dir: &Path, name: &str) -> io::Result<Self> {
        let file = disk.open(&dir.join(name), false)?;
        let bytes = file.len()?;
        Ok(Self { file, position: 0, bytes })
    }

    fn read(&mut self, len: u64) -> io::Result<Vec<u8>> {
        // Never allocate more than the file has: the length is not verified yet.
        if len > self.bytes - self.position {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; len as usize];
        if self.file.read_at(&mut bytes, self.position)? < bytes.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.position += len;
        Ok(bytes)
    }
}

impl Iterator for Frames {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.bytes {
            return None;
        }
        let frame = self.read(4).and_then(|len| {
            let len = len.first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len));
            self.read(len.into())
        });
        if frame.is_err() {
            self.position = self.bytes;
        }
        Some(frame.map(Bytes::from))
    }
}

/// Returns why a file differs from its entry; `None` if it matches. Blocking.
pub fn fault(disk: &dyn Disk, dir: &Path, entry: &FileEntry) -> Option<String> {
    match read_through(disk, &dir.join(&entry.name)) {
        Err(error) => Some(error.to_string()),
        Ok((bytes, _)) if bytes != entry.bytes => {
            Some(format!("it has {bytes} bytes and was written with {}", entry.bytes))
        }
        Ok((_, checksum)) if checksum != entry.checksum => {
            Some("its checksum does not hold".to_owned())
        }
        Ok(_) => None,
    }
}

fn read_through(disk: &dyn Disk, path: &Path) -> io::Result<(u64, u32)> {
    let file = disk.open(path, false)?;
    let (mut position, mut checksum) = (0, 0);
    let mut bytes = vec![0; CHECK_BYTES];
    loop {
        let read = file.read_at(&mut bytes, position)?;
        checksum = crc32c_append(checksum, &bytes[..read]);
        position += read as u64;
        if read < bytes.len() {
            return Ok((position, checksum));
        }
    }
}

#[cfg(test)]
mod tests {
    use world::SimulatedDisk;

    use super::*;

    #[test]
    fn frames_are_read_back_and_a_wrong_length_allocates_nothing() {
        let (disk, dir) = (SimulatedDisk::new(), Path::new("/b"));
        disk.create_dir(dir).unwrap();
        let mut writer = FileWriter::create(&disk, dir, "f".to_owned()).unwrap();
        for frame in [&b"one"[..], b"", b"three"] {
            writer.write_frame(frame).unwrap();
        }
        let entry = writer.finish().unwrap();
        assert_eq!((entry.bytes, fault(&disk, dir, &entry)), (20, None));
        let frames: Vec<Bytes> =
            Frames::open(&disk, dir, "f").unwrap().map(Result::unwrap).collect();
        assert_eq!(frames, ["one", "", "three"]);
        let file = disk.open(&dir.join("f"), false).unwrap();
        file.write_at(&mut [IoSlice::new(&[0xff; 4])], 0).unwrap();
        let mut frames = Frames::open(&disk, dir, "f").unwrap();
        assert!(frames.next().is_some_and(|frame| frame.is_err()) && frames.next().is_none());
        assert!(fault(&disk, dir, &entry).is_some_and(|it| it.contains("checksum")));
        file.truncate(19).unwrap();
        assert!(fault(&disk, dir, &entry).is_some_and(|it| it.contains("19 bytes")));
        disk.remove(&dir.join("f")).unwrap();
        assert!(fault(&disk, dir, &entry).is_some());
    }
}
