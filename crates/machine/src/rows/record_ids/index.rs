//! Maps an id's hash to its place in the ring: an extendible hash table. A full segment is split
//! alone, so no insertion rebuilds the whole table; doubling the directory copies four bytes a
//! segment.
//!
//! A slot has the low bits of a place and some bits of the hash. Nothing is removed: a slot whose
//! place left the ring is free.

use super::ring::Ring;
use crate::ids::IdHash;

const SLOTS_MIN: usize = 16;
const SLOTS_MAX: usize = 1024;
const PLACE_BITS: u32 = 26;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
/// Tags are below it, so that no slot in use looks like an empty one.
const TAGS: u64 = (1 << (u32::BITS - PLACE_BITS)) - 1;
const EMPTY: u32 = u32::MAX;
const _: () = assert!(crate::limits::DEDUP_IDS_PER_TOPIC_MAX < PLACE_MASK);
/// The hash has more bits for the directory than any number of ids needs.
const DEPTH_MAX: u32 = 32;

#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// By the first `depth` bits of the hash.
    directory: Vec<u32>,
    depth: u32,
    segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
struct Segment {
    /// All ids in this segment agree in this many leading bits of their hashes.
    depth: u32,
    /// Slots that are not empty.
    used: usize,
    slots: Box<[u32]>,
}

fn high(hash: IdHash) -> u64 {
    (hash >> 64) as u64
}

fn tag(hash: IdHash) -> u32 {
    ((hash as u64 >> 32) % TAGS) as u32
}

fn slot_of(hash: IdHash, place: u64) -> u32 {
    tag(hash) << PLACE_BITS | (place & PLACE_MASK) as u32
}

/// The place of a slot, if it is in the ring.
fn place_of(slot: u32, ring: &Ring) -> Option<u64> {
    let last = ring.end().checked_sub(1)?;
    let back = last.wrapping_sub(u64::from(slot) & PLACE_MASK) & PLACE_MASK;
    last.checked_sub(back).filter(|place| *place >= ring.first())
}

impl Segment {
    fn new(depth: u32, slots: usize) -> Self {
        Self { depth, used: 0, slots: vec![EMPTY; slots].into() }
    }

    fn is_full(&self) -> bool {
        self.used >= self.slots.len() / 8 * 7
    }

    fn places(&self, hash: IdHash) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        (0..=mask).map(move |step| (hash as usize).wrapping_add(step) & mask)
    }

    fn put(&mut self, hash: IdHash, place: u64, ring: &Ring) {
        for at in self.places(hash) {
            let slot = self.slots[at];
            if slot == EMPTY {
                self.used += 1;
            } else if place_of(slot, ring).is_some() {
                continue;
            }
            self.slots[at] = slot_of(hash, place);
            return;
        }
    }
}

impl Index {
    pub(super) fn bytes(&self) -> u64 {
        let slots: usize = self.segments.iter().map(|segment| segment.slots.len()).sum();
        (slots + self.directory.len()) as u64 * 4
    }

    fn segment_of(&self, hash: IdHash) -> Option<usize> {
        let at = high(hash).checked_shr(u64::BITS - self.depth).unwrap_or(0);
        self.directory.get(at as usize).map(|segment| *segment as usize)
    }

    fn slot(&self, hash: IdHash, ring: &Ring) -> Option<(usize, usize, u64)> {
        let number = self.segment_of(hash)?;
        let segment = &self.segments[number];
        for at in segment.places(hash) {
            let slot = segment.slots[at];
            if slot == EMPTY {
                return None;
            }
            if slot >> PLACE_BITS == tag(hash)
                && let Some(place) = place_of(slot, ring)
                && ring.hash(place) == Some(hash)
            {
                return Some((number, at, place));
            }
        }
        None
    }

    pub(super) fn find(&self, hash: IdHash, ring: &Ring) -> Option<u64> {
        self.slot(hash, ring).map(|(_, _, place)| place)
    }

    /// Inserts a hash that is absent; its place is already in the ring.
    pub(super) fn insert(&mut self, hash: IdHash, place: u64, ring: &Ring) {
        if self.segments.is_empty() {
            self.segments.push(Segment::new(0, SLOTS_MIN));
            self.directory.push(0);
        }
        while let Some(number) = self.segment_of(hash) {
            if !self.segments[number].is_full() {
                return self.segments[number].put(hash, place, ring);
            }
            self.make_room(number, ring);
        }
    }

    /// Changes the place of an id.
    pub(super) fn replace(&mut self, hash: IdHash, former: u64, place: u64, ring: &Ring) {
        match self.slot(hash, ring).filter(|(_, _, found)| *found == former) {
            Some((number, at, _)) => self.segments[number].slots[at] = slot_of(hash, place),
            None => self.insert(hash, place, ring),
        }
    }

    /// Drops slots whose places left the ring. If only few did, grows the segment or splits it.
    fn make_room(&mut self, number: usize, ring: &Ring) {
        let segment = &self.segments[number];
        let live: Vec<(IdHash, u64)> = segment
            .slots
            .iter()
            .filter(|slot| **slot != EMPTY)
            .filter_map(|slot| {
                let place = place_of(*slot, ring)?;
                let hash = ring.hash(place)?;
                // The place of an expired id may alias a later one.
                let is_own =
                    *slot >> PLACE_BITS == tag(hash) && self.segment_of(hash) == Some(number);
                is_own.then_some((hash, place))
            })
            .collect();
        let (depth, slots) = (segment.depth, segment.slots.len());
        let is_dense = live.len() > slots / 4 * 3;
        if is_dense && slots == SLOTS_MAX && depth < DEPTH_MAX {
            return self.split(number, live, ring);
        }
        let slots = if is_dense { slots * 2 } else { slots };
        let segment = &mut self.segments[number];
        *segment = Segment::new(depth, slots);
        live.into_iter().for_each(|(hash, place)| segment.put(hash, place, ring));
    }

    fn split(&mut self, number: usize, live: Vec<(IdHash, u64)>, ring: &Ring) {
        let depth = self.segments[number].depth;
        let Some((hash, _)) = live.first().copied() else { return };
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|it| [*it, *it]).collect();
            self.depth += 1;
        }
        let other = self.segments.len();
        self.segments[number] = Segment::new(depth + 1, SLOTS_MAX);
        self.segments.push(Segment::new(depth + 1, SLOTS_MAX));
        // Its part of the directory is one run, whose second half goes to the other.
        let run = 1_usize << (self.depth - depth);
        let prefix = high(hash).checked_shr(u64::BITS - depth).unwrap_or(0) as usize;
        let first = prefix * run;
        self.directory[first + run / 2..first + run].fill(other as u32);
        for (hash, place) in live {
            let to = self.segment_of(hash).unwrap_or(number);
            self.segments[to].put(hash, place, ring);
        }
    }
}
