//! A file of the disk.

use std::io::{self, IoSlice};
use std::sync::Arc;

use parking_lot::MutexGuard;

use super::content::{Content, PAGE};
use super::state::{Kind, State};
use super::{Shared, power_off};
use crate::disk::DiskFile;

#[derive(Debug)]
pub(super) struct SimulatedFile {
    pub(super) shared: Arc<Shared>,
    pub(super) id: u64,
    /// The path under which it was opened.
    pub(super) path: String,
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
        let mut state = self.shared.state.lock();
        state.reading += 1;
        while state.reads_hang && !state.dead {
            self.shared.released.wait(&mut state);
        }
        state.reading -= 1;
        state.alive()?;
        self.content(&mut state).map(|content| content.read(buf, position))
    }

    fn read_at_cached(&self, buf: &mut [u8], position: u64) -> io::Result<usize> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        if state.reads_hang {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.content(&mut state).map(|content| content.read(buf, position))
    }

    fn write_at(&self, slices: &mut [IoSlice<'_>], position: u64) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        state.alive()?;
        if state.fails(Kind::Write, &self.path) {
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
            state.syncing.push(self.path.clone());
            while state.syncs_hang && !state.dead {
                self.shared.released.wait(&mut state);
            }
            if let Some(at) = state.syncing.iter().position(|path| *path == self.path) {
                state.syncing.swap_remove(at);
            }
        }
        state.count()?;
        let fails = state.fails(Kind::Sync, &self.path);
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
