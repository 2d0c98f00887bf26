//! A history that every replica applies in the same way, and a replica with a part of it.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use journal::transfer::{
    Export, Import, ImportError, Manifest, ReceivedSections, ReceiverState, Section,
};
use journal::{BatchCheck, Body, Entry, EntryId, EntryKind, Journal, Options};
use world::{SimulatedDisk, World};

use crate::common::*;

pub(crate) const STREAMS: u64 = 4;
/// Size of a request.
const PIECE_BYTES: usize = 3_000;

pub(crate) type LiveBodies = BTreeMap<u64, BTreeMap<u64, Bytes>>;

/// An entry, and the effects of applying it.
#[derive(Clone)]
pub(crate) struct ReplicaEntry {
    pub(crate) entry: Entry,
    accepted: Vec<bool>,
    trim: Option<(u64, u64)>,
    punch: Option<(u64, u64, u64)>,
    remove: Option<u64>,
}

/// All committed entries; entry 1 is the first.
pub(crate) struct History {
    pub(crate) logged: Vec<ReplicaEntry>,
    /// Live batches after each entry, beginning before the first.
    live: Vec<LiveBodies>,
    ends: BTreeMap<u64, u64>,
    /// Number of times that each stream was created, after each entry.
    lives: Vec<BTreeMap<u64, u64>>,
    /// Batches with which removed streams come back: those that were live, batch by batch.
    returning: BTreeMap<u64, VecDeque<(u64, Bytes)>>,
}

pub(crate) fn id(index: u64) -> EntryId {
    EntryId { term: 1, leader: 1, index }
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            logged: Vec::new(),
            live: vec![LiveBodies::new()],
            ends: BTreeMap::new(),
            lives: vec![BTreeMap::new()],
            returning: BTreeMap::new(),
        }
    }

    pub(crate) fn last(&self) -> u64 {
        self.logged.len() as u64
    }

    pub(crate) fn live_at(&self, index: u64) -> &LiveBodies {
        &self.live[index as usize]
    }

    /// The streams that were removed and created again between the two entries.
    pub(crate) fn renewed(&self, from: u64, to: u64) -> Vec<u64> {
        let lives = |index: u64| &self.lives[index as usize];
        let is_other = |stream: &u64| lives(from).get(stream) != lives(to).get(stream);
        (0..STREAMS).filter(is_other).collect()
    }

    /// Appends an entry: bodies, some of them refused or shared, and perhaps a trim, punch or
    /// removal.
    pub(crate) fn grow(&mut self, random: &mut Random) {
        let index = self.last() + 1;
        let mut live = self.live_at(self.last()).clone();
        let (mut bodies, mut accepted) = (Vec::new(), Vec::new());
        let comes_back = self.returning.values().any(|rest| !rest.is_empty());
        let mut add = |stream: u64, bytes: &Bytes, shared: bool, taken: bool| {
            let end = self.ends.get(&stream).copied().unwrap_or(0);
            let rest = self.returning.entry(stream).or_default();
            let (base_offset, bytes) = match rest.front() {
                Some((base_offset, had)) => (*base_offset, had.clone()),
                None if shared => (end, bytes.clone()),
                None => (end, based(bytes, end)),
            };
            accepted.push(taken);
            if taken {
                live.entry(stream).or_default().insert(base_offset, based(&bytes, base_offset));
                if rest.pop_front().is_none() {
                    self.ends.insert(stream, base_offset + 1);
                }
            }
            let max_timestamp = index as i64;
            bodies.push(Body { stream, base_offset, span: 1, max_timestamp, bytes });
        };
        for _ in 0..random.below(4) {
            let len_max = if random.below(8) == 0 { 9_000 } else { 900 };
            let len = 70 + random.below(len_max);
            let bytes = batch(random.below(u64::MAX), len as usize);
            add(random.below(STREAMS), &bytes, false, random.below(5) > 0);
        }
        if random.below(3) == 0 {
            let bytes = batch(random.below(u64::MAX), 70 + random.below(900) as usize);
            // Shared by at least two streams: a stream that comes back has its former batches.
            let shared = !comes_back;
            (0..STREAMS).for_each(|stream| add(stream, &bytes, shared, random.below(5) > 0));
        }
        let end = |stream| self.ends.get(&stream).copied().unwrap_or(0);
        let stream = random.below(STREAMS);
        // Nothing of it dies until it is complete.
        let is_whole = self.returning.get(&stream).is_none_or(VecDeque::is_empty);
        let trim = (random.below(12) == 0 && is_whole)
            .then(|| (stream, end(stream) - random.below(end(stream) / 2 + 1)));
        let punch = (random.below(4) == 0 && is_whole).then(|| {
            let from = random.below(end(stream) + 1);
            (stream, from, from + random.below(20))
        });
        let remove = (random.below(60) == 0).then_some(stream);
        if let Some(batches) = live.get_mut(&stream) {
            batches.retain(|base, _| {
                trim.is_none_or(|(_, start)| *base >= start)
                    && punch.is_none_or(|(_, from, to)| !(from..to).contains(base))
            });
        }
        let had = remove.and_then(|stream| live.remove(&stream)).unwrap_or_default();
        if let (Some(stream), true) = (remove, random.below(3) > 0) {
            let rest = self.returning.remove(&stream).unwrap_or_default();
            self.returning.insert(stream, had.into_iter().chain(rest).collect());
        }
        let entry =
            Entry { id: id(index), kind: EntryKind::Command, head: filling(index, 30), bodies };
        self.logged.push(ReplicaEntry { entry, accepted, trim, punch, remove });
        self.live.push(live);
        let mut lives = self.lives[self.lives.len() - 1].clone();
        if let Some(stream) = remove {
            *lives.entry(stream).or_default() += 1;
        }
        self.lives.push(lives);
    }
}

pub(crate) struct Replica {
    pub(crate) disk: SimulatedDisk,
    pub(crate) journal: Journal,
    pub(crate) applied: u64,
    /// Batches that were dead at this log index may be missing: another replica did not send them.
    thinned_to: u64,
}

impl Replica {
    pub(crate) fn new() -> Self {
        let disk = SimulatedDisk::new();
        let journal = try_open(&disk, options()).unwrap().journal;
        Self { disk, journal, applied: 0, thinned_to: 0 }
    }

    /// Recovers from a crash, and applies the log's entries of the history.
    pub(crate) fn reopen(&mut self, disk: SimulatedDisk, history: &History) {
        self.reopen_with(disk, history, options());
    }

    /// The same for a journal that another replica can repair.
    pub(crate) fn reopen_repairable(&mut self, disk: SimulatedDisk, history: &History) {
        self.reopen_with(disk, history, Options { repairable: true, ..options() });
    }

    fn reopen_with(&mut self, disk: SimulatedDisk, history: &History, options: Options) {
        let opened = try_open(&disk, options).unwrap_or_else(|error| panic!("{error}"));
        self.disk = disk;
        self.journal = opened.journal;
        self.applied = opened.snapshot.map_or(0, |snapshot| snapshot.id.index);
        self.apply_own(history);
    }

    /// Applies the log's entries of the history.
    fn apply_own(&mut self, history: &History) {
        let is_own = |index| self.journal.entry_id(index) == Some(id(index));
        while self.applied < history.last() && is_own(self.applied + 1) {
            block_on(self.journal.placed(self.applied + 1)).unwrap();
            self.applied += 1;
            self.apply(&history.logged[self.applied as usize - 1], self.applied);
        }
    }

    /// Replaces the rest of the log by the history up to `to`, and applies it.
    pub(crate) fn follow(&mut self, history: &History, to: u64) {
        if self.journal.last_id().is_some_and(|last| last.index > self.applied) {
            self.journal.truncate_after(Some(self.applied)).unwrap();
        }
        let next = self.applied as usize..to.max(self.applied) as usize;
        let entries: Vec<Entry> =
            history.logged[next].iter().map(|logged| logged.entry.clone()).collect();
        append_durably(&self.journal, entries);
        self.apply_own(history);
    }

    /// Appends entries of a leader without followers.
    pub(crate) fn append_unreplicated(&self, count: u64, random: &mut Random) {
        let first = self.journal.last_id().map_or(1, |last| last.index + 1);
        let entries = (first..first + count).map(|index| {
            let bytes = filling(random.below(u64::MAX), 70 + random.below(900) as usize);
            let (stream, base_offset) = (random.below(STREAMS), 1 << 40);
            let body = Body { stream, base_offset, span: 1, max_timestamp: 0, bytes };
            let id = EntryId { term: 0, leader: 2, index };
            Entry { id, kind: EntryKind::Command, head: Bytes::new(), bodies: vec![body] }
        });
        let _ = self.journal.append(entries.collect(), |_| {});
    }

    fn apply(&self, logged: &ReplicaEntry, index: u64) {
        for (body, accepted) in logged.accepted.iter().enumerate() {
            match accepted {
                true => self.journal.accept(index, body),
                false => self.journal.refuse(index, body),
            }
        }
        if let Some((stream, start)) = logged.trim {
            self.journal.trim(stream, start);
        }
        if let Some((stream, from, to)) = logged.punch {
            self.journal.punch(stream, from, to);
        }
        if let Some(stream) = logged.remove {
            self.journal.remove(stream..stream + 1);
        }
    }

    pub(crate) fn snapshot(&self) -> std::io::Result<()> {
        if self.applied == 0 {
            return Ok(());
        }
        let pending = self.journal.begin_snapshot(id(self.applied), Bytes::from_static(b"meta"));
        pending.write(machine(self.applied)).map(|_| ())
    }

    /// Checks that served batches are right and others reported as damaged. Returns whether all
    /// were served.
    pub(crate) fn serves_all_live_batches(&self, history: &History) -> bool {
        let mut all = true;
        for (&stream, live) in history.live_at(self.applied) {
            for (&offset, bytes) in live {
                match block_on(self.journal.read(stream, offset, 1)) {
                    Ok(read) => assert!(joined(read) == *bytes, "stream {stream} at {offset}"),
                    Err(_) => all = false,
                }
            }
        }
        all
    }

    /// Checks that it serves all live batches, and none that never was; those that died since the
    /// transfer are optional.
    pub(crate) fn check(&self, history: &History) {
        let thinned_to = self.applied.max(self.thinned_to);
        let certainly = history.live_at(thinned_to);
        let renewed = history.renewed(self.applied, thinned_to);
        let perhaps = history.live_at(self.applied);
        for stream in 0..STREAMS {
            let none = BTreeMap::new();
            // A stream that has come back since was gone in between.
            let certainly = certainly.get(&stream).filter(|_| !renewed.contains(&stream));
            let certainly = certainly.unwrap_or(&none);
            let perhaps = perhaps.get(&stream).unwrap_or(&none);
            let mut rest = perhaps.iter().peekable();
            let mut offset = 0;
            loop {
                let read = joined(block_on(self.journal.read(stream, offset, 5_000)).unwrap());
                if read.is_empty() {
                    break;
                }
                let mut read = &read[..];
                while !read.is_empty() {
                    let (base, bytes) = rest.next().unwrap_or_else(|| {
                        panic!("stream {stream} serves something that is not live")
                    });
                    match read.strip_prefix(&bytes[..]) {
                        Some(more) => (read, offset) = (more, base + 1),
                        None => assert!(
                            !certainly.contains_key(base),
                            "stream {stream}: what is live at {base} is missing"
                        ),
                    }
                }
            }
            let missing = rest.find(|(base, _)| certainly.contains_key(base));
            assert!(missing.is_none(), "stream {stream} ends before {missing:?}");
        }
    }

    pub(crate) fn world(&self) -> World {
        World::on(Arc::new(self.disk.clone()))
    }
}

pub(crate) fn machine(index: u64) -> Bytes {
    filling(index, 7_000)
}

pub(crate) fn options() -> Options {
    Options { keep_log: true, check: BatchCheck(check), ..small() }
}

/// A batch has a checksum over all but its base offset.
fn batch(seed: u64, len: usize) -> Bytes {
    let mut bytes = filling(seed, len).to_vec();
    let crc = base::checksum::crc32c(&bytes[8..len - 4]);
    bytes[len - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes.into()
}

/// The same with this base offset.
fn based(batch: &[u8], base_offset: u64) -> Bytes {
    let mut bytes = batch.to_vec();
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes.into()
}

fn check(batch: &[u8], base_offset: Option<u64>) -> bool {
    let Some((content, crc)) = batch.split_last_chunk::<4>() else { return false };
    let is_there = base_offset.is_none_or(|offset| content.starts_with(&offset.to_be_bytes()));
    is_there && content.get(8..).map(base::checksum::crc32c) == Some(u32::from_le_bytes(*crc))
}

/// A receiver's progress through a snapshot, one request at a time.
pub(crate) struct SnapshotReceiver {
    pub(crate) import: Import,
    pub(crate) manifest: Manifest,
    row: u64,
}

/// A section as a receiver gets it.
pub(crate) fn section(export: &Export, section: Section) -> std::io::Result<Bytes> {
    let size = export.manifest().section(section);
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size.bytes {
        bytes.extend_from_slice(&export.section(section, bytes.len() as u64, PIECE_BYTES)?);
    }
    assert_eq!(base::checksum::crc32c(&bytes), size.crc);
    Ok(bytes.into())
}

impl SnapshotReceiver {
    pub(crate) fn begin(mut import: Import, export: &Export) -> Result<Self, ImportError> {
        let manifest = export.manifest();
        let live = section(export, Section::Live)?;
        let segments = section(export, Section::Segments)?;
        import.expect(manifest.id, &live, &segments)?;
        Ok(Self { import, manifest, row: 0 })
    }

    /// `false` once all segments are complete.
    pub(crate) fn step(&mut self, export: &mut Export) -> Result<bool, ImportError> {
        let Some(place) = self.import.next_segment() else { return Ok(false) };
        let piece = export.segment(place, self.row, PIECE_BYTES)?.expect("the segment is listed");
        self.import.push(piece.bytes)?;
        match piece.next {
            Some(row) => self.row = row,
            None => {
                self.import.finish_segment()?;
                self.row = 0;
            }
        }
        Ok(true)
    }

    pub(crate) fn received(&self, export: &Export) -> Result<ReceivedSections, ImportError> {
        let (meta, machine) = (section(export, Section::Meta)?, section(export, Section::Machine)?);
        Ok(ReceivedSections { id: self.manifest.id, meta, machine })
    }
}

impl Replica {
    /// Installs the snapshot after its last segment.
    pub(crate) fn install(
        &mut self,
        history: &History,
        receiving: SnapshotReceiver,
        received: ReceivedSections,
        sent_at: u64,
    ) -> Result<(), ImportError> {
        let index = received.id.index;
        let renewed = history.renewed(self.applied, index);
        let import = receiving.import;
        let world = self.world();
        let replace = |switch: &mut dyn FnMut()| switch();
        let applied = (self.applied > 0).then_some(self.applied);
        let here = ReceiverState { applied, renewed };
        block_on(self.journal.install(&world, import, received, here, replace))?;
        self.applied = index;
        self.thinned_to = sent_at;
        assert_eq!(self.journal.last_id(), Some(id(index)));
        assert_eq!(self.journal.purged_id(), Some(id(index)));
        Ok(())
    }

    /// Records that a restart found the other replica's state installed.
    pub(crate) fn note_installed(&mut self, sent_at: u64) {
        self.thinned_to = self.thinned_to.max(sent_at);
    }

    pub(crate) fn files(&self) -> Vec<String> {
        use world::Disk;
        self.disk.list(Path::new(DIR)).unwrap()
    }
}
