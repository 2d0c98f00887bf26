//! A simulated log: segments on a simulated disk, entries that are replayed after a crash, and the
//! map of the batches that must be readable.

mod check;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::address::{Address, StoredBatches};
use crate::index::files::{FileKind, file_name};
use crate::index::{Index, LogBodies, RunTable, Setup};
use crate::reclaim::CompactionDecision;
use world::{Disk, DiskFile, SimulatedDisk};

pub(super) use check::joined;

const DIR: &str = "/journal";
/// Position of the first body of a segment.
const FIRST_BODY: u32 = 64;

/// Bodies in the frames of the log, and the last few as its tail cache.
#[derive(Debug, Default)]
pub(super) struct FakeLog {
    bodies: Mutex<BTreeMap<u32, Vec<(u64, Address)>>>,
    tail: Mutex<VecDeque<(u32, u32, Bytes)>>,
}

impl LogBodies for FakeLog {
    fn scan(
        &self,
        segment: u32,
        _file: &dyn DiskFile,
        found: &mut dyn FnMut(u64, Address),
    ) -> io::Result<()> {
        for (stream, address) in self.bodies.lock().get(&segment).into_iter().flatten() {
            found(*stream, *address);
        }
        Ok(())
    }

    fn recent(&self, address: &Address) -> Option<Bytes> {
        let place = (address.segment, address.position);
        let tail = self.tail.lock();
        tail.iter().find(|(id, at, _)| (*id, *at) == place).map(|(_, _, bytes)| bytes.clone())
    }
}

#[derive(Clone, Copy, Debug)]
enum LoggedOperation {
    Accept(u64, Address),
    Refuse(u64, Address),
    Trim(u64, u64),
    Punch(u64, u64, u64),
    Remove(u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ModelBatch {
    pub(super) span: u32,
    pub(super) max_timestamp: i64,
    pub(super) bytes: Bytes,
    /// Identity of the body, which it may share with others.
    body: u64,
}

#[derive(Debug)]
struct Snapshot {
    table: Vec<u8>,
    entries: usize,
    claimed_from: u32,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) disk: SimulatedDisk,
    log: Arc<FakeLog>,
    pub(super) index: Arc<Index>,
    /// The log: an entry's position is its index.
    entries: Vec<LoggedOperation>,
    /// Last index and size of the segments that the log no longer writes to.
    full: BTreeMap<u32, (u64, u64)>,
    snapshot: Option<Snapshot>,
    /// Retained captures, and their bytes when they were taken.
    captures: Vec<(RunTable, Vec<u8>)>,
    active: u32,
    position: u32,
    pub(super) model: BTreeMap<u64, BTreeMap<u64, ModelBatch>>,
    /// Every offset that was ever trimmed or punched.
    dead: BTreeMap<u64, BTreeSet<u64>>,
    ends: BTreeMap<u64, u64>,
    rewrites: u64,
}

impl World {
    pub(super) fn new() -> Self {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new(DIR)).unwrap();
        let log = Arc::new(FakeLog::default());
        let index = open(&disk, &log, None).unwrap();
        let mut world = Self {
            disk,
            log,
            index,
            entries: Vec::new(),
            full: BTreeMap::new(),
            snapshot: None,
            captures: Vec::new(),
            active: 0,
            position: FIRST_BODY,
            model: BTreeMap::new(),
            dead: BTreeMap::new(),
            ends: BTreeMap::new(),
            rewrites: 0,
        };
        world.begin_segment();
        world
    }

    fn begin_segment(&mut self) {
        self.active += 1;
        self.position = FIRST_BODY;
        let file = self.disk.open(&self.path(FileKind::Segment, self.active, 1), true).unwrap();
        file.write_at(&mut [IoSlice::new(&[0; FIRST_BODY as usize])], 0).unwrap();
        file.sync().unwrap();
        self.disk.sync_dir(Path::new(DIR)).unwrap();
    }

    pub(super) fn path(&self, kind: FileKind, segment: u32, generation: u32) -> PathBuf {
        Path::new(DIR).join(file_name(kind, segment, generation))
    }

    /// Writes a batch; `roll` rolls between writing and applying it.
    pub(super) fn append(&mut self, stream: u64, span: u32, len: u32, time: i64, roll: bool) {
        self.fan_out(&[(stream, true)], span, len, time, roll);
    }

    /// Writes a batch once for several streams, some of which refuse it.
    pub(super) fn fan_out(
        &mut self,
        streams: &[(u64, bool)],
        span: u32,
        len: u32,
        time: i64,
        roll: bool,
    ) {
        let (address, bytes) = self.write(span, len, time);
        let body = self.entries.len() as u64;
        let rows: Vec<LoggedOperation> = streams
            .iter()
            .map(|&(stream, taken)| {
                let (base_offset, shared) = (self.end(stream), streams.len() > 1);
                let address = Address { base_offset, shared, ..address };
                self.log.bodies.lock().entry(self.active).or_default().push((stream, address));
                if !taken {
                    return LoggedOperation::Refuse(stream, address);
                }
                self.ends.insert(stream, address.next_offset());
                let bytes = StoredBatches::at(&address, bytes.clone()).into_bytes();
                let batch = ModelBatch { span, max_timestamp: time, bytes, body };
                self.model.entry(stream).or_default().insert(base_offset, batch);
                LoggedOperation::Accept(stream, address)
            })
            .collect();
        if roll {
            self.roll_after((self.entries.len() + rows.len() - 1) as u64);
        }
        rows.into_iter().for_each(|row| self.apply(row));
    }

    /// Writes a batch that the machine refuses.
    pub(super) fn append_refused(&mut self, stream: u64, span: u32, len: u32) {
        self.fan_out(&[(stream, false)], span, len, 0, false);
    }

    fn write(&mut self, span: u32, len: u32, time: i64) -> (Address, Bytes) {
        let fill = (self.entries.len() as u64 * 31) as u8;
        let bytes: Bytes = (0..len).map(|place| fill.wrapping_add(place as u8)).collect();
        let address = Address {
            segment: self.active,
            position: self.position,
            len,
            span,
            base_offset: 0,
            max_timestamp: time,
            shared: false,
        };
        let file = self.disk.open(&self.path(FileKind::Segment, self.active, 1), false).unwrap();
        file.write_at(&mut [IoSlice::new(&bytes)], u64::from(self.position)).unwrap();
        file.sync().unwrap();
        // Every third batch is followed by a gap, as an entry's head is.
        self.position += len + if self.entries.len().is_multiple_of(3) { 40 } else { 0 };
        let mut tail = self.log.tail.lock();
        tail.push_back((address.segment, address.position, bytes.clone()));
        if tail.len() > 3 {
            tail.pop_front();
        }
        drop(tail);
        (address, bytes)
    }

    fn apply(&mut self, entry: LoggedOperation) {
        apply(&self.index, self.entries.len() as u64, entry);
        self.entries.push(entry);
    }

    pub(super) fn roll(&mut self) {
        if let Some(last) = self.entries.len().checked_sub(1)
            && self.position > FIRST_BODY
        {
            self.roll_after(last as u64);
        }
    }

    fn roll_after(&mut self, last_index: u64) {
        let file_bytes = u64::from(self.position);
        let file = self.disk.open(&self.path(FileKind::Segment, self.active, 1), false).unwrap();
        file.allocate(file_bytes).unwrap();
        file.sync().unwrap();
        self.full.insert(self.active, (last_index, file_bytes));
        self.index.full(self.active, last_index, file_bytes);
        self.begin_segment();
    }

    pub(super) fn trim(&mut self, stream: u64, start: u64) {
        self.kill(stream, 0, start);
        self.apply(LoggedOperation::Trim(stream, start));
    }

    pub(super) fn punch(&mut self, stream: u64, from: u64, to: u64) {
        // A punch does not affect later batches.
        self.kill(stream, from, to.min(self.end(stream)));
        self.apply(LoggedOperation::Punch(stream, from, to));
    }

    /// A batch is dead once every offset of it is.
    fn kill(&mut self, stream: u64, from: u64, to: u64) {
        let dead = self.dead.entry(stream).or_default();
        dead.extend(from..to);
        if let Some(batches) = self.model.get_mut(&stream) {
            batches.retain(|&base, batch| {
                (base..base + u64::from(batch.span)).any(|offset| !dead.contains(&offset))
            });
            if batches.is_empty() {
                self.model.remove(&stream);
            }
        }
    }

    pub(super) fn remove(&mut self, stream: u64) {
        self.model.remove(&stream);
        self.apply(LoggedOperation::Remove(stream));
    }

    pub(super) fn end(&self, stream: u64) -> u64 {
        self.ends.get(&stream).copied().unwrap_or(0)
    }

    pub(super) fn active(&self) -> u32 {
        self.active
    }

    /// Applies the whole log: full segments may be sealed.
    pub(super) fn seal(&self) -> io::Result<()> {
        if let Some(last) = self.entries.len().checked_sub(1) {
            self.index.applied(last as u64);
        }
        self.index.seal_due()
    }

    pub(super) fn take_snapshot(&mut self) {
        let capture = self.index.capture();
        self.snapshot = Some(Snapshot {
            table: capture.table.encode(),
            entries: self.entries.len(),
            claimed_from: self.active,
        });
        self.index.snapshot_written(&capture.dead, self.active);
        let bytes = capture.table.encode();
        self.captures.push((capture.table, bytes));
    }

    /// Compaction as a broker does it: drops or halves some batches.
    pub(super) fn compact(&mut self, segment: u32, every: u64) {
        let mut seen = 0;
        // Numbers that are not log indexes.
        let mut fresh = u64::MAX - self.rewrites * 10_000;
        self.rewrites += 1;
        let model = &mut self.model;
        // Refused without effect if the segment is not sealed or not covered by a snapshot.
        let _ = self.index.rewrite(segment, &mut |stream, address, bytes| {
            seen += 1;
            let batches = model.get_mut(&stream).expect("asked about a live stream");
            let batch = batches.get_mut(&address.base_offset).expect("asked about a live batch");
            assert_eq!(batch.bytes, bytes);
            match seen % every {
                0 => {
                    batches.remove(&address.base_offset);
                    if batches.is_empty() {
                        model.remove(&stream);
                    }
                    CompactionDecision::Drop
                }
                1 => {
                    let half = Bytes::copy_from_slice(&bytes[..bytes.len().div_ceil(2)]);
                    batch.bytes = half.clone();
                    fresh -= 1;
                    batch.body = fresh;
                    CompactionDecision::Replace(half)
                }
                _ => CompactionDecision::Same,
            }
        });
    }

    /// Restarts the process with `disk`.
    pub(super) fn reopen(&mut self, disk: SimulatedDisk) {
        self.log.tail.lock().clear();
        self.index = open(&disk, &self.log, self.snapshot.as_ref()).unwrap();
        self.disk = disk;
        let (applied, claimed_from) =
            self.snapshot.as_ref().map_or((0, 1), |it| (it.entries, it.claimed_from));
        for (&segment, &(last_index, file_bytes)) in self.full.range(claimed_from..) {
            self.index.full(segment, last_index, file_bytes);
        }
        for (log_index, entry) in self.entries.iter().enumerate().skip(applied) {
            apply(&self.index, log_index as u64, *entry);
        }
    }

    /// Bytes of segment files that the log no longer writes to.
    pub(super) fn full_bytes(&self) -> u64 {
        let active = file_name(FileKind::Segment, self.active, 1);
        let names = self.disk.list(Path::new(DIR)).unwrap();
        let segments = names.iter().filter(|name| name.ends_with(".seg") && **name != active);
        let len = |name: &String| {
            self.disk.open(&Path::new(DIR).join(name), false).unwrap().len().unwrap()
        };
        segments.map(len).sum()
    }

    /// Each body once.
    pub(super) fn live_bytes(&self) -> u64 {
        let batches = self.model.values().flat_map(BTreeMap::values);
        let bodies: BTreeMap<u64, u64> =
            batches.map(|batch| (batch.body, batch.bytes.len() as u64)).collect();
        bodies.values().sum()
    }
}

fn open(
    disk: &SimulatedDisk,
    log: &Arc<FakeLog>,
    snapshot: Option<&Snapshot>,
) -> Result<Arc<Index>, crate::error::OpenError> {
    let setup = Setup {
        disk: Arc::new(disk.clone()),
        dir: DIR.into(),
        log: log.clone(),
        sidecar_cache_bytes: 300,
        check: crate::BatchCheck(|_, _| true),
        repairable: false,
    };
    let table = snapshot.map_or_else(RunTable::default, |it| RunTable::decode(&it.table).unwrap());
    Index::open(setup, table, snapshot.map_or(1, |it| it.claimed_from), None).map(Arc::new)
}

fn apply(index: &Index, log_index: u64, entry: LoggedOperation) {
    match entry {
        LoggedOperation::Accept(stream, address) => index.accept(log_index, stream, address),
        LoggedOperation::Refuse(stream, address) => index.refuse(log_index, stream, address),
        LoggedOperation::Punch(stream, from, to) => {
            index.punch(stream, from, to);
            index.applied(log_index);
        }
        LoggedOperation::Trim(stream, start) => {
            index.trim(stream, start);
            index.applied(log_index);
        }
        LoggedOperation::Remove(stream) => {
            index.remove(stream..stream + 1);
            index.applied(log_index);
        }
    }
}
