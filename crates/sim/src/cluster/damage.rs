//! Bit flips at rest, in profile `damage`: in any file of one member's disk, while its node runs and while it is
//! down. Before the next member's turn all damage is gone: repaired by the node, or removed with the disk, because
//! its node did not start and the operator replaced it. So the other members have intact copies.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::place::{NodePlace, name};
use super::{Shared, State};
use crate::random::Random;
use crate::verdict::Invariant;

const SECTOR: u64 = 512;
/// Simulated time limit for a healed cluster to find and repair its damage.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The purpose of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Segment,
    Sidecar,
    Snapshot,
    Vote,
    /// The node's identity in its cluster.
    Identity,
    Other,
}

impl Kind {
    fn of(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match &*name {
            "vote" => Self::Vote,
            "node" | "cluster" => Self::Identity,
            name if name.ends_with(".seg") => Self::Segment,
            name if name.ends_with(".idx") => Self::Sidecar,
            name if name.starts_with("snapshot") => Self::Snapshot,
            _ => Self::Other,
        }
    }

    /// Mostly segments, which have the most bytes.
    fn drawn(random: &mut Random) -> Self {
        random.of(&[
            Self::Segment,
            Self::Segment,
            Self::Segment,
            Self::Segment,
            Self::Sidecar,
            Self::Sidecar,
            Self::Snapshot,
            Self::Vote,
            Self::Identity,
            Self::Other,
        ])
    }
}

/// Continues until everything is healed.
pub(super) async fn flip_bits(shared: Shared, mut random: Random) {
    loop {
        let pause = random.between(20, 2_500);
        sleep(Duration::from_millis(pause)).await;
        let mut state = shared.lock();
        if state.is_healed {
            return;
        }
        state.is_founded |= all_are_founded(&state);
        if let Some(place) = victim(&state, &mut random) {
            strike(&mut state, place, &mut random);
        }
    }
}

/// Whether a majority has each shard's group. Before that one node may be the only one with the group, and its
/// loss is the group's.
fn all_are_founded(state: &State) -> bool {
    let brokers = state.nodes.iter().filter_map(|place| place.broker.as_ref());
    let groups: Vec<_> = brokers.map(|broker| broker.groups()).collect();
    let shards = groups.iter().map(Vec::len).max().unwrap_or(0);
    let has = |shard: usize| {
        let of_each = groups.iter().filter_map(|groups| groups.get(shard));
        let voters: Vec<usize> =
            of_each.map(|group| group.voters.len()).filter(|voters| *voters > 0).collect();
        voters.iter().max().is_some_and(|all| voters.len() > all / 2)
    };
    shards > 1 && (0..shards).all(has)
}

/// The member that is damaged already, or any if all disks are intact.
fn victim(state: &State, random: &mut Random) -> Option<usize> {
    let victims = victims(state);
    (!victims.is_empty()).then(|| random.of(&victims))
}

fn victims(State { nodes, lost, is_founded, .. }: &State) -> Vec<usize> {
    let is_in_hands = |it: &NodePlace| it.asked.is_some() || it.trouble.is_refused;
    if lost.is_some() || nodes.iter().any(is_in_hands) || !*is_founded {
        return Vec::new();
    }
    let may_be = |place: &usize| nodes[*place].is_member() && nodes[*place].number.is_some();
    match nodes.iter().position(NodePlace::is_damaged) {
        Some(damaged) => Some(damaged).filter(may_be).into_iter().collect(),
        None => (0..nodes.len()).filter(may_be).collect(),
    }
}

/// Damages the last write of a member to the log of some shard, in profile `damage`.
pub(super) fn strike_last(state: &mut State, place: usize, random: &mut Random) {
    if !state.bits_flip || !victims(state).contains(&place) {
        return;
    }
    let disk = &state.nodes[place].disk;
    let mut last_of: BTreeMap<PathBuf, (PathBuf, u64)> = BTreeMap::new();
    for path in disk.files().into_iter().filter(|path| Kind::of(path) == Kind::Segment) {
        let written = written(&disk.content(&path).unwrap_or_default());
        // A prepared segment has a header only.
        if written > SECTOR {
            let shard = path.parent().unwrap_or(&path).to_owned();
            last_of.insert(shard, (path, written));
        }
    }
    let all: Vec<_> = last_of.into_values().collect();
    if !all.is_empty() {
        let (path, written) = &all[random.below(all.len() as u64) as usize];
        let sector = (written - 1) - (written - 1) % SECTOR;
        let position = random.between(sector, written - 1);
        strike_at(state, place, path, position, random);
    }
}

fn written(content: &[u8]) -> u64 {
    content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Flips a bit of a file, or changes any bytes of a sector.
fn strike(state: &mut State, place: usize, random: &mut Random) {
    let disk = &state.nodes[place].disk;
    let mut files: BTreeMap<Kind, Vec<PathBuf>> = BTreeMap::new();
    for path in disk.files() {
        files.entry(Kind::of(&path)).or_default().push(path);
    }
    let Some(files) = files.get(&Kind::drawn(random)) else { return };
    let path = &files[random.below(files.len() as u64) as usize];
    let kind = Kind::of(path);
    // Each vote has two copies. Damage of both copies of the last vote would look like a torn write.
    if kind == Kind::Vote && disk.corrupted_files().contains(path) {
        return;
    }
    let content = disk.content(path).unwrap_or_default();
    let within = if random.once_in(8) { content.len() as u64 } else { written(&content) };
    if within > 0 {
        let position = random.below(within);
        let path = path.clone();
        strike_at(state, place, &path, position, random);
    }
}

fn strike_at(state: &mut State, place: usize, path: &Path, position: u64, random: &mut Random) {
    let State { nodes, trace, flips, .. } = state;
    let NodePlace { disk, trouble, .. } = &mut nodes[place];
    let len = disk.content(path).map_or(0, |content| content.len() as u64);
    let (from, mask) = if random.once_in(4) {
        let from = position - position % SECTOR;
        let len = SECTOR.min(len - from);
        (from, (0..len).map(|_| random.number() as u8).collect())
    } else {
        (position, vec![1 << random.below(8)])
    };
    disk.corrupt(path, from, &mask);
    trouble.flipped = true;
    *flips += 1;
    let (name, path, bytes) = (name(place), path.display(), mask.len());
    trace.note(format_args!("{name}'s {path} changes at rest, {bytes} bytes at {from}"));
}

/// Scrubs all members, once everything is healed. Found damage is repaired if bits flipped; otherwise there must
/// be none.
pub(super) async fn is_sound(shared: &Shared) -> Result<(), (Invariant, String)> {
    let bits_flip = shared.lock().bits_flip;
    // Unexpected damage is repaired soon, too.
    let look_every = if bits_flip { LOOK_EVERY } else { Duration::from_millis(2) };
    let deadline = Instant::now() + PATIENCE;
    // The end of their last pass when a new one was requested.
    let mut asked = BTreeMap::new();
    loop {
        let mut left = String::new();
        for place in shared.members() {
            let Some(broker) = shared.broker(place) else {
                let _ = write!(left, "{} is not open; ", name(place));
                continue;
            };
            let stored = broker.stored();
            let ended = stored.ended_ms.is_some()
                && asked.get(&place).is_some_and(|before| *before != stored.ended_ms);
            // Once more if the node was restarted during its pass.
            if !ended && stored.under_way.is_none() && broker.scrub() {
                asked.entry(place).or_insert(stored.ended_ms);
            }
            if !ended {
                let _ = write!(left, "{} has not looked through what it has; ", name(place));
            }
            if !stored.damaged.is_empty() {
                let _ = write!(left, "{} has {:?}; ", name(place), stored.damaged);
                if !bits_flip {
                    let what = format!("nothing changed at rest, and {left}");
                    return Err((Invariant::Durable, what));
                }
            }
            for path in left_on(&shared.lock().nodes[place]) {
                let _ = write!(left, "{} has {} as it was; ", name(place), path.display());
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err((Invariant::Progress, format!("what is damaged is not repaired: {left}")));
        }
        sleep(look_every).await;
    }
}

/// Damaged files that a complete pass reads from the first byte to the last. Excluded are the active segment, and
/// unused parts of segments.
fn left_on(place: &NodePlace) -> Vec<PathBuf> {
    let is_looked_at = |path: &PathBuf| matches!(Kind::of(path), Kind::Sidecar | Kind::Snapshot);
    let there = place.disk.files();
    let mut left = place.disk.corrupted_files();
    left.retain(|path| is_looked_at(path) && there.contains(path));
    left
}
