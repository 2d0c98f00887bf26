//! A simulated disk whose changes go into the trace.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use world::disk::Space;
use world::{Disk, DiskFile, SimulatedDisk};

use crate::trace::Trace;

#[derive(Debug)]
pub struct TracedDisk {
    disk: SimulatedDisk,
    trace: Trace,
    /// The disk's node; empty if there is only one.
    node: &'static str,
}

impl TracedDisk {
    pub fn new(disk: SimulatedDisk, trace: Trace, node: &'static str) -> Self {
        Self { disk, trace, node }
    }

    fn changed<T>(&self, what: &str, path: &Path, done: io::Result<T>) -> io::Result<T> {
        self.trace.note(format_args!(
            "{}disk {what} {}{}",
            self.node,
            name(path),
            DiskFailure(&done)
        ));
        done
    }
}

/// Displays the error of a failed operation.
struct DiskFailure<'a, T>(&'a io::Result<T>);

impl<T> std::fmt::Display for DiskFailure<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Ok(_) => Ok(()),
            Err(error) => write!(f, ": {error}"),
        }
    }
}

fn name(path: &Path) -> std::path::Display<'_> {
    path.strip_prefix("/data").unwrap_or(path).display()
}

impl Disk for TracedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.changed("make", dir, self.disk.create_dir(dir))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let opened = self.disk.open(path, create);
        let file = if create { self.changed("create", path, opened)? } else { opened? };
        let name = name(path).to_string();
        Ok(Arc::new(TracedFile { file, name, trace: self.trace.clone(), node: self.node }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.changed("rename to", to, self.disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.changed("remove", path, self.disk.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.changed("sync", dir, self.disk.sync_dir(dir))
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        self.disk.space(dir)
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.disk.lock(dir)
    }
}

#[derive(Debug)]
struct TracedFile {
    file: Arc<dyn DiskFile>,
    name: String,
    trace: Trace,
    node: &'static str,
}

impl TracedFile {
    fn changed(&self, what: std::fmt::Arguments<'_>, done: io::Result<()>) -> io::Result<()> {
        self.trace.note(format_args!(
            "{}disk {what} {}{}",
            self.node,
            self.name,
            DiskFailure(&done)
        ));
        done
    }
}

impl DiskFile for TracedFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at(buf, position)
    }

    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.file.read_at_cached(buf, position)
    }

    fn write_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        let (mut bytes, mut checksum) = (0, 0);
        for slice in slices.iter() {
            bytes += slice.len();
            checksum = base::checksum::crc32c_append(checksum, slice);
        }
        let done = self.file.write_at(slices, position);
        self.changed(format_args!("write {bytes} at {position} ({checksum:08x})"), done)
    }

    fn sync(&self) -> io::Result<()> {
        self.changed(format_args!("sync"), self.file.sync())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.changed(format_args!("allocate {len}"), self.file.allocate(len))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.changed(format_args!("truncate to {len}"), self.file.truncate(len))
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn next_written(&self, position: u64) -> io::Result<Option<u64>> {
        self.file.next_written(position)
    }

    fn forget(&self, position: u64, len: u64) {
        self.file.forget(position, len);
    }
}
