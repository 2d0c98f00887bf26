//! Frames and entries, one a line.

use std::io::{self, Write};

use ::journal::EntryKind;
use ::journal::inspect::{EntryInfo, FrameInfo, Verdict};
use base::PartitionId;
use operations::time::human_time;
use serde::Serialize;

use super::names::{HeadText, Names};

pub(super) const FRAME_HEADINGS: &str =
    " SEGMENT    POSITION       BYTES  ENTRIES  FROM ENTRY  VERDICT";
pub(super) const ENTRY_HEADINGS: &str = "     ENTRY  TERM  SEGMENT    POSITION       BYTES  SAYS";
/// Batches of an entry that a line for people names.
const BATCHES_NAMED: usize = 4;

#[derive(Serialize)]
struct FrameLine<'a> {
    /// Name of its directory.
    shard: &'a str,
    segment: u32,
    position: u64,
    bytes: u64,
    entries: usize,
    first_entry: Option<u64>,
    verdict: &'static str,
}

pub(super) fn frame_line(
    out: &mut impl Write,
    shard: &str,
    frame: &FrameInfo,
    json: bool,
) -> io::Result<()> {
    let line = FrameLine {
        shard,
        segment: frame.segment,
        position: frame.position,
        bytes: frame.bytes,
        entries: frame.entries.len(),
        first_entry: frame.entries.first().map(|entry| entry.id.index),
        verdict: match frame.verdict {
            Verdict::Complete => "complete",
            Verdict::Stranger => "stranger: frames before it are missing",
            Verdict::Torn => "torn",
            Verdict::Damaged => "damaged",
            Verdict::Stale => "stale",
            Verdict::Unused => "unused",
        },
    };
    if json {
        serde_json::to_writer(&mut *out, &line)?;
        return writeln!(out);
    }
    let FrameLine { segment, position, bytes, entries, first_entry, verdict, .. } = line;
    let first = first_entry.map_or("-".into(), |first| first.to_string());
    writeln!(out, "{segment:>8}  {position:>10}  {bytes:>10}  {entries:>7}  {first:>10}  {verdict}")
}

#[derive(Serialize)]
struct EntryLine<'a> {
    /// Name of its directory.
    shard: &'a str,
    entry: u64,
    term: u64,
    leader: u64,
    segment: u32,
    position: u32,
    bytes: u32,
    kind: &'static str,
    /// Time of the leader's proposal.
    time_ms: Option<i64>,
    commands: &'a [String],
    batches: Vec<BatchLine>,
}

#[derive(Serialize)]
struct BatchLine {
    topic: Option<String>,
    partition: u32,
    base_offset: u64,
    records: u32,
    bytes: u32,
    max_timestamp_ms: i64,
    /// Position in the segment's file.
    position: u32,
    /// Other partitions have these bytes, too, at offsets of their own.
    shared: bool,
}

pub(super) fn entry_line(
    out: &mut impl Write,
    shard: &str,
    frame: &FrameInfo,
    entry: &EntryInfo,
    head: HeadText,
    names: &Names,
    json: bool,
) -> io::Result<()> {
    if json {
        let line = EntryLine {
            shard,
            entry: entry.id.index,
            term: entry.id.term,
            leader: entry.id.leader,
            segment: frame.segment,
            position: entry.position,
            bytes: entry.bytes,
            kind: kind(entry.kind),
            time_ms: head.time_ms,
            commands: &head.commands,
            batches: entry.bodies.iter().map(|body| batch_line(body, names)).collect(),
        };
        serde_json::to_writer(&mut *out, &line)?;
        return writeln!(out);
    }
    let mut parts = Vec::new();
    if entry.kind != EntryKind::Command {
        parts.push(kind(entry.kind).to_owned());
    }
    for (stream, body) in entry.bodies.iter().take(BATCHES_NAMED) {
        let place = names.partition(PartitionId::from_stream(*stream));
        let shared = if body.shared { " (shared)" } else { "" };
        parts.push(format!("{place} {} to {}{shared}", body.base_offset, body.next_offset() - 1));
    }
    if entry.bodies.len() > BATCHES_NAMED {
        parts.push(format!("and {} more", entry.bodies.len() - BATCHES_NAMED));
    }
    parts.extend(head.commands);
    if let Some(time) = head.time_ms.filter(|_| entry.bodies.is_empty()) {
        parts.push(human_time(time));
    }
    let (id, segment, position, bytes) = (entry.id, frame.segment, entry.position, entry.bytes);
    let (index, term, text) = (id.index, id.term, parts.join(", "));
    writeln!(out, "{index:>10}  {term:>4}  {segment:>7}  {position:>10}  {bytes:>10}  {text}")
}

fn kind(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Blank => "blank",
        EntryKind::Command => "command",
        EntryKind::Membership => "membership",
    }
}

fn batch_line((stream, body): &(u64, ::journal::Address), names: &Names) -> BatchLine {
    let partition = PartitionId::from_stream(*stream);
    BatchLine {
        topic: names.topics.get(&partition.topic).cloned(),
        partition: partition.index,
        base_offset: body.base_offset,
        records: body.span,
        bytes: body.len,
        max_timestamp_ms: body.max_timestamp,
        position: body.position,
        shared: body.shared,
    }
}
