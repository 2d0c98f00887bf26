//! Bodies through their whole life: accepted or refused, trimmed, rewritten, read back after
//! restarts, with lost sidecars. The space of dead bodies is reclaimed.
//!
//! `SPACE_SEED=n cargo test -p journal --test space` runs one scenario.

#[allow(unreachable_pub)]
mod common;

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use common::*;
use journal::{Body, CompactionDecision, Entry, EntryId, EntryKind, Journal};
use world::{Disk, SimulatedDisk};

const STREAMS: u64 = 3;

/// Effects of applying an entry, to replay them after a restart.
#[derive(Clone)]
struct ApplyEffects {
    accepted: Vec<bool>,
    trim: Option<(u64, u64)>,
    punch: Option<(u64, u64, u64)>,
}

#[derive(Default)]
struct Model {
    /// Entry 1 is the first.
    applied: Vec<ApplyEffects>,
    live: BTreeMap<u64, BTreeMap<u64, Bytes>>,
    ends: BTreeMap<u64, u64>,
}

impl Model {
    fn id(&self) -> EntryId {
        EntryId { term: 1, leader: 1, index: self.applied.len() as u64 }
    }

    fn check(&self, journal: &Journal) {
        for (&stream, &end) in &self.ends {
            let none = BTreeMap::new();
            let live = self.live.get(&stream).unwrap_or(&none);
            let (mut offset, mut rest) = (0, live.iter());
            while offset < end {
                let read = joined(block_on(journal.read(stream, offset, 5_000)).unwrap());
                if read.is_empty() {
                    break;
                }
                let mut read = &read[..];
                while !read.is_empty() {
                    let (base, bytes) = rest.next().expect("nothing beyond what is live");
                    read = read.strip_prefix(&bytes[..]).expect("whole batches, in order");
                    offset = base + 1;
                }
            }
            assert!(rest.next().is_none(), "stream {stream} ends at {offset}, not at {end}");
            let bytes: u64 = live.values().map(|bytes| bytes.len() as u64).sum();
            assert!(journal.stream_bytes(stream) >= bytes, "stream {stream}");
        }
    }

    /// Appends an entry: some bodies, some of them refused, perhaps a trim or a punch.
    fn step(&mut self, journal: &Journal, random: &mut Random) {
        let index = self.applied.len() as u64 + 1;
        let mut bodies = Vec::new();
        let mut accepted = Vec::new();
        for _ in 0..random.below(4) {
            let stream = random.below(STREAMS);
            let base_offset = self.ends.get(&stream).copied().unwrap_or(0);
            let len_max = if random.below(8) == 0 { 9_000 } else { 900 };
            let len = 70 + random.below(len_max);
            let bytes = filling(random.below(u64::MAX), len as usize);
            // Two for one offset: at most one of them is accepted.
            let taken = random.below(5) > 0;
            accepted.push(taken);
            if taken {
                self.live.entry(stream).or_default().insert(base_offset, bytes.clone());
                self.ends.insert(stream, base_offset + 1);
            }
            bodies.push(Body { stream, base_offset, span: 1, max_timestamp: index as i64, bytes });
        }
        if random.below(3) == 0 {
            let (len, max_timestamp) = (70 + random.below(900), index as i64);
            let bytes = filling(random.below(u64::MAX), len as usize);
            for stream in 0..STREAMS {
                let base_offset = self.ends.get(&stream).copied().unwrap_or(0);
                let taken = random.below(5) > 0;
                accepted.push(taken);
                if taken {
                    let mut own = bytes.to_vec();
                    own[..8].copy_from_slice(&base_offset.to_be_bytes());
                    self.live.entry(stream).or_default().insert(base_offset, own.into());
                    self.ends.insert(stream, base_offset + 1);
                }
                let bytes = bytes.clone();
                bodies.push(Body { stream, base_offset, span: 1, max_timestamp, bytes });
            }
        }
        let trim = (random.below(12) == 0).then(|| {
            let stream = random.below(STREAMS);
            let end = self.ends.get(&stream).copied().unwrap_or(0);
            (stream, end - random.below(end / 2 + 1))
        });
        if let Some((stream, start)) = trim
            && let Some(live) = self.live.get_mut(&stream)
        {
            live.retain(|base, _| *base >= start);
        }
        let punch = (random.below(4) == 0).then(|| {
            let stream = random.below(STREAMS);
            let from = random.below(self.ends.get(&stream).copied().unwrap_or(0) + 1);
            (stream, from, from + random.below(20))
        });
        if let Some((stream, from, to)) = punch
            && let Some(live) = self.live.get_mut(&stream)
        {
            live.retain(|base, _| !(from..to).contains(base));
        }
        let id = EntryId { term: 1, leader: 1, index };
        let head = filling(index, 30);
        append_durably(journal, vec![Entry { id, kind: EntryKind::Command, head, bodies }]);
        self.applied.push(ApplyEffects { accepted, trim, punch });
        self.apply(journal, index);
    }

    fn apply(&self, journal: &Journal, index: u64) {
        let ApplyEffects { accepted, trim, punch } = &self.applied[index as usize - 1];
        for (body, accepted) in accepted.iter().enumerate() {
            match accepted {
                true => journal.accept(index, body),
                false => journal.refuse(index, body),
            }
        }
        if let Some((stream, start)) = trim {
            journal.trim(*stream, *start);
        }
        if let Some((stream, from, to)) = punch {
            journal.punch(*stream, *from, *to);
        }
    }

    fn snapshot(&self, journal: &Journal) {
        let id = self.id();
        journal.begin_snapshot(id, Bytes::new()).write(Bytes::new()).unwrap();
        journal.purge(id);
    }

    fn reopen(&self, disk: &SimulatedDisk) -> Journal {
        let opened = open(disk);
        let done = opened.snapshot.map_or(0, |snapshot| snapshot.id.index);
        for index in done + 1..=self.applied.len() as u64 {
            self.apply(&opened.journal, index);
        }
        opened.journal
    }
}

fn scenario(seed: u64) {
    let mut random = Random(seed);
    let mut disk = SimulatedDisk::new();
    let mut model = Model::default();
    let mut journal = open(&disk).journal;
    for _ in 0..300 {
        match random.below(40) {
            0 if !model.applied.is_empty() => model.snapshot(&journal),
            1 => drop(journal.reclaim().unwrap()),
            2 => journal.roll(),
            3 => compact(&journal, &mut model, &mut random),
            4 => {
                model.check(&journal);
                disk = match random.below(2) {
                    0 => disk.killed(),
                    _ => disk.power_loss(random.below(u64::MAX)),
                };
                drop(journal);
                lose_sidecars(&disk, &mut random);
                journal = model.reopen(&disk);
                model.check(&journal);
            }
            _ => model.step(&journal, &mut random),
        }
    }
    model.check(&journal);
    assert_space_comes_back(&journal, &model);
    journal.close();
}

/// Drops and replaces random batches, in one segment that may be rewritten.
fn compact(journal: &Journal, model: &mut Model, random: &mut Random) {
    let sealed: Vec<u32> = journal
        .segments()
        .iter()
        .filter(|it| it.sealed && it.live_bytes > 0)
        .map(|it| it.id)
        .collect();
    let Some(&segment) = sealed.get(random.below(sealed.len().max(1) as u64) as usize) else {
        return;
    };
    // Refused while no snapshot covers the segment: `keep` is not called.
    let _ = journal.rewrite(segment, &mut |stream, address, bytes| {
        let live = model.live.get_mut(&stream).unwrap();
        assert_eq!(live[&address.base_offset], bytes);
        match random.below(4) {
            0 => {
                live.remove(&address.base_offset);
                CompactionDecision::Drop
            }
            1 => {
                let shorter = Bytes::copy_from_slice(&bytes[..bytes.len() / 2]);
                live.insert(address.base_offset, shorter.clone());
                CompactionDecision::Replace(shorter)
            }
            _ => CompactionDecision::Same,
        }
    });
}

fn lose_sidecars(disk: &SimulatedDisk, random: &mut Random) {
    for name in disk.list(Path::new(DIR)).unwrap() {
        if name.ends_with(".idx") {
            let path = Path::new(DIR).join(name);
            match random.below(4) {
                0 => disk.lose_file(&path),
                1 => {
                    let len = disk.content(&path).unwrap().len() as u64;
                    disk.flip_bit(&path, random.below(len), random.below(8) as u8);
                }
                _ => {}
            }
        }
    }
}

fn assert_space_comes_back(journal: &Journal, model: &Model) {
    journal.roll();
    // The roll happens with the next frame.
    let id = EntryId { index: model.id().index + 1, ..model.id() };
    let last = Entry { id, kind: EntryKind::Blank, head: Bytes::new(), bodies: Vec::new() };
    append_durably(journal, vec![last]);
    let mut reclaimed = Default::default();
    let segment_bytes = small().segment_bytes;
    eventually("sidecars are written and space comes back", || {
        journal.begin_snapshot(id, Bytes::new()).write(Bytes::new()).unwrap();
        reclaimed = journal.reclaim().unwrap();
        let segments = journal.segments();
        let files: u64 = segments.iter().map(|it| it.file_bytes).sum();
        let live: u64 = segments.iter().map(|it| it.live_bytes).sum();
        files <= 2 * live + 2 * segment_bytes
    });
    model.check(journal);
    for (stream, live) in &model.live {
        let bytes: u64 = live.values().map(|bytes| bytes.len() as u64).sum();
        assert_eq!(journal.stream_bytes(*stream), bytes, "exact once reclaim has counted");
    }
}

#[test]
fn live_batches_are_served_and_the_space_of_dead_ones_is_reclaimed() {
    if let Ok(seed) = std::env::var("SPACE_SEED") {
        return scenario(seed.parse().unwrap());
    }
    for seed in 0..200 {
        let told = std::panic::catch_unwind(|| scenario(seed));
        assert!(told.is_ok(), "tell it again with SPACE_SEED={seed}");
    }
}
