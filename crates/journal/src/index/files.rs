//! The index's view of the journal's directory: file names, handles for reading, and files that
//! appear whole or not at all.
//!
//! Readers open a segment by name, even while the log writes it: both handles see the same page
//! cache, so that reads need no coordination with the writer. A reader keeps its handle, so that
//! rewriting or deleting the segment does not disturb it.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::limits;
use base::HashMap;
use parking_lot::Mutex;

use world::disk::{Disk, DiskFile};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    Segment,
    Sidecar,
}

/// `00000001.seg` as the log writes it, `00000001.g2.seg` once rewritten; sidecars end in `.idx`.
pub(crate) fn file_name(kind: FileKind, segment: u32, generation: u32) -> String {
    let ending = match kind {
        FileKind::Segment => "seg",
        FileKind::Sidecar => "idx",
    };
    match generation {
        1 => format!("{segment:08}.{ending}"),
        _ => format!("{segment:08}.g{generation}.{ending}"),
    }
}

/// The inverse of [`file_name`]: kind, segment, generation.
pub(crate) fn parse_name(name: &str) -> Option<(FileKind, u32, u32)> {
    let mut parts = name.split('.');
    let segment: u32 = parts.next()?.parse().ok()?;
    let (generation, ending) = match (parts.next()?, parts.next()) {
        (ending, None) => (1, ending),
        (generation, Some(ending)) => (generation.strip_prefix('g')?.parse().ok()?, ending),
    };
    let kind = match ending {
        "seg" => FileKind::Segment,
        "idx" => FileKind::Sidecar,
        _ => return None,
    };
    // Accepts only the canonical spelling: no signs, no additional zeros, no suffix.
    (segment > 0 && generation > 0 && file_name(kind, segment, generation) == name)
        .then_some((kind, segment, generation))
}

#[derive(Debug)]
pub(crate) struct Files {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    open: Mutex<Handles>,
}

#[derive(Debug, Default)]
struct Handles {
    by_name: HashMap<(u32, u32), Handle>,
    uses: u64,
}

#[derive(Debug)]
struct Handle {
    file: Arc<dyn DiskFile>,
    last_use: u64,
}

impl Files {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> Self {
        Self { disk, dir: dir.to_owned(), open: Mutex::default() }
    }

    pub(crate) fn path(&self, kind: FileKind, segment: u32, generation: u32) -> PathBuf {
        self.dir.join(file_name(kind, segment, generation))
    }

    /// Kind, segment and generation of each file of the journal.
    pub(crate) fn list(&self) -> io::Result<Vec<(FileKind, u32, u32)>> {
        let names = self.disk.list(&self.dir)?;
        Ok(names.iter().filter_map(|name| parse_name(name)).collect())
    }

    /// A segment's file, if it is already open.
    pub(crate) fn opened(&self, segment: u32, generation: u32) -> Option<Arc<dyn DiskFile>> {
        self.open.lock().find(segment, generation)
    }

    /// A segment's file. Blocking.
    pub(crate) fn segment(&self, segment: u32, generation: u32) -> io::Result<Arc<dyn DiskFile>> {
        let mut open = self.open.lock();
        if let Some(file) = open.find(segment, generation) {
            return Ok(file);
        }
        let file = self.disk.open(&self.path(FileKind::Segment, segment, generation), false)?;
        open.insert(segment, generation, file.clone());
        Ok(file)
    }

    /// Everything in a sidecar's file. Blocking.
    pub(crate) fn read_sidecar(&self, segment: u32, generation: u32) -> io::Result<Vec<u8>> {
        sidecar(&*self.disk.open(&self.path(FileKind::Sidecar, segment, generation), false)?)
    }

    /// The same, bypassing the page cache. Blocking.
    pub(crate) fn read_sidecar_uncached(
        &self,
        segment: u32,
        generation: u32,
    ) -> io::Result<Vec<u8>> {
        let path = self.path(FileKind::Sidecar, segment, generation);
        sidecar(&*self.disk.open_uncached(&path)?)
    }

    /// Begins a file under a temporary name. It is renamed when it is complete.
    pub(crate) fn begin(&self, kind: FileKind, segment: u32, generation: u32) -> io::Result<Draft> {
        let path = self.path(kind, segment, generation);
        let mut name = path.clone().into_os_string();
        name.push(".tmp");
        let draft = PathBuf::from(name);
        remove_if_there(&*self.disk, &draft)?;
        let file = self.disk.open(&draft, true)?;
        Ok(Draft {
            disk: self.disk.clone(),
            draft,
            path,
            file,
            len: 0,
            written_back: 0,
            published: false,
        })
    }

    pub(crate) fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir(&self.dir)
    }

    pub(crate) fn remove_sidecar(&self, segment: u32, generation: u32) -> io::Result<()> {
        remove_if_there(&*self.disk, &self.path(FileKind::Sidecar, segment, generation))
    }

    /// Removes a segment's file. Reads in progress complete: their handle keeps the blocks.
    pub(crate) fn remove_segment(&self, segment: u32, generation: u32) -> io::Result<()> {
        let path = self.path(FileKind::Segment, segment, generation);
        // Freeing the blocks of a large file takes time; readers do not wait for it.
        let handle = self.open.lock().by_name.remove(&(segment, generation));
        remove_if_there(&*self.disk, &path)?;
        // A reader that opened it just before keeps its blocks only until the read is done.
        let late = self.open.lock().by_name.remove(&(segment, generation));
        drop((handle, late));
        Ok(())
    }
}

impl Handles {
    fn find(&mut self, segment: u32, generation: u32) -> Option<Arc<dyn DiskFile>> {
        self.uses += 1;
        let handle = self.by_name.get_mut(&(segment, generation))?;
        handle.last_use = self.uses;
        Some(handle.file.clone())
    }

    fn insert(&mut self, segment: u32, generation: u32, file: Arc<dyn DiskFile>) {
        if self.by_name.len() >= limits::SEGMENTS_OPEN_MAX {
            // A handle held by a reader stays open even if it is dropped here.
            let idle = self.by_name.iter().filter(|(_, it)| Arc::strong_count(&it.file) == 1);
            if let Some((&name, _)) = idle.min_by_key(|(_, handle)| handle.last_use) {
                self.by_name.remove(&name);
            }
        }
        self.by_name.insert((segment, generation), Handle { file, last_use: self.uses });
    }
}

/// Writeback starts once a draft has this many dirty bytes. A sync that finds a whole segment to
/// write delays the syncs of the log on the same disk.
const WRITE_BACK_BYTES: u64 = 4 << 20;

/// A file being written under a temporary name. It is removed if it is dropped before it is
/// published.
#[derive(Debug)]
pub(crate) struct Draft {
    disk: Arc<dyn Disk>,
    draft: PathBuf,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    len: u64,
    /// The kernel was requested to write all bytes before this position.
    written_back: u64,
    published: bool,
}

impl Draft {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn append(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        self.file.write_at(slices, self.len)?;
        self.len += bytes as u64;
        let waiting = self.len - self.written_back;
        if waiting >= WRITE_BACK_BYTES {
            self.file.begin_write_back(self.written_back, waiting);
            self.written_back = self.len;
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// Renames the file to its final name. Durable after the directory was synced.
    pub(crate) fn publish(mut self) -> io::Result<()> {
        self.disk.rename(&self.draft, &self.path)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published {
            // A remaining file is removed when the journal is opened, or when it is drafted again.
            let _ = self.disk.remove(&self.draft);
        }
    }
}

fn sidecar(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let len = file.len()?;
    if len > limits::SIDECAR_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too long for a sidecar"));
    }
    let mut bytes = vec![0; len as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

fn remove_if_there(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_parsed_back() {
        for kind in [FileKind::Segment, FileKind::Sidecar] {
            for (segment, generation) in [(1, 1), (1, 2), (99_999_999, 1), (100_000_000, 17)] {
                let name = file_name(kind, segment, generation);
                assert_eq!(parse_name(&name), Some((kind, segment, generation)), "{name}");
            }
        }
        assert_eq!(file_name(FileKind::Segment, 1, 1), "00000001.seg");
        assert_eq!(file_name(FileKind::Sidecar, 12, 3), "00000012.g3.idx");
    }

    #[test]
    fn other_names_are_left_alone() {
        let others = [
            "LOCK",
            "vote",
            "snapshot-7",
            "spare-1",
            "1.seg",
            "00000000.seg",
            "00000001.g1.seg",
            "00000001.g0.seg",
            "00000001.seg.tmp",
            "00000001.g2.seg.tmp",
            "+0000001.seg",
            ".seg",
            "00000001.g02.seg",
            "00000001.txt",
        ];
        for name in others {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
