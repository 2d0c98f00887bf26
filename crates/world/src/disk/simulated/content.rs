//! The bytes of a file, and the bytes that a power loss reverts.

use std::collections::BTreeMap;

use base::HashMap;
use base::collections::Entry;

use super::random::Random;

pub(super) const SECTOR: usize = 512;
pub(super) const PAGE: usize = 4096;

#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) pages: HashMap<u64, Box<[u8; PAGE]>>,
    pub(super) len: u64,
    durable_len: u64,
    pub(super) allocated_bytes: u64,
    /// Previous content of the sectors written since the last sync, by sector number.
    undo: HashMap<u64, [u8; SECTOR]>,
    /// The same for sectors whose sync failed: no later sync saves them, unless they are rewritten.
    lost: HashMap<u64, [u8; SECTOR]>,
    /// Bytes that changed at rest, and whether they were overwritten since the last sync.
    corrupted: BTreeMap<u64, bool>,
}

impl Content {
    pub(super) fn read(&self, buf: &mut [u8], position: u64) -> usize {
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

    pub(super) fn write(&mut self, bytes: &[u8], position: u64) {
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

    /// Changes a byte at rest, whether or not it was synced, without a write.
    pub(super) fn corrupt(&mut self, position: u64, mask: u8) {
        let page = self.pages.entry(position / PAGE as u64).or_insert_with(|| Box::new([0; PAGE]));
        page[(position % PAGE as u64) as usize] ^= mask;
        let (sector, within) = (position / SECTOR as u64, (position % SECTOR as u64) as usize);
        for before in [self.undo.get_mut(&sector), self.lost.get_mut(&sector)].into_iter().flatten()
        {
            before[within] ^= mask;
        }
        self.corrupted.insert(position, false);
    }

    /// Whether a byte that changed at rest was not durably rewritten since.
    pub(super) fn is_corrupted(&self) -> bool {
        self.corrupted.range(..self.len).next().is_some()
    }

    fn write_in_sector(&mut self, sector: u64, within: usize, bytes: &[u8]) {
        let from = sector * SECTOR as u64 + within as u64;
        let written = from..from + bytes.len() as u64;
        self.corrupted.range_mut(written).for_each(|(_, overwritten)| *overwritten = true);
        let per_page = (PAGE / SECTOR) as u64;
        let start = (sector % per_page) as usize * SECTOR;
        let page = self.pages.entry(sector / per_page);
        if matches!(page, Entry::Vacant(_)) && bytes.iter().all(|b| *b == 0) {
            return;
        }
        let page = page.or_insert_with(|| Box::new([0; PAGE]));
        let old = &mut page[start..start + SECTOR];
        // Dirty again: the next sync writes the sector.
        if let Some(before) = self.lost.remove(&sector) {
            self.undo.insert(sector, before);
        }
        if old[within..within + bytes.len()] != *bytes {
            self.undo.entry(sector).or_insert_with(|| {
                let mut before = [0; SECTOR];
                before.copy_from_slice(old);
                before
            });
            old[within..within + bytes.len()].copy_from_slice(bytes);
        }
    }

    pub(super) fn truncate(&mut self, len: u64) {
        if len < self.len {
            let end = self.len.min((self.pages.keys().max().map_or(0, |p| p + 1)) * PAGE as u64);
            let zeros = vec![0; end.saturating_sub(len) as usize];
            self.write(&zeros, len);
        }
        self.len = len;
        self.allocated_bytes = self.allocated_bytes.min(len.next_multiple_of(PAGE as u64));
    }

    pub(super) fn sync(&mut self) {
        self.undo.clear();
        let lost = &self.lost;
        self.corrupted.retain(|at, written| !*written || lost.contains_key(&(at / SECTOR as u64)));
        self.durable_len = self.len;
    }

    /// The kernel reports the failure once and marks the pages clean.
    pub(super) fn fail_sync(&mut self) {
        for (sector, before) in self.undo.drain() {
            self.lost.entry(sector).or_insert(before);
        }
    }

    pub(super) fn lose_power(
        &mut self,
        random: &mut Random,
        kept: &mut impl FnMut(&mut Random) -> bool,
    ) {
        let mut unsynced: Vec<(u64, [u8; SECTOR])> = self.undo.drain().collect();
        unsynced.extend(self.lost.drain());
        unsynced.sort_unstable_by_key(|(sector, _)| *sector);
        for (sector, before) in unsynced {
            if !kept(random) {
                self.write_in_sector(sector, 0, &before);
                let from = sector * SECTOR as u64;
                let reverted = self.corrupted.range_mut(from..from + SECTOR as u64);
                reverted.for_each(|(_, overwritten)| *overwritten = false);
            }
        }
        if self.len != self.durable_len && !kept(random) {
            // Bytes behind the end do not come back when the file grows.
            self.truncate(self.durable_len);
        }
        self.sync();
    }
}
