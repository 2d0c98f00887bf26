//! The end of the log: checks that no complete frame follows, and prepares it for writing.

use std::io::{self, IoSlice};

use super::candidate::Candidate;
use super::io_error;
use super::walk::SegmentWalk;
use crate::error::OpenError;
use crate::frame::BLOCK;
use crate::frame::reader::{FrameAt, FrameReader, Search};
use crate::log::LogPosition;
use crate::segment::{FIRST_FRAME, OpenSegment, WriteEnd};
use crate::stats::TornTail;

/// Zeros per write.
const ZEROS: usize = 1 << 20;

// Zeroing writes whole blocks from a possible frame position.
const _: () = assert!((FIRST_FRAME as usize).is_multiple_of(BLOCK));

impl SegmentWalk<'_> {
    /// Ends the log here, unless a complete frame follows: then it is damaged here.
    pub(super) fn end_here(&mut self, found: FrameAt) -> Result<(), OpenError> {
        let LogPosition { segment, position, .. } = self.at;
        for (&id, candidate) in self.segments.range(segment..) {
            let from = if id == segment { u64::from(position) } else { FIRST_FRAME };
            let read_error = |source| io_error("read", candidate.path.clone(), source);
            let mut frames = candidate.frames(id).map_err(read_error)?;
            let Search { complete, used_end } = frames.search(from).map_err(read_error)?;
            if let Some(later) = complete {
                let next = format!("the next whole one begins at {later} of segment {id}");
                let first = if id == segment {
                    found
                } else {
                    frames.at(FIRST_FRAME).map_err(read_error)?
                };
                return Err(match first {
                    FrameAt::Incomplete(header) if header.previous == self.at.previous => {
                        self.damaged(id, from, format!("a frame is damaged; {next}"))
                    }
                    _ => self.damaged(
                        segment,
                        position.into(),
                        format!("a frame is missing; {next}"),
                    ),
                });
            }
            if let Some(fault) = candidate.fault(id) {
                // No crash causes this: a segment is renamed to its final name after its header is
                // durable.
                let what = format!("{fault}. If it never held entries, remove it");
                return Err(OpenError::Unusable { file: candidate.path.clone(), what });
            }
            self.check_torn(id, from, &mut frames)?;
            // Bytes of a former use of the blocks are not a torn frame.
            let stale = id == segment && found == FrameAt::Stale;
            if used_end > from {
                let tail = TornTail { segment: id, position: from, bytes: used_end - from };
                self.torn.push(tail);
                self.report.torn_tail = self.report.torn_tail.or(Some(tail).filter(|_| !stale));
            }
        }
        Ok(())
    }

    /// Zeroes the last frame only if a crash may have torn it. A frame that was written whole may
    /// have been acknowledged.
    fn check_torn(
        &self,
        id: u32,
        from: u64,
        frames: &mut FrameReader<'_>,
    ) -> Result<(), OpenError> {
        let read_error = |source| io_error("read", self.path(id), source);
        let found = frames.at(from).map_err(read_error)?;
        // The rest of a zeroed frame has another predecessor.
        let was_cut =
            matches!(found, FrameAt::Incomplete(header) if header.previous != self.at.previous);
        if was_cut || frames.may_be_torn(from).map_err(read_error)? {
            return Ok(());
        }
        let what =
            "the last frame is damaged: no block of it is missing, as it would be after a crash";
        Err(self.damaged(id, from, what.to_owned()))
    }

    /// Zeroes torn frames, makes the end of the log durable, and keeps one preallocated segment.
    pub(super) fn settle(&mut self) -> Result<Option<OpenSegment>, OpenError> {
        let active = self.at.segment;
        let ahead = self.segments.split_off(&(active + 1));
        for torn in std::mem::take(&mut self.torn) {
            let candidate = self.segments.get(&torn.segment).or_else(|| ahead.get(&torn.segment));
            let Some(candidate) = candidate else { continue };
            self.cut(candidate, torn).map_err(|source| {
                io_error("cut the torn tail of", candidate.path.clone(), source)
            })?;
        }
        let last = &self.segments[&active];
        if !self.fresh {
            let write_error = |source| io_error("write again", last.path.clone(), source);
            self.rewrite_last_frame(last).map_err(write_error)?;
            last.file.sync().map_err(|source| io_error("sync", last.path.clone(), source))?;
        }

        let (mut spare, mut removed) = (None, false);
        for (id, candidate) in ahead {
            match candidate.header {
                Some(mut header) if id == active + 1 => {
                    let Candidate { file, file_bytes, path, .. } = candidate;
                    if !header.takes_entries() {
                        let io_error = |source| io_error("write the header of", path, source);
                        header.upgrade(&*file).map_err(io_error)?;
                    }
                    spare = Some(OpenSegment { header, file, file_bytes });
                }
                _ => {
                    // The preparer had allocated a second one when the first was about to be used.
                    let remove_error = |source| io_error("remove", candidate.path.clone(), source);
                    self.world.disk.remove(&candidate.path).map_err(remove_error)?;
                    self.report.segments -= 1;
                    removed = true;
                }
            }
        }
        if removed {
            let sync_error = |source| io_error("sync", self.dir.to_owned(), source);
            self.world.disk.sync_dir(self.dir).map_err(sync_error)?;
        }
        Ok(spare)
    }

    /// Rewrites the last frame as it was read. If its sync failed and the process ended, the kernel
    /// keeps its pages as clean: they can be read, another sync does nothing, and a later power
    /// loss would remove them from under the frames that follow. Earlier frames were synced.
    fn rewrite_last_frame(&self, last: &Candidate) -> io::Result<()> {
        let LogPosition { segment, position: end, .. } = self.at;
        let Some((_, from)) = self.last_frame.filter(|(of, _)| *of == segment) else {
            return Ok(());
        };
        let mut frame = vec![0; usize::try_from(u64::from(end) - from).unwrap_or(0)];
        if last.file.read_at(&mut frame, from)? < frame.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        last.file.write_at(&mut [IoSlice::new(&frame)], from)
    }

    /// Overwrites everything behind the end of the log with zeros. The rest of a torn frame cannot
    /// pass for a later frame, but it would hide a missing block of a later torn frame.
    fn cut(&self, candidate: &Candidate, torn: TornTail) -> io::Result<()> {
        let TornTail { segment, position, bytes } = torn;
        tracing::warn!(segment, position, bytes, "cut a frame that a crash left torn");
        let zeros = vec![0; (bytes as usize).min(ZEROS)];
        let end = position + bytes;
        for at in (position..end).step_by(ZEROS) {
            let now = (end - at).min(ZEROS as u64) as usize;
            candidate.file.write_at(&mut [IoSlice::new(&zeros[..now])], at)?;
        }
        candidate.file.sync()
    }

    pub(super) fn write_end(&mut self) -> Result<WriteEnd, OpenError> {
        let LogPosition { segment, position, previous } = self.at;
        let Some(Candidate { file, header: Some(mut header), file_bytes, path }) =
            self.segments.remove(&segment)
        else {
            let what = "its header is damaged".to_owned();
            return Err(OpenError::Unusable { file: self.path(segment), what });
        };
        let position = u64::from(position);
        // A segment with frames keeps its version: the writer rolls before it writes.
        if !header.takes_entries() && position == FIRST_FRAME {
            let io_error = |source| io_error("write the header of", path, source);
            header.upgrade(&*file).map_err(io_error)?;
        }
        let segment = OpenSegment { header, file, file_bytes };
        Ok(WriteEnd { segment, position, previous, last_index: self.last_index })
    }
}
