//! Reads the frames of a segment in order, without trusting a byte of them. Recovery, the
//! rebuilding of sidecars and `journal inspect` all read segments through this.

use std::io;

use crate::frame::{self, BLOCK, FrameHeader};
use world::DiskFile;

/// Bytes per read while searching for a frame at an unknown position.
const SEARCH_BYTES: usize = 1 << 20;

/// A block with at most this many non-zero bytes never held a header: some of its zeros changed.
const CHANGED_ZEROS_MAX: usize = 4;

const EMPTY: [u8; BLOCK] = [0; BLOCK];

/// Content found at a possible frame position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameAt {
    /// A complete frame of this segment and position.
    Complete(FrameHeader),
    /// A valid header with incomplete content.
    Incomplete(FrameHeader),
    /// A header that belongs elsewhere: the blocks had a former use.
    Stale,
    /// No header.
    Garbage,
    /// Zeros, or the end of the file.
    Empty,
}

#[derive(Debug)]
pub(crate) struct FrameReader<'a> {
    file: &'a dyn DiskFile,
    segment: u32,
    /// `None` when the segment's own header could not be read: then any salt is accepted.
    salt: Option<u32>,
    file_bytes: u64,
    buffer: Vec<u8>,
}

impl<'a> FrameReader<'a> {
    pub(crate) fn new(file: &'a dyn DiskFile, segment: u32, salt: Option<u32>) -> io::Result<Self> {
        let file_bytes = file.len()?;
        Ok(Self { file, segment, salt, file_bytes, buffer: Vec::new() })
    }

    /// Reads the frame at `position`. After `Complete` its content is in [`FrameReader::content`].
    pub(crate) fn at(&mut self, position: u64) -> io::Result<FrameAt> {
        let mut block = [0; BLOCK];
        if self.file.read_at(&mut block, position)? < BLOCK {
            return Ok(FrameAt::Empty);
        }
        let Some(header) = FrameHeader::decode(&block) else {
            return Ok(if block == EMPTY { FrameAt::Empty } else { FrameAt::Garbage });
        };
        let own_place = header.segment == self.segment && u64::from(header.position) == position;
        if !own_place || self.salt.is_some_and(|salt| salt != header.salt) {
            return Ok(FrameAt::Stale);
        }
        if header.end() > self.file_bytes {
            return Ok(FrameAt::Incomplete(header));
        }
        self.buffer.resize(header.content_bytes as usize, 0);
        let content_at = position + frame::FRAME_HEADER_BYTES as u64;
        let read = self.file.read_at(&mut self.buffer, content_at)?;
        let complete = frame::check_content(&header, &self.buffer[..read]).is_ok();
        Ok(if complete { FrameAt::Complete(header) } else { FrameAt::Incomplete(header) })
    }

    /// Entries of the last complete frame found.
    pub(crate) fn content(&self) -> &[u8] {
        &self.buffer
    }

    /// Whether the bytes at `position` may be a torn last write, which was never acknowledged.
    /// Otherwise they were written whole and changed afterwards.
    pub(crate) fn may_be_torn(&mut self, position: u64) -> io::Result<bool> {
        match self.at(position)? {
            FrameAt::Complete(_) => Ok(false),
            FrameAt::Empty | FrameAt::Stale => Ok(true),
            FrameAt::Incomplete(header) => {
                Ok(header.end() > self.file_bytes || frame::lacks_a_block(&header, &self.buffer))
            }
            FrameAt::Garbage => {
                let mut block = [0; BLOCK];
                let read = self.file.read_at(&mut block, position)?;
                let written = block[..read].iter().filter(|byte| **byte != 0).count();
                Ok(written <= CHANGED_ZEROS_MAX)
            }
        }
    }

    /// Searches for the first complete frame at or after `position`, and for the end of non-zero
    /// bytes from there.
    pub(crate) fn search(&mut self, position: u64) -> io::Result<Search> {
        let mut chunk = vec![0; SEARCH_BYTES];
        let mut search = Search { complete: None, used_end: position };
        let mut at = position;
        // Unwritten blocks, as most of a preallocated segment, are not read.
        while let Some(written) = self.file.next_written(at)? {
            at = written - written % BLOCK as u64;
            let read = self.file.read_at(&mut chunk, at)?;
            for (block_at, block) in (at..).step_by(BLOCK).zip(chunk[..read].chunks(BLOCK)) {
                // Most of the searched blocks were never written. Comparing memory makes a start
                // with a large empty segment quick.
                if block == &EMPTY[..block.len()] {
                    continue;
                }
                if FrameHeader::decode(block).is_some()
                    && matches!(self.at(block_at)?, FrameAt::Complete(_))
                {
                    search.complete = Some(block_at);
                    return Ok(search);
                }
                search.used_end = block_at + block.len() as u64;
            }
            if read < chunk.len() {
                return Ok(search);
            }
            at += read as u64;
        }
        Ok(search)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Search {
    pub(crate) complete: Option<u64>,
    pub(crate) used_end: u64,
}
