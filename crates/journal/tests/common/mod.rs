//! Helpers of the journal's black-box tests: distinguishable entries, and waiting.

#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bytes::Bytes;
use journal::{
    Body, Entry, EntryId, EntryKind, Journal, JournalFailed, OpenedJournal, Options, StoredBatches,
};
use world::{Disk, SimulatedDisk, World};

pub const DIR: &str = "/shard";

pub fn small() -> Options {
    Options {
        segment_bytes: 64 << 10,
        frame_bytes_max: 16 << 10,
        tail_cache_bytes: 32 << 10,
        disk_reserve_bytes: 0,
        readers: 1,
        ..Options::default()
    }
}

pub fn try_open(
    disk: &SimulatedDisk,
    options: Options,
) -> Result<OpenedJournal, journal::OpenError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Journal::open(&World::on(disk), Path::new(DIR), options)
}

pub fn open(disk: &SimulatedDisk) -> OpenedJournal {
    try_open(disk, small()).unwrap()
}

/// Bytes that depend on the entry and the position in it, so that all differ.
pub fn filling(seed: u64, len: usize) -> Bytes {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// An entry with one body of `len` bytes at `offset` of stream 7.
pub fn entry(term: u64, index: u64, offset: u64, len: usize) -> Entry {
    Entry {
        id: EntryId { term, leader: 1, index },
        kind: EntryKind::Command,
        head: filling(index ^ 0xFFFF, (index % 40) as usize),
        bodies: vec![Body {
            stream: 7,
            base_offset: offset,
            span: 1,
            max_timestamp: 1_000 + index as i64,
            bytes: filling(index ^ (term << 32), len),
        }],
    }
}

pub fn blank(term: u64, index: u64) -> Entry {
    let id = EntryId { term, leader: 1, index };
    Entry { id, kind: EntryKind::Blank, head: Bytes::new(), bodies: Vec::new() }
}

/// Appends; the receiver gets the argument of the callback.
pub fn append(journal: &Journal, entries: Vec<Entry>) -> Receiver<Result<(), JournalFailed>> {
    let (told, hears) = channel();
    // A test that does not wait for it has dropped the receiver.
    journal.append(entries, move |result| drop(told.send(result))).unwrap();
    hears
}

pub fn append_durably(journal: &Journal, entries: Vec<Entry>) {
    append(journal, entries).recv_timeout(PATIENCE).expect("an answer").expect("durable");
}

/// Timeout of tests.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = world::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All entries of the log, read back.
pub fn all(journal: &Journal) -> Vec<Entry> {
    let first = journal.purged_id().map(|id| id.index + 1);
    let (Some(last), first) = (journal.last_id(), first.unwrap_or(1)) else { return Vec::new() };
    let mut entries = Vec::new();
    let mut next = first;
    while next <= last.index {
        let some = journal.entries(next..last.index + 1, 100_000).unwrap();
        assert!(!some.is_empty());
        next += some.len() as u64;
        entries.extend(some);
    }
    entries
}

/// Checks that stream 7 serves exactly the bodies of `entries`, one offset each.
pub fn assert_serves(journal: &Journal, entries: &[Entry]) {
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let offset = first.bodies[0].base_offset;
        let read = joined(block_on(journal.read(7, offset, 1 << 20)).unwrap());
        let mut served = &read[..];
        assert!(!served.is_empty(), "nothing at offset {offset}");
        while !served.is_empty() {
            let expected = &rest[0].bodies[0];
            let (body, more) = served.split_at(expected.bytes.len().min(served.len()));
            assert!(body == expected.bytes, "offset {}", expected.base_offset);
            (served, rest) = (more, &rest[1..]);
        }
    }
    let end = entries.last().map_or(0, |last| last.bodies[0].base_offset + 1);
    assert!(block_on(journal.read(7, end, 1 << 20)).unwrap().is_empty());
}

/// The bytes that a consumer receives.
pub fn joined(read: Vec<StoredBatches>) -> Vec<u8> {
    let mut pieces = Vec::new();
    read.into_iter().for_each(|stored| stored.put_pieces(&mut pieces));
    pieces.concat()
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % end
    }
}
