//! `postroad journal`: looking into a journal on disk, without a broker.
//!
//! Nothing is locked, changed or trusted: the same eyes that recovery has, going on behind damage.
//! Streams of the journal get their topic's name where the snapshot, or an entry that is still
//! there, tells it; otherwise they show as numbers (`t7/0`).

use base::{HashMap, PartitionId, TopicId};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ::journal::EntryKind;
use ::journal::inspect::{
    self, EntryInfo, FrameInfo, Frames, Inspection, SegmentFile, SnapshotFileInfo, Verdict,
};
use ::world::RealDisk;
use clap::{Args, Subcommand};
use machine::{Applied, Command, Entry, Head, Outcome, State};
use serde::Serialize;

use super::{CommandError, OutputOption};
use crate::output::{OutputFormat, Table, bytes, count, counted};
use crate::time::human_time;

#[derive(Args, Debug)]
pub(crate) struct JournalArguments {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Subcommand, Debug)]
enum JournalCommand {
    /// Read a journal from end to end and say what is in it and whether it is sound
    ///
    /// Ends with code 2 when something is damaged. A torn end is no damage: a crash leaves it, and
    /// the next start cuts it. A broker may be running; its journal's end then looks torn at times.
    Inspect(Inspect),
}

#[derive(Args, Debug)]
struct Inspect {
    /// Data directory of a broker, or one shard of it
    dir: PathBuf,
    /// List the frames, each of them one group commit
    #[arg(long, conflicts_with = "entries")]
    frames: bool,
    /// List the entries of the log and what they say
    #[arg(long)]
    entries: bool,
    /// Only this segment
    #[arg(long, value_name = "N")]
    segment: Option<u32>,
    #[command(flatten)]
    output: OutputOption,
}

#[derive(Debug, thiserror::Error)]
enum InspectError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} holds no journal; name the directory that 'postroad serve --data' names", .0.display())]
    NoJournal(PathBuf),
    #[error("{} damaged, the first {first}; a broker refuses to start on it", places(*count))]
    Damaged { count: usize, first: String },
}

fn places(count: usize) -> String {
    match count {
        1 => "1 place is".into(),
        count => format!("{count} places are"),
    }
}

pub(crate) fn run(arguments: &JournalArguments) -> Result<(), CommandError> {
    let JournalCommand::Inspect(inspect) = &arguments.command;
    let mut damage = Damage::default();
    let mut shards = Vec::new();
    for dir in shard_dirs(&inspect.dir)? {
        let mut shard = Shard::open(&dir)?;
        if inspect.frames || inspect.entries {
            shard.list(inspect, &mut damage)?;
        } else {
            shards.push(shard.report(inspect, &mut damage)?);
        }
    }
    if !inspect.frames && !inspect.entries {
        inspect
            .output
            .output
            .show(&shards, |shards| shards.iter().map(shard_text).collect::<Vec<_>>().join("\n"))?;
    }
    match damage.places.first() {
        None => Ok(()),
        Some(first) => {
            let (count, first) = (damage.places.len(), first.clone());
            Err(CommandError::server(InspectError::Damaged { count, first }))
        }
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> CommandError {
    let path = path.to_owned();
    move |source| CommandError::user(InspectError::Unreadable { path, source })
}

/// A data directory has one for each shard; a shard's own is taken as it is.
fn shard_dirs(dir: &Path) -> Result<Vec<PathBuf>, CommandError> {
    let mut shards = Vec::new();
    let mut is_a_shard = false;
    for found in std::fs::read_dir(dir).map_err(unreadable(dir))? {
        let found = found.map_err(unreadable(dir))?;
        let name = found.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("shard-") && found.path().is_dir() {
            shards.push(found.path());
        }
        is_a_shard |= name.ends_with(".seg");
    }
    shards.sort();
    match (shards.is_empty(), is_a_shard) {
        (false, _) => Ok(shards),
        (true, true) => Ok(vec![dir.to_owned()]),
        (true, false) => Err(CommandError::user(InspectError::NoJournal(dir.to_owned()))),
    }
}

// -------------------------------------------------------------------------------------- a shard

struct Shard {
    dir: PathBuf,
    found: Inspection,
    names: Names,
}

#[derive(Serialize)]
struct ShardReport {
    dir: String,
    segments: Vec<SegmentReport>,
    snapshots: Vec<SnapshotReport>,
    /// `null`: consensus has not voted yet.
    vote_sound: Option<bool>,
    /// Files that are none of the journal's, or drafts that the next start removes.
    others: Vec<String>,
}

#[derive(Serialize)]
struct SegmentReport {
    segment: u32,
    /// Above 1: rewritten by space reclaim; it holds batches that are still live, and no frames.
    generation: u32,
    bytes: u64,
    used_bytes: u64,
    frames: u64,
    entries: u64,
    batches: u64,
    /// Of the batches: each that several partitions share once.
    bodies: u64,
    records: u64,
    first_entry: Option<u64>,
    last_entry: Option<u64>,
    indexed: bool,
    verdict: String,
}

#[derive(Serialize)]
struct SnapshotReport {
    file: String,
    bytes: u64,
    sound: bool,
    entry: Option<u64>,
    scan_segment: Option<u32>,
    scan_position: Option<u32>,
    topics: Option<usize>,
    partitions: Option<u64>,
    groups: Option<usize>,
}

impl Shard {
    fn open(dir: &Path) -> Result<Self, CommandError> {
        let found = inspect::inspect(&RealDisk, dir).map_err(unreadable(dir))?;
        let names = Names::from_snapshots(dir, &found.snapshots)?;
        Ok(Self { dir: dir.to_owned(), found, names })
    }

    fn report(
        &mut self,
        inspect: &Inspect,
        damage: &mut Damage,
    ) -> Result<ShardReport, CommandError> {
        let mut segments = Vec::new();
        for segment in self.selected(inspect) {
            segments.push(self.segment(&segment, damage)?);
        }
        let mut snapshots = Vec::new();
        for snapshot in &self.found.snapshots {
            if snapshot.content.is_none() {
                damage.add(&snapshot.path, "in ");
            }
            snapshots.push(self.snapshot(snapshot)?);
        }
        let vote_sound = self.found.vote.as_ref().map(|vote| vote.vote.is_some());
        if let Some(vote) = self.found.vote.as_ref().filter(|vote| vote.vote.is_none()) {
            damage.add(&vote.path, "in ");
        }
        let (dir, others) = (self.dir.display().to_string(), self.found.others.clone());
        Ok(ShardReport { dir, segments, snapshots, vote_sound, others })
    }

    fn selected(&self, inspect: &Inspect) -> Vec<SegmentFile> {
        let wanted = |file: &&SegmentFile| inspect.segment.is_none_or(|id| id == file.id);
        self.found.segments.iter().filter(wanted).cloned().collect()
    }

    fn segment(
        &self,
        file: &SegmentFile,
        damage: &mut Damage,
    ) -> Result<SegmentReport, CommandError> {
        let mut report = SegmentReport {
            segment: file.id,
            generation: file.generation,
            bytes: file.file_bytes,
            used_bytes: file.file_bytes,
            frames: 0,
            entries: 0,
            batches: 0,
            bodies: 0,
            records: 0,
            first_entry: None,
            last_entry: None,
            indexed: file.has_sidecar,
            verdict: "rewritten".into(),
        };
        if file.generation > 1 {
            return Ok(report);
        }
        report.used_bytes = 0;
        report.verdict = "sound".into();
        if !file.header_sound {
            report.verdict = "header damaged".into();
            damage.add(&file.path, "at the beginning of ");
        }
        for frame in frames(&self.dir, file.id)? {
            report.add(&frame?, file, damage);
        }
        if report.frames == 0 && report.verdict == "sound" {
            report.verdict = "unused".into();
        }
        Ok(report)
    }

    fn snapshot(&self, file: &SnapshotFileInfo) -> Result<SnapshotReport, CommandError> {
        let state = match &file.content {
            Some(content) => state_of(&self.dir, content)?,
            None => None,
        };
        let content = file.content;
        let name = file.path.file_name().unwrap_or_default();
        Ok(SnapshotReport {
            file: name.to_string_lossy().into_owned(),
            bytes: file.file_bytes,
            sound: content.is_some(),
            entry: content.map(|content| content.id.index),
            scan_segment: content.map(|content| content.scan_segment),
            scan_position: content.map(|content| content.scan_position),
            topics: state.as_ref().map(State::topic_count),
            partitions: state.as_ref().map(State::partition_count),
            groups: state.as_ref().map(|state| state.groups().count()),
        })
    }

    /// Prints frames or entries as they are read: a journal may be larger than memory.
    fn list(&mut self, inspect: &Inspect, damage: &mut Damage) -> Result<(), CommandError> {
        let mut out = BufWriter::new(io::stdout().lock());
        let json = inspect.output.output == OutputFormat::Json;
        if !json {
            writeln!(out, "{}", if inspect.entries { ENTRY_HEADINGS } else { FRAME_HEADINGS })?;
        }
        for file in self.found.segments.clone().iter().filter(|file| file.generation == 1) {
            let shown = inspect.segment.is_none_or(|segment| segment == file.id);
            for frame in frames(&self.dir, file.id)? {
                let frame = frame?;
                if shown {
                    damage.look_at(&frame, file);
                }
                if shown && !inspect.entries {
                    frame_line(&mut out, &frame, json)?;
                }
                for entry in frame.entries.iter().filter(|_| inspect.entries) {
                    let says = self.names.read(entry);
                    if shown {
                        entry_line(&mut out, &frame, entry, says, &self.names, json)?;
                    }
                }
            }
        }
        out.flush()?;
        Ok(())
    }
}

fn frames(
    dir: &Path,
    segment: u32,
) -> Result<impl Iterator<Item = Result<FrameInfo, CommandError>> + use<>, CommandError> {
    let dir = dir.to_owned();
    let frames = Frames::open(&RealDisk, &dir, segment).map_err(unreadable(&dir))?;
    Ok(frames.map(move |frame| frame.map_err(unreadable(&dir))))
}

/// What is damaged, each with its place.
#[derive(Default)]
struct Damage {
    places: Vec<String>,
    /// The frame before was damaged: that the next one does not follow is the same damage.
    in_gap: bool,
}

impl Damage {
    fn add(&mut self, path: &Path, place: &str) {
        self.places.push(format!("{place}{}", path.display()));
    }

    fn look_at(&mut self, frame: &FrameInfo, file: &SegmentFile) {
        let known = std::mem::replace(&mut self.in_gap, frame.verdict == Verdict::Damaged);
        match frame.verdict {
            Verdict::Stranger if known => {}
            Verdict::Damaged | Verdict::Stranger => {
                self.add(&file.path, &format!("at byte {} of ", frame.position));
            }
            _ => {}
        }
    }
}

impl SegmentReport {
    fn add(&mut self, frame: &FrameInfo, file: &SegmentFile, damage: &mut Damage) {
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
            // The rows of one body follow each other.
            let mut positions: Vec<u32> = entry.bodies.iter().map(|(_, it)| it.position).collect();
            positions.dedup();
            self.bodies += positions.len() as u64;
            self.records += entry.bodies.iter().map(|(_, body)| u64::from(body.span)).sum::<u64>();
        }
    }
}

fn shard_text(shard: &ShardReport) -> String {
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

// --------------------------------------------------------------------------- frames and entries

const FRAME_HEADINGS: &str = " SEGMENT    POSITION       BYTES  ENTRIES  FROM ENTRY  VERDICT";
const ENTRY_HEADINGS: &str = "     ENTRY  TERM  SEGMENT    POSITION       BYTES  SAYS";
/// Batches of an entry that a line for people names.
const BATCHES_NAMED: usize = 4;

#[derive(Serialize)]
struct FrameLine {
    segment: u32,
    position: u64,
    bytes: u64,
    entries: usize,
    first_entry: Option<u64>,
    verdict: &'static str,
}

fn frame_line(out: &mut impl Write, frame: &FrameInfo, json: bool) -> io::Result<()> {
    let line = FrameLine {
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
    let FrameLine { segment, position, bytes, entries, first_entry, verdict } = line;
    let first = first_entry.map_or("-".into(), |first| first.to_string());
    writeln!(out, "{segment:>8}  {position:>10}  {bytes:>10}  {entries:>7}  {first:>10}  {verdict}")
}

#[derive(Serialize)]
struct EntryLine<'a> {
    entry: u64,
    term: u64,
    leader: u64,
    segment: u32,
    position: u32,
    bytes: u32,
    kind: &'static str,
    /// When the leader proposed it.
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
    /// In the segment's file.
    position: u32,
    /// Other partitions have these bytes, too, at offsets of their own.
    shared: bool,
}

/// What the head of an entry says.
#[derive(Default)]
struct Says {
    time_ms: Option<i64>,
    commands: Vec<String>,
}

fn entry_line(
    out: &mut impl Write,
    frame: &FrameInfo,
    entry: &EntryInfo,
    says: Says,
    names: &Names,
    json: bool,
) -> io::Result<()> {
    if json {
        let line = EntryLine {
            entry: entry.id.index,
            term: entry.id.term,
            leader: entry.id.leader,
            segment: frame.segment,
            position: entry.position,
            bytes: entry.bytes,
            kind: kind(entry.kind),
            time_ms: says.time_ms,
            commands: &says.commands,
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
    parts.extend(says.commands);
    if let Some(time) = says.time_ms.filter(|_| entry.bodies.is_empty()) {
        parts.push(human_time(time));
    }
    let (id, segment, position, bytes) = (entry.id, frame.segment, entry.position, entry.bytes);
    let (index, term, says) = (id.index, id.term, parts.join(", "));
    writeln!(out, "{index:>10}  {term:>4}  {segment:>7}  {position:>10}  {bytes:>10}  {says}")
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

// ---------------------------------------------------------------------------------------- names

/// Which topic a number means: from the newest snapshot, and from what entries after it made.
struct Names {
    state: State,
    /// Entries up to this one are in the state.
    applied: u64,
    /// Also of topics that are gone by now.
    topics: HashMap<TopicId, String>,
}

/// `None` when it cannot be read by this build.
fn state_of(
    dir: &Path,
    snapshot: &inspect::SnapshotContent,
) -> Result<Option<State>, CommandError> {
    let machine = inspect::snapshot_machine(&RealDisk, dir, snapshot).map_err(unreadable(dir))?;
    Ok(machine.and_then(|machine| State::decode(&machine).ok()))
}

impl Names {
    fn from_snapshots(dir: &Path, snapshots: &[SnapshotFileInfo]) -> Result<Self, CommandError> {
        let mut names = Names { state: State::new(), applied: 0, topics: HashMap::default() };
        for content in snapshots.iter().filter_map(|snapshot| snapshot.content) {
            if let Some(state) = state_of(dir, &content)? {
                let named = state.topics().map(|topic| (topic.id, topic.name.to_string()));
                names.topics.extend(named);
                names.state = state;
                names.applied = content.id.index;
                break;
            }
        }
        Ok(names)
    }

    fn partition(&self, partition: PartitionId) -> String {
        match self.topics.get(&partition.topic) {
            Some(topic) => format!("{topic}/{}", partition.index),
            None => partition.to_string(),
        }
    }

    fn topic(&self, topic: TopicId) -> String {
        self.topics.get(&topic).cloned().unwrap_or_else(|| topic.to_string())
    }

    /// What an entry says, having learned from it.
    fn read(&mut self, entry: &EntryInfo) -> Says {
        if entry.kind != EntryKind::Command {
            return Says::default();
        }
        let Ok(Head { now_ms, commands, .. }) = machine::decode_head(&entry.head) else {
            return Says { time_ms: None, commands: vec!["(cannot be decoded)".into()] };
        };
        if entry.id.index > self.applied {
            self.applied = entry.id.index;
            self.learn(now_ms, &commands);
        }
        let commands = commands.iter().map(|command| self.describe(command)).collect();
        Says { time_ms: Some(now_ms), commands }
    }

    fn learn(&mut self, now_ms: i64, commands: &[Command]) {
        if commands.is_empty() {
            return;
        }
        let mut applied = Applied::new();
        // For the names of topics; what becomes of records is not looked at.
        self.state.apply(&Entry { now_ms, commands, ..Entry::default() }, &mut applied);
        for (command, outcome) in commands.iter().zip(applied.commands) {
            if let (Command::CreateTopics { topics }, Ok(Outcome::Topics(made))) =
                (command, outcome)
            {
                let made =
                    topics.iter().zip(made).filter_map(|(topic, id)| Some((id.ok()?, topic)));
                self.topics.extend(made.map(|(id, topic)| (id, topic.name.clone())));
            }
        }
    }

    fn describe(&self, command: &Command) -> String {
        match command {
            Command::CreateTopics { topics } => match &topics[..] {
                [topic] => {
                    format!("create topic {} with {} partitions", topic.name, topic.partitions)
                }
                topics => format!("create {} topics", topics.len()),
            },
            Command::DeleteTopic { topic } => format!("delete topic {}", self.topic(*topic)),
            Command::CreatePartitions { topic, total } => {
                format!("grow topic {} to {total} partitions", self.topic(*topic))
            }
            Command::SetTopicConfig { topic, .. } => {
                format!("configure topic {}", self.topic(*topic))
            }
            Command::SetNodeConfig { .. } => "configure the node".into(),
            Command::SetGroupConfig { group, .. } => format!("configure group {group}"),
            Command::AdvanceStart { starts } => match &starts[..] {
                [(place, start)] => format!("delete {} below {start}", self.partition(*place)),
                starts => format!("delete old records of {} partitions", starts.len()),
            },
            Command::Compacted { partition, up_to } => {
                format!("{} is compacted up to {up_to}", self.partition(*partition))
            }
            Command::AllocateProducerId => "allocate a producer id".into(),
            Command::CommitOffsets { group, offsets } => match &offsets[..] {
                [at] => {
                    format!(
                        "group {group} commits {} at {}",
                        self.partition(at.partition),
                        at.offset
                    )
                }
                offsets => format!("group {group} commits {} offsets", offsets.len()),
            },
            Command::DeleteOffsets { group, partitions } => {
                format!("group {group} forgets {} offsets", partitions.len())
            }
            Command::DeleteGroup { group } => format!("delete group {group}"),
            Command::ExpireOffsets { groups, .. } => {
                format!("expire offsets of {} groups", groups.len())
            }
            Command::ExpireProducers { .. } => "expire producers".into(),
            Command::CreateLeaseGroup { topic, name, .. } => {
                format!("create lease group {name} of {}", self.topic(*topic))
            }
            Command::SetLeaseGroupConfig { group, .. } => format!("configure lease group {group}"),
            Command::DeleteLeaseGroup { group } => format!("delete lease group {group}"),
            Command::PauseLeaseGroup { group, paused: true } => {
                format!("pause lease group {group}")
            }
            Command::PauseLeaseGroup { group, paused: false } => {
                format!("resume lease group {group}")
            }
            Command::SeekLeaseGroup { group, starts } => {
                format!("seek lease group {group} in {} partitions", starts.len())
            }
            Command::Settle { settles } => {
                let settled = settles.iter().flat_map(|settle| &settle.settled);
                let records: u64 = settled.map(|(_, count)| u64::from(*count)).sum();
                format!("settle {records} records of {} partitions", settles.len())
            }
            Command::PutDocument { space, name, body, .. } => {
                format!("put document {space}/{name} of {} bytes", body.len())
            }
            Command::DeleteDocument { space, name, .. } => {
                format!("delete document {space}/{name}")
            }
        }
    }
}
