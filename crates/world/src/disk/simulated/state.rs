//! The names and files of the disk, and the injected faults.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use base::HashMap;

use super::content::{Content, PAGE};
use super::power_off;
use super::random::Random;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) names: BTreeMap<PathBuf, u64>,
    pub(super) durable_names: BTreeMap<PathBuf, u64>,
    /// Renames of directories that no sync of their parent has made durable, in order.
    pub(super) renamed_dirs: Vec<(PathBuf, PathBuf)>,
    pub(super) dirs: BTreeSet<PathBuf>,
    pub(super) files: HashMap<u64, Content>,
    pub(super) files_made: u64,
    pub(super) capacity_bytes: Option<u64>,
    /// The power is off: every operation fails.
    pub(super) dead: bool,
    /// Changes done, of any kind.
    pub(super) operations: u64,
    pub(super) cut_power_at: Option<u64>,
    pub(super) failing: Vec<InjectedFailure>,
    pub(super) syncs_hang: bool,
    pub(super) reads_hang: bool,
    /// Reads that hang.
    pub(super) reading: usize,
    /// Paths of the files with syncs in progress.
    pub(super) syncing: Vec<String>,
}

/// The n-th call from now of one kind, on files whose path contains some text, fails.
#[derive(Debug)]
pub(super) struct InjectedFailure {
    pub(super) kind: Kind,
    pub(super) path_part: String,
    pub(super) calls_before: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Write,
    Sync,
}

impl State {
    pub(super) fn alive(&self) -> io::Result<()> {
        if self.dead { Err(power_off()) } else { Ok(()) }
    }

    /// Counts a change. Returns an error if it cuts the power.
    pub(super) fn count(&mut self) -> io::Result<()> {
        self.operations += 1;
        if self.cut_power_at.is_some_and(|at| self.operations >= at) {
            self.dead = true;
        }
        self.alive()
    }

    pub(super) fn fails(&mut self, kind: Kind, path: &str) -> bool {
        let mut fails = false;
        self.failing.retain_mut(|failing| {
            if failing.kind != kind || !path.contains(&failing.path_part) {
                return true;
            }
            let now = failing.calls_before == 0;
            failing.calls_before = failing.calls_before.saturating_sub(1);
            fails |= now;
            !now
        });
        fails
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.names.values().filter_map(|id| self.files.get(id)).map(|f| f.allocated_bytes).sum()
    }

    /// Allocates space for the first `end` bytes of a file.
    pub(super) fn reserve(&mut self, id: u64, end: u64) -> io::Result<()> {
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

    /// Rejected if the new name has files, as the system does.
    pub(super) fn rename_dir(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if self.names.keys().any(|path| path.parent() == Some(to)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.move_dir(from, to);
        self.renamed_dirs.push((from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn move_dir(&mut self, from: &Path, to: &Path) {
        let moved = |path: &PathBuf| match path.strip_prefix(from) {
            Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
            Ok(rest) => to.join(rest),
            Err(_) => path.clone(),
        };
        for names in [&mut self.names, &mut self.durable_names] {
            *names = names.iter().map(|(path, id)| (moved(path), *id)).collect();
        }
        self.dirs = self.dirs.iter().map(moved).collect();
    }

    pub(super) fn lose_power(&mut self, random: &mut Random) {
        let keep = [0, 1, 4, 7, 8][random.below(5) as usize];
        let mut kept = |random: &mut Random| random.below(8) < keep;
        // A later rename is not durable without those before it.
        let renamed = std::mem::take(&mut self.renamed_dirs);
        let durable = renamed.iter().position(|_| !kept(random)).unwrap_or(renamed.len());
        for (from, to) in renamed[durable..].iter().rev() {
            self.move_dir(to, from);
        }
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
