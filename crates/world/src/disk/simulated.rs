//! A disk in memory that does what disks do at the worst moment, by a seed.
//!
//! Fault model. What was synced stays, except under [`SimulatedDisk::flip_bit`] and its kin. At
//! power loss each 512-byte sector written since its file's last sync is kept or reverted on its
//! own (so writes are dropped, reordered and torn), a length that was not synced likewise, and so
//! is each name in a directory that changed since the directory was synced. After a failed sync
//! the pages count as clean, as on Linux: later syncs succeed and do not save them.
//!
//! Pages are sparse and zeros cost nothing, so that a run with 128 MB files takes microseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::collections::Entry;
use base::{HashMap, HashSet};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{Disk, DiskFile, Space};

const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signalled when hung syncs may go on.
    released: Condvar,
    /// Apart from the state: a guard is dropped by threads that hold it.
    locks: Mutex<HashSet<PathBuf>>,
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    dirs: BTreeSet<PathBuf>,
    files: HashMap<u64, Content>,
    files_made: u64,
    capacity_bytes: Option<u64>,
    /// The power is off: every operation fails.
    dead: bool,
    /// Changes done, of any kind.
    operations: u64,
    cut_power_at: Option<u64>,
    failing: Vec<Failing>,
    syncs_hang: bool,
    /// Names of the files whose syncs are under way.
    syncing: Vec<String>,
}

/// The n-th call from now of one kind, on files whose name contains some text, fails.
#[derive(Debug)]
struct Failing {
    kind: Kind,
    name_part: String,
    calls_before: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Write,
    Sync,
}

#[derive(Clone, Debug, Default)]
struct Content {
    pages: HashMap<u64, Box<[u8; PAGE]>>,
    len: u64,
    durable_len: u64,
    allocated_bytes: u64,
    /// What the sectors written since the last sync held before, by sector number.
    undo: HashMap<u64, [u8; SECTOR]>,
    /// The same for sectors whose sync failed: no later sync saves them.
    lost: HashMap<u64, [u8; SECTOR]>,
}

#[derive(Debug)]
struct SimulatedFile {
    shared: Arc<Shared>,
    id: u64,
    name: String,
}

struct LockGuard {
    shared: Arc<Shared>,
    dir: PathBuf,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        self.shared.locks.lock().remove(&self.dir);
    }
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::new()
    }
}

/// The faults.
impl SimulatedDisk {
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared::default()) }
    }

    /// The disk takes so many bytes in all; `None` for any number.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().capacity_bytes = bytes;
    }

    /// After `calls_before` more writes to files whose name contains `name_part`, one fails (EIO).
    pub fn fail_write(&self, name_part: &str, calls_before: u64) {
        self.fail(Kind::Write, name_part, calls_before);
    }

    /// As [`SimulatedDisk::fail_write`], for syncs.
    pub fn fail_sync(&self, name_part: &str, calls_before: u64) {
        self.fail(Kind::Sync, name_part, calls_before);
    }

    fn fail(&self, kind: Kind, name_part: &str, calls_before: u64) {
        let failing = Failing { kind, name_part: name_part.to_owned(), calls_before };
        self.shared.state.lock().failing.push(failing);
    }

    /// From now on syncs of files do not return, until it is called with `false`.
    pub fn hang_syncs(&self, hang: bool) {
        self.shared.state.lock().syncs_hang = hang;
        self.shared.released.notify_all();
    }

    /// Whether a sync of a file whose name contains `name_part` hangs at the moment.
    pub fn sync_hangs(&self, name_part: &str) -> bool {
        let state = self.shared.state.lock();
        state.syncs_hang && state.syncing.iter().any(|name| name.contains(name_part))
    }

    /// Whether the power is off, or the process that used it was killed.
    pub fn is_dead(&self) -> bool {
        self.shared.state.lock().dead
    }

    /// Changes (writes, syncs, allocations, changes of names) so far.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// The power fails after so many more changes: everything after fails.
    pub fn cut_power_after(&self, operations: u64) {
        let mut state = self.shared.state.lock();
        state.cut_power_at = Some(state.operations + operations);
    }

    /// The disk as it is found after a power loss now. The old one is dead from here on.
    pub fn power_loss(&self, seed: u64) -> SimulatedDisk {
        self.turn_off(|state| state.lose_power(&mut Random(seed)))
    }

    /// The disk as it is found after the process was killed: the page cache survives.
    pub fn killed(&self) -> SimulatedDisk {
        self.turn_off(|_| {})
    }

    fn turn_off(&self, change: impl FnOnce(&mut State)) -> SimulatedDisk {
        let mut old = self.shared.state.lock();
        old.dead = true;
        let mut state = State {
            names: std::mem::take(&mut old.names),
            durable_names: std::mem::take(&mut old.durable_names),
            dirs: std::mem::take(&mut old.dirs),
            files: std::mem::take(&mut old.files),
            files_made: old.files_made,
            capacity_bytes: old.capacity_bytes,
            ..State::default()
        };
        drop(old);
        self.shared.released.notify_all();
        change(&mut state);
        let shared = Shared { state: Mutex::new(state), ..Shared::default() };
        SimulatedDisk { shared: Arc::new(shared) }
    }

    /// Flips one bit, on the medium.
    pub fn flip_bit(&self, path: &Path, position: u64, bit: u8) {
        self.edit(path, |content| {
            let mut byte = [0];
            content.read(&mut byte, position);
            content.write(&[byte[0] ^ (1 << (bit % 8))], position);
        });
    }

    /// Overwrites bytes on the medium.
    pub fn damage(&self, path: &Path, position: u64, bytes: &[u8]) {
        self.edit(path, |content| content.write(bytes, position));
    }

    /// Cuts a file short, on the medium.
    pub fn cut_file(&self, path: &Path, len: u64) {
        self.edit(path, |content| content.truncate(len));
    }

    /// Takes a file away for good.
    pub fn lose_file(&self, path: &Path) {
        let mut state = self.shared.state.lock();
        state.names.remove(path);
        state.durable_names.remove(path);
    }

    /// All bytes of a file, as a reader sees them now.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.shared.state.lock();
        let content = state.files.get(state.names.get(path)?)?;
        let mut bytes = vec![0; content.len as usize];
        content.read(&mut bytes, 0);
        Some(bytes)
    }

    fn edit(&self, path: &Path, change: impl FnOnce(&mut Content)) {
        let mut state = self.shared.state.lock();
        let id = state.names[path];
        let content = state.files.get_mut(&id).expect("a name leads to a file");
        change(content);
        content.sync();
    }
}

impl State {
    fn alive(&self) -> io::Result<()> {
        if self.dead { Err(power_off()) } else { Ok(()) }
    }

    /// Counts a change; an error when the power goes with it.
    fn count(&mut self) -> io::Result<()> {
        self.operations += 1;
        if self.cut_power_at.is_some_and(|at| self.operations >= at) {
            self.dead = true;
        }
        self.alive()
    }

    fn fails(&mut self, kind: Kind, name: &str) -> bool {
        let mut fails = false;
        self.failing.retain_mut(|failing| {
            if failing.kind != kind || !name.contains(&failing.name_part) {
                return true;
            }
            let now = failing.calls_before == 0;
            failing.calls_before = failing.calls_before.saturating_sub(1);
            fails |= now;
            !now
        });
        fails
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().filter_map(|id| self.files.get(id)).map(|f| f.allocated_bytes).sum()
    }

    /// Makes room for the first `end` bytes of a file.
    fn reserve(&mut self, id: u64, end: u64) -> io::Result<()> {
        let end = end.next_multiple_of(PAGE as u64);
        let has = self.files.get(&id).map_or(0, |content| content.allocated_bytes);
        if end <= has {
            return Ok(());
        }
        if self.capacity_bytes.is_some_and(|max| self.used_bytes() + (end - has) > max) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        }
        if let Some(content) = self.files.get_mut(&id) {
            content.allocated_bytes = end;
        }
        Ok(())
    }

    fn lose_power(&mut self, random: &mut Random) {
        let keep = [0, 1, 4, 7, 8][random.below(5) as usize];
        let mut kept = |random: &mut Random| random.below(8) < keep;
        let paths: BTreeSet<PathBuf> =
            self.names.keys().chain(self.durable_names.keys()).cloned().collect();
        for path in paths {
            let (new, old) = (self.names.get(&path), self.durable_names.get(&path));
            if new != old && !kept(random) {
                match old.copied() {
                    Some(id) => self.names.insert(path, id),
                    None => self.names.remove(&path),
                };
            }
        }
        self.durable_names = self.names.clone();
        let mut ids: Vec<u64> = self.files.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if let Some(content) = self.files.get_mut(&id) {
                content.lose_power(random, &mut kept);
            }
        }
    }
}

impl Content {
    fn read(&self, buf: &mut [u8], position: u64) -> usize {
        let len = buf.len().min(self.len.saturating_sub(position) as usize);
        let mut done = 0;
        while done < len {
            let at = position + done as u64;
            let within = (at % PAGE as u64) as usize;
            let now = (PAGE - within).min(len - done);
            match self.pages.get(&(at / PAGE as u64)) {
                Some(page) => buf[done..done + now].copy_from_slice(&page[within..within + now]),
                None => buf[done..done + now].fill(0),
            }
            done += now;
        }
        len
    }

    fn write(&mut self, bytes: &[u8], position: u64) {
        self.len = self.len.max(position + bytes.len() as u64);
        let mut done = 0;
        while done < bytes.len() {
            let at = position + done as u64;
            let within = (at % SECTOR as u64) as usize;
            let now = (SECTOR - within).min(bytes.len() - done);
            self.write_in_sector(at / SECTOR as u64, within, &bytes[done..done + now]);
            done += now;
        }
    }

    fn write_in_sector(&mut self, sector: u64, within: usize, bytes: &[u8]) {
        let per_page = (PAGE / SECTOR) as u64;
        let start = (sector % per_page) as usize * SECTOR;
        let page = self.pages.entry(sector / per_page);
        if matches!(page, Entry::Vacant(_)) && bytes.iter().all(|b| *b == 0) {
            return;
        }
        let page = page.or_insert_with(|| Box::new([0; PAGE]));
        let old = &mut page[start..start + SECTOR];
        if old[within..within + bytes.len()] != *bytes {
            self.undo.entry(sector).or_insert_with(|| {
                let mut before = [0; SECTOR];
                before.copy_from_slice(old);
                before
            });
            old[within..within + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn truncate(&mut self, len: u64) {
        if len < self.len {
            let end = self.len.min((self.pages.keys().max().map_or(0, |p| p + 1)) * PAGE as u64);
            let zeros = vec![0; end.saturating_sub(len) as usize];
            self.write(&zeros, len);
        }
        self.len = len;
        self.allocated_bytes = self.allocated_bytes.min(len.next_multiple_of(PAGE as u64));
    }

    fn sync(&mut self) {
        self.undo.clear();
        self.durable_len = self.len;
    }

    /// The kernel reports the failure once and takes the pages for clean.
    fn fail_sync(&mut self) {
        for (sector, before) in self.undo.drain() {
            self.lost.entry(sector).or_insert(before);
        }
    }

    fn lose_power(&mut self, random: &mut Random, kept: &mut impl FnMut(&mut Random) -> bool) {
        let mut unsynced: Vec<(u64, [u8; SECTOR])> = self.undo.drain().collect();
        unsynced.extend(self.lost.drain());
        unsynced.sort_unstable_by_key(|(sector, _)| *sector);
        for (sector, before) in unsynced {
            if !kept(random) {
                self.write_in_sector(sector, 0, &before);
            }
        }
        if self.len != self.durable_len && !kept(random) {
            self.len = self.durable_len;
        }
        self.sync();
    }
}

fn power_off() -> io::Error {
    io::Error::other("simulated power loss")
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(ErrorKind::NotFound, path.display().to_string())
}

impl Disk for SimulatedDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        state.dirs.insert(dir.to_owned());
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.shared.state.lock();
        state.alive()?;
        if !state.dirs.contains(dir) {
            return Err(not_found(dir));
        }
        let inside = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        let id = match (state.names.get(path), create) {
            (Some(_), true) => return Err(ErrorKind::AlreadyExists.into()),
            (Some(id), false) => *id,
            (None, false) => return Err(not_found(path)),
            (None, true) => {
                state.count()?;
                state.files_made += 1;
                let id = state.files_made;
                state.names.insert(path.to_owned(), id);
                state.files.insert(id, Content::default());
                id
            }
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Arc::new(SimulatedFile { shared: self.shared.clone(), id, name }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        let id = state.names.remove(from).ok_or_else(|| not_found(from))?;
        state.names.insert(to.to_owned(), id);
        state.count()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        state.names.remove(path).ok_or_else(|| not_found(path))?;
        state.count()
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.count()?;
        let State { names, durable_names, .. } = &mut *state;
        durable_names.retain(|path, _| path.parent() != Some(dir));
        let inside = names.iter().filter(|(path, _)| path.parent() == Some(dir));
        durable_names.extend(inside.map(|(path, id)| (path.clone(), *id)));
        Ok(())
    }

    fn space(&self, _dir: &Path) -> io::Result<Space> {
        let state = self.shared.state.lock();
        state.alive()?;
        let total_bytes = state.capacity_bytes.unwrap_or(1 << 50);
        let free_bytes = total_bytes.saturating_sub(state.used_bytes());
        Ok(Space { free_bytes, total_bytes })
    }

    fn lock(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.shared.state.lock().alive()?;
        if !self.shared.locks.lock().insert(dir.to_owned()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(LockGuard { shared: self.shared.clone(), dir: dir.to_owned() }))
    }
}

impl SimulatedFile {
    fn with<T>(&self, act: impl FnOnce(&mut Content) -> T) -> io::Result<T> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        self.content(&mut state).map(act)
    }

    fn content<'a>(&self, state: &'a mut MutexGuard<'_, State>) -> io::Result<&'a mut Content> {
        state.files.get_mut(&self.id).ok_or_else(power_off)
    }
}

impl DiskFile for SimulatedFile {
    fn read_at(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.with(|content| content.read(buf, position))
    }

    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        self.read_at(buf, position)
    }

    fn write_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        if state.fails(Kind::Write, &self.name) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        let len: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        state.reserve(self.id, position + len)?;
        let content = self.content(&mut state)?;
        let mut position = position;
        for slice in slices {
            content.write(slice, position);
            position += slice.len() as u64;
        }
        state.count()
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if state.syncs_hang {
            state.syncing.push(self.name.clone());
            while state.syncs_hang && !state.dead {
                self.shared.released.wait(&mut state);
            }
            if let Some(at) = state.syncing.iter().position(|name| *name == self.name) {
                state.syncing.swap_remove(at);
            }
        }
        state.count()?;
        let fails = state.fails(Kind::Sync, &self.name);
        let content = self.content(&mut state)?;
        if fails {
            content.fail_sync();
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        content.sync();
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        state.reserve(self.id, len)?;
        let content = self.content(&mut state)?;
        content.len = content.len.max(len);
        state.count()
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        self.content(&mut state)?.truncate(len);
        state.count()
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|content| content.len)
    }

    fn next_written(&self, position: u64) -> io::Result<Option<u64>> {
        self.with(|content| {
            let first_page = position / PAGE as u64;
            let page = content.pages.keys().copied().filter(|page| *page >= first_page).min()?;
            let found = position.max(page * PAGE as u64);
            (found < content.len).then_some(found)
        })
    }

    fn forget(&self, _position: u64, _len: u64) {}
}

/// SplitMix64: small, and the same everywhere.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &Arc<dyn DiskFile>, bytes: &[u8], position: u64) {
        file.write_at(&mut [IoSlice::new(bytes)], position).unwrap();
    }

    fn disk_with_file(name: &str) -> (SimulatedDisk, PathBuf, Arc<dyn DiskFile>) {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/d")).unwrap();
        let path = Path::new("/d").join(name);
        let file = disk.open(&path, true).unwrap();
        (disk, path, file)
    }

    #[test]
    fn what_was_synced_survives_any_power_loss() {
        for seed in 0..100 {
            let (disk, path, file) = disk_with_file("f");
            write(&file, &[7; 5000], 300);
            file.sync().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            write(&file, &[8; 5000], 9000);
            let after = disk.power_loss(seed).content(&path).unwrap();
            assert_eq!(after[300..5300], [7; 5000]);
        }
    }

    #[test]
    fn unsynced_sectors_names_and_lengths_may_go_each_on_its_own() {
        let (mut torn, mut nameless, mut shorter) = (0, 0, 0);
        for seed in 0..200 {
            let (disk, path, file) = disk_with_file("f");
            write(&file, &[7; SECTOR * 8], 0);
            match disk.power_loss(seed).content(&path) {
                None => nameless += 1,
                Some(content) if content.is_empty() => shorter += 1,
                Some(content) => {
                    let kept = content.iter().filter(|byte| **byte == 7).count();
                    assert_eq!(kept % SECTOR, 0);
                    torn += usize::from(kept > 0 && kept < SECTOR * 8);
                }
            }
        }
        assert!(torn > 10 && nameless > 10 && shorter > 10, "{torn} {nameless} {shorter}");
    }

    #[test]
    fn a_failed_sync_loses_pages_that_the_next_sync_does_not_save() {
        let lost = (0..50).any(|seed| {
            let (disk, path, file) = disk_with_file("f");
            disk.sync_dir(Path::new("/d")).unwrap();
            disk.fail_sync("f", 0);
            write(&file, &[7; SECTOR], 0);
            assert!(file.sync().is_err());
            file.sync().unwrap();
            disk.power_loss(seed).content(&path).unwrap().iter().any(|byte| *byte != 7)
        });
        assert!(lost);
    }

    #[test]
    fn a_full_disk_refuses_growth_but_not_what_was_allocated() {
        let (disk, _, file) = disk_with_file("f");
        disk.set_capacity(Some(8192));
        file.allocate(8192).unwrap();
        write(&file, &[1; 8192], 0);
        let full = file.write_at(&mut [IoSlice::new(&[1])], 8192).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        disk.remove(Path::new("/d/f")).unwrap();
        disk.open(Path::new("/d/g"), true).unwrap().allocate(8192).unwrap();
    }

    #[test]
    fn a_dead_disk_answers_nothing_and_the_next_one_lives() {
        let (disk, path, file) = disk_with_file("f");
        disk.cut_power_after(2);
        write(&file, b"once", 0);
        assert!(file.sync().is_err());
        assert!(disk.list(Path::new("/d")).is_err());
        let next = disk.killed();
        assert_eq!(next.content(&path).unwrap(), b"once");
    }
}
