//! The faults that a test injects, and its queries about the disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::content::Content;
use super::random::Random;
use super::state::{InjectedFailure, Kind, State};
use super::{Shared, SimulatedDisk};

impl SimulatedDisk {
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared::default()) }
    }

    /// Sets the capacity of the disk; `None` for unlimited.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.state.lock().capacity_bytes = bytes;
    }

    /// After `calls_before` more writes to files whose path contains `path_part`, one fails (EIO).
    pub fn fail_write(&self, path_part: &str, calls_before: u64) {
        self.fail(Kind::Write, path_part, calls_before);
    }

    /// As [`SimulatedDisk::fail_write`], for syncs.
    pub fn fail_sync(&self, path_part: &str, calls_before: u64) {
        self.fail(Kind::Sync, path_part, calls_before);
    }

    fn fail(&self, kind: Kind, path_part: &str, calls_before: u64) {
        let failing = InjectedFailure { kind, path_part: path_part.to_owned(), calls_before };
        self.shared.state.lock().failing.push(failing);
    }

    /// Clears the faults of [`SimulatedDisk::fail_write`], [`SimulatedDisk::fail_sync`] and
    /// [`SimulatedDisk::set_capacity`].
    pub fn clear_faults(&self) {
        let mut state = self.shared.state.lock();
        state.failing.clear();
        state.capacity_bytes = None;
    }

    /// Makes syncs of files hang, until it is called with `false`.
    pub fn hang_syncs(&self, hang: bool) {
        self.shared.state.lock().syncs_hang = hang;
        self.shared.released.notify_all();
    }

    /// Whether a sync of a file whose path contains `path_part` hangs at the moment.
    pub fn sync_hangs(&self, path_part: &str) -> bool {
        let state = self.shared.state.lock();
        state.syncs_hang && state.syncing.iter().any(|path| path.contains(path_part))
    }

    /// Makes reads that have to wait for the disk hang, until it is called with `false`.
    pub fn hang_reads(&self, hang: bool) {
        self.shared.state.lock().reads_hang = hang;
        self.shared.released.notify_all();
    }

    /// Number of reads that hang at the moment.
    pub fn hanging_reads(&self) -> usize {
        self.shared.state.lock().reading
    }

    /// Whether the power is off, or the process that used it was killed.
    pub fn is_dead(&self) -> bool {
        self.shared.state.lock().dead
    }

    /// Number of changes (writes, syncs, allocations, changes of names) so far.
    pub fn operations(&self) -> u64 {
        self.shared.state.lock().operations
    }

    /// The power fails after this many more changes: every later operation fails.
    pub fn cut_power_after(&self, operations: u64) {
        let mut state = self.shared.state.lock();
        state.cut_power_at = Some(state.operations + operations);
    }

    /// The disk as it is found after a power loss now. The old one is dead from then on.
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
            renamed_dirs: std::mem::take(&mut old.renamed_dirs),
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
        self.corrupt(path, position, &[1 << (bit % 8)]);
    }

    /// Flips the bits of `mask`, on the medium.
    pub fn corrupt(&self, path: &Path, position: u64, mask: &[u8]) {
        self.edit(path, |content| {
            for (at, mask) in (position..).zip(mask) {
                content.corrupt(at, *mask);
            }
        });
    }

    /// Files with bits that were flipped and not rewritten since, in the order of their names.
    pub fn corrupted_files(&self) -> Vec<PathBuf> {
        let state = self.shared.state.lock();
        let is_corrupted = |id: &u64| state.files.get(id).is_some_and(Content::is_corrupted);
        // A name whose removal is not durable may come back.
        let names = state.durable_names.iter().chain(&state.names);
        let corrupted = names.filter(|(_, id)| is_corrupted(id)).map(|(path, _)| path.clone());
        corrupted.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// All existing files, in the order of their names.
    pub fn files(&self) -> Vec<PathBuf> {
        self.shared.state.lock().names.keys().cloned().collect()
    }

    /// Overwrites bytes on the medium.
    pub fn damage(&self, path: &Path, position: u64, bytes: &[u8]) {
        self.edit(path, |content| {
            content.write(bytes, position);
            content.sync();
        });
    }

    /// Cuts a file short, on the medium.
    pub fn cut_file(&self, path: &Path, len: u64) {
        self.edit(path, |content| {
            content.truncate(len);
            content.sync();
        });
    }

    /// Removes a file, on the medium.
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
    }
}
