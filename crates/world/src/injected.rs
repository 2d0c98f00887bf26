//! Injected faults of disk and clock, for fault tests on the real binary.
//!
//! `POSTROAD_FAULTS_FROM=FILE` makes a node read its faults from FILE, which may change while it runs:
//!
//! | line | effect |
//! |---|---|
//! | `disk full` | nothing is allocated, and no file becomes longer (ENOSPC) |
//! | `disk hang` | writes and syncs wait until the line is gone |
//! | `disk slow N` | each write and each sync takes N ms longer |
//! | `clock N` | the wall clock is N ms ahead; behind, where N is negative |
//!
//! Without the variable a node uses the disk and the clock of the machine, at no cost.

use std::ffi::OsStr;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::disk::{Disk, DiskFile, RealDisk, Space};
use crate::{Instant, World};

pub const VARIABLE: &str = "POSTROAD_FAULTS_FROM";

/// How often the file is read at most.
const READ_EVERY_MS: u64 = 20;

/// The machine, with the faults of the file that the variable names. The error is for the operator.
pub fn machine() -> Result<World, String> {
    match std::env::var_os(VARIABLE) {
        None => Ok(World::real()),
        Some(file) => with_faults_from(&file),
    }
}

fn with_faults_from(file: &OsStr) -> Result<World, String> {
    let faults = Arc::new(Faults::new(PathBuf::from(file)));
    faults.read().map_err(|error| format!("{VARIABLE}={}: {error}", file.display()))?;
    let disk = FaultyDisk { real: RealDisk, faults: Arc::clone(&faults) };
    Ok(World::on(Arc::new(disk)).with_clock(Arc::new(FaultyClock(faults))))
}

#[derive(Debug)]
struct Faults {
    file: PathBuf,
    begun: Instant,
    /// Time of the last read of the file, in ms since `begun`.
    read_ms: AtomicU64,
    full: AtomicBool,
    hangs: AtomicBool,
    slow_ms: AtomicU64,
    ahead_ms: AtomicI64,
}

impl Faults {
    fn new(file: PathBuf) -> Self {
        Self {
            file,
            begun: Instant::now(),
            read_ms: AtomicU64::new(0),
            full: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            slow_ms: AtomicU64::new(0),
            ahead_ms: AtomicI64::new(0),
        }
    }

    fn read(&self) -> io::Result<()> {
        let text = std::fs::read_to_string(&self.file)?;
        let (mut full, mut hangs, mut slow_ms, mut ahead_ms) = (false, false, 0, 0);
        for line in text.lines() {
            match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
                [] => {}
                ["disk", "full"] => full = true,
                ["disk", "hang"] => hangs = true,
                ["disk", "slow", by] => slow_ms = by.parse().map_err(io::Error::other)?,
                ["clock", by] => ahead_ms = by.parse().map_err(io::Error::other)?,
                _ => return Err(io::Error::other(format!("no fault is called `{line}`"))),
            }
        }
        self.full.store(full, Ordering::Relaxed);
        self.hangs.store(hangs, Ordering::Relaxed);
        self.slow_ms.store(slow_ms, Ordering::Relaxed);
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
        Ok(())
    }

    /// Re-reads the file if a read is due. A file that is being replaced changes nothing.
    fn refresh(&self) {
        let now = self.begun.elapsed().as_millis() as u64;
        let last = self.read_ms.load(Ordering::Relaxed);
        let is_due = now >= last + READ_EVERY_MS;
        let claimed = || {
            self.read_ms.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if is_due && claimed() {
            let _ = self.read();
        }
    }

    /// Applies the injected fault before a write or sync.
    fn delay(&self) {
        self.refresh();
        while self.hangs.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(READ_EVERY_MS));
            self.refresh();
        }
        match self.slow_ms.load(Ordering::Relaxed) {
            0 => {}
            slow_ms => sleep(Duration::from_millis(slow_ms)),
        }
    }

    fn check_room(&self) -> io::Result<()> {
        self.refresh();
        match self.full.load(Ordering::Relaxed) {
            true => Err(io::Error::from(rustix::io::Errno::NOSPC)),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct FaultyClock(Arc<Faults>);

impl Clock for FaultyClock {
    fn now_ms(&self) -> i64 {
        self.0.refresh();
        SystemClock.now_ms().saturating_add(self.0.ahead_ms.load(Ordering::Relaxed))
    }

    fn monotonic_ms(&self) -> i64 {
        SystemClock.monotonic_ms()
    }
}

#[derive(Debug)]
struct FaultyDisk {
    real: RealDisk,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct FaultyFile {
    real: Arc<dyn DiskFile>,
    faults: Arc<Faults>,
}

impl FaultyDisk {
    fn file(&self, real: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        Arc::new(FaultyFile { real, faults: Arc::clone(&self.faults) })
    }
}

impl Disk for FaultyDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.real.create_dir(dir)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.real.list(dir)
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        self.real.open(path, create).map(|file| self.file(file))
    }

    fn open_uncached(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.real.open_uncached(path).map(|file| self.file(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.delay();
        self.real.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.real.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.faults.delay();
        self.real.sync_dir(dir)
    }

    fn space(&self, dir: &Path) -> io::Result<Space> {
        let space = self.real.space(dir)?;
        Ok(match self.faults.check_room() {
            Ok(()) => space,
            Err(_) => Space { free_bytes: 0, ..space },
        })
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.real.lock(dir)
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.real.read_at(buf, position)
    }

    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.real.read_at_cached(buf, position)
    }

    fn write_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        self.faults.delay();
        let bytes: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        if position.saturating_add(bytes) > self.real.len()? {
            self.faults.check_room()?;
        }
        self.real.write_at(slices, position)
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.delay();
        self.real.sync()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len > self.real.len()? {
            self.faults.check_room()?;
        }
        self.real.allocate(len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.real.truncate(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }

    fn next_written(&self, position: u64) -> io::Result<Option<u64>> {
        self.real.next_written(position)
    }

    fn forget(&self, position: u64, len: u64) {
        self.real.forget(position, len);
    }

    fn begin_write_back(&self, position: u64, len: u64) {
        self.real.begin_write_back(position, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_the_file_take_effect_and_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let control = dir.path().join("faults");
        std::fs::write(&control, "").expect("written");
        let world = with_faults_from(control.as_os_str()).expect("readable");
        let (disk, path) = (&world.disk, dir.path().join("file"));
        let say = |text: &str| {
            std::fs::write(&control, text).expect("written");
            sleep(Duration::from_millis(3 * READ_EVERY_MS));
        };
        let file = disk.open(&path, true).expect("created");
        file.write_at(&mut [IoSlice::new(b"four")], 0).expect("there is room");

        say("disk full\n");
        let error = file.write_at(&mut [IoSlice::new(b"longer")], 0).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.write_at(&mut [IoSlice::new(b"over")], 0).expect("it becomes no longer");
        assert!(file.allocate(1 << 20).is_err());
        assert_eq!(disk.space(dir.path()).expect("known").free_bytes, 0);

        say("disk hang\n");
        let written = std::thread::spawn({
            let file = Arc::clone(&file);
            move || file.sync()
        });
        sleep(Duration::from_millis(5 * READ_EVERY_MS));
        assert!(!written.is_finished());
        say("clock 3600000\n");
        written.join().expect("ends").expect("synced");
        let ahead = world.clock.now_ms() - SystemClock.now_ms();
        assert!((3_599_000..=3_601_000).contains(&ahead), "{ahead}");
        say("");
        file.allocate(1 << 12).expect("there is room again");
    }

    #[test]
    fn unknown_faults_are_rejected_at_the_start() {
        let dir = tempfile::tempdir().expect("a directory");
        let control = dir.path().join("faults");
        std::fs::write(&control, "disk sings\n").expect("written");
        let refused = with_faults_from(control.as_os_str()).expect_err("unknown");
        assert!(refused.contains("disk sings"), "{refused}");
    }
}
