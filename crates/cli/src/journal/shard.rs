//! A shard's journal, read from end to end.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ::journal::inspect::{self, FrameInfo, Frames, Inspection, SegmentFile, SnapshotFileInfo};
use ::world::RealDisk;
use base::{HashMap, TopicId};

use machine::Role;

use super::damage::Damage;
use super::lines::{ENTRY_HEADINGS, FRAME_HEADINGS, entry_line, frame_line};
use super::names::{Names, state_of};
use super::report::{SegmentReport, ShardReport, SnapshotReport};
use super::{Inspect, unreadable};
use crate::command_error::CommandError;
use crate::output::OutputFormat;

pub(super) struct Shard {
    dir: PathBuf,
    found: Inspection,
    names: Names,
}

impl Shard {
    /// `topics` are those that the catalog names.
    pub(super) fn open(dir: &Path, topics: HashMap<TopicId, String>) -> Result<Self, CommandError> {
        let found = inspect::inspect(&RealDisk, dir).map_err(unreadable(dir))?;
        let names = Names::from_snapshots(dir, &found.snapshots, topics)?;
        Ok(Self { dir: dir.to_owned(), found, names })
    }

    /// Names of all topics found in this journal, for the shards with their rows.
    pub(super) fn into_topics(self) -> HashMap<TopicId, String> {
        self.names.topics
    }

    pub(super) fn report(
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
                damage.add(&snapshot.path, "in");
            }
            snapshots.push(self.snapshot(snapshot)?);
        }
        let vote_sound = self.found.vote.as_ref().map(|vote| vote.vote.is_some());
        if let Some(vote) = self.found.vote.as_ref().filter(|vote| vote.vote.is_none()) {
            damage.add(&vote.path, "in");
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
            damage.add(&file.path, "at the beginning of");
        }
        let mut found = Damage::default();
        for frame in frames(&self.dir, file.id)? {
            report.add(&frame?, file, &mut found);
        }
        if damage.settle(found, &self.dir, file)? {
            report.verdict = "being written".into();
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
            topics: state.as_ref().map(|state| match state.role() {
                Role::Whole | Role::Catalog => state.catalog.topic_count(),
                Role::Rows(_) => state.rows.topics().count(),
            }),
            partitions: state.as_ref().map(|state| match state.role() {
                Role::Whole | Role::Catalog => state.catalog.partition_count(),
                Role::Rows(_) => {
                    state.rows.topics().map(|topic| topic.partition_count() as u64).sum()
                }
            }),
            groups: state.as_ref().map(|state| state.rows.group_count()),
        })
    }

    /// Prints frames or entries as they are read: a journal may be larger than memory.
    pub(super) fn list(
        &mut self,
        inspect: &Inspect,
        damage: &mut Damage,
    ) -> Result<(), CommandError> {
        let mut out = BufWriter::new(io::stdout().lock());
        let json = inspect.output.output == OutputFormat::Json;
        let shard = self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !json {
            writeln!(out, "{}:", self.dir.display())?;
            writeln!(out, "{}", if inspect.entries { ENTRY_HEADINGS } else { FRAME_HEADINGS })?;
        }
        for file in self.found.segments.clone().iter().filter(|file| file.generation == 1) {
            let shown = inspect.segment.is_none_or(|segment| segment == file.id);
            let mut found = Damage::default();
            for frame in frames(&self.dir, file.id)? {
                let frame = frame?;
                if shown {
                    found.look_at(&frame, file);
                }
                if shown && !inspect.entries {
                    frame_line(&mut out, &shard, &frame, json)?;
                }
                for entry in frame.entries.iter().filter(|_| inspect.entries) {
                    let head = self.names.read(entry);
                    if shown {
                        entry_line(&mut out, &shard, &frame, entry, head, &self.names, json)?;
                    }
                }
            }
            damage.settle(found, &self.dir, file)?;
        }
        out.flush()?;
        Ok(())
    }
}

pub(super) fn frames(
    dir: &Path,
    segment: u32,
) -> Result<impl Iterator<Item = Result<FrameInfo, CommandError>> + use<>, CommandError> {
    let dir = dir.to_owned();
    let frames = Frames::open(&RealDisk, &dir, segment).map_err(unreadable(&dir))?;
    Ok(frames.map(move |frame| frame.map_err(unreadable(&dir))))
}
