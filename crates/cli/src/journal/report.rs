//! The report of a shard: its segments, snapshots and vote.

use ::journal::inspect::{FrameInfo, SegmentFile, Verdict};
use serde::Serialize;

use super::damage::Damage;
use crate::output::{Table, bytes, count, counted};

#[derive(Serialize)]
pub(super) struct ShardReport {
    pub(super) dir: String,
    pub(super) segments: Vec<SegmentReport>,
    pub(super) snapshots: Vec<SnapshotReport>,
    /// `null`: consensus has not voted yet.
    pub(super) vote_sound: Option<bool>,
    /// Files that are not the journal's, or drafts that the next start removes.
    pub(super) others: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct SegmentReport {
    pub(super) segment: u32,
    /// Above 1: rewritten by space reclaim; it holds batches that are still live, and no frames.
    pub(super) generation: u32,
    pub(super) bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) frames: u64,
    pub(super) entries: u64,
    pub(super) batches: u64,
    /// Number of distinct batches: one shared by several partitions counts once.
    pub(super) bodies: u64,
    pub(super) records: u64,
    pub(super) first_entry: Option<u64>,
    pub(super) last_entry: Option<u64>,
    pub(super) indexed: bool,
    pub(super) verdict: String,
}

#[derive(Serialize)]
pub(super) struct SnapshotReport {
    pub(super) file: String,
    pub(super) bytes: u64,
    pub(super) sound: bool,
    pub(super) entry: Option<u64>,
    pub(super) scan_segment: Option<u32>,
    pub(super) scan_position: Option<u32>,
    pub(super) topics: Option<usize>,
    pub(super) partitions: Option<u64>,
    pub(super) groups: Option<usize>,
}

impl SegmentReport {
    pub(super) fn add(&mut self, frame: &FrameInfo, file: &SegmentFile, damage: &mut Damage) {
        damage.look_at(frame, file);
        let place = |what: &str| format!("{what} at {}", frame.position);
        match frame.verdict {
            Verdict::Complete => {
                self.frames += 1;
                self.used_bytes = frame.position + frame.bytes;
            }
            Verdict::Stranger if self.verdict == "sound" => self.verdict = place("damaged before"),
            Verdict::Damaged if self.verdict == "sound" => self.verdict = place("damaged"),
            Verdict::Torn if self.verdict == "sound" => self.verdict = place("torn"),
            _ => {}
        }
        for entry in &frame.entries {
            self.entries += 1;
            self.first_entry.get_or_insert(entry.id.index);
            self.last_entry = Some(entry.id.index);
            self.batches += entry.bodies.len() as u64;
            // The rows of one body are adjacent.
            let mut positions: Vec<u32> = entry.bodies.iter().map(|(_, it)| it.position).collect();
            positions.dedup();
            self.bodies += positions.len() as u64;
            self.records += entry.bodies.iter().map(|(_, body)| u64::from(body.span)).sum::<u64>();
        }
    }
}

pub(super) fn shard_text(shard: &ShardReport) -> String {
    let size = shard.segments.iter().map(|segment| segment.bytes).sum();
    let records = shard.segments.iter().map(|segment| segment.records).sum();
    let segments = counted(shard.segments.len() as u64, "segment");
    let mut text = format!(
        "{}: {segments}, {} on disk, {} in the log\n\n",
        shard.dir,
        bytes(size),
        counted(records, "record"),
    );
    text += &segment_table(&shard.segments);
    if !shard.snapshots.is_empty() {
        text.push('\n');
        text += &snapshot_table(&shard.snapshots);
    }
    if shard.vote_sound == Some(false) {
        text += "\nthe vote of consensus is damaged\n";
    }
    if !shard.others.is_empty() {
        text += &format!("\nother files: {}\n", shard.others.join(", "));
    }
    text
}

fn segment_table(segments: &[SegmentReport]) -> String {
    let mut table = Table::new(&[
        ">SEGMENT", ">SIZE", ">USED", ">FRAMES", ">ENTRIES", "", ">BATCHES", ">RECORDS", "INDEX",
        "VERDICT",
    ]);
    for segment in segments {
        let range = match (segment.first_entry, segment.last_entry) {
            (Some(first), Some(last)) => format!("({first} to {last})"),
            _ => String::new(),
        };
        table.row([
            segment.segment.to_string(),
            bytes(segment.bytes),
            bytes(segment.used_bytes),
            count(segment.frames),
            count(segment.entries),
            range,
            count(segment.batches),
            count(segment.records),
            if segment.indexed { "sidecar" } else { "-" }.into(),
            segment.verdict.clone(),
        ]);
    }
    table.render()
}

fn snapshot_table(snapshots: &[SnapshotReport]) -> String {
    let mut table = Table::new(&[
        "SNAPSHOT",
        ">SIZE",
        ">TOPICS",
        ">PARTITIONS",
        ">GROUPS",
        "LOG FROM",
        "VERDICT",
    ]);
    for snapshot in snapshots {
        let number = |number: Option<u64>| number.map_or("-".into(), count);
        let from = match (snapshot.scan_segment, snapshot.scan_position) {
            (Some(segment), Some(position)) => format!("segment {segment} at {position}"),
            _ => "-".into(),
        };
        table.row([
            snapshot.file.clone(),
            bytes(snapshot.bytes),
            number(snapshot.topics.map(|topics| topics as u64)),
            number(snapshot.partitions),
            number(snapshot.groups.map(|groups| groups as u64)),
            from,
            if snapshot.sound { "sound" } else { "damaged" }.into(),
        ]);
    }
    table.render()
}
