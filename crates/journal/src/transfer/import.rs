//! The receiver: writes pieces as segments, each durable before the next one is begun.
//!
//! Received segments are in the journal's directory, with ids far above those of its log. They are
//! in no table until they are installed. A restart finds them again; the log indexes in their
//! headers decide their use: together, in order, they must have all live batches of the entries
//! after the journal's own snapshot.

use std::io::{self, IoSlice};
use std::sync::Arc;

use thiserror::Error;
use tracing::info;

use super::manifest::{ListedSegment, decode_segments};
use super::piece;
use crate::address::Address;
use crate::entry::EntryId;
use crate::index::{
    BlockWriter, FileKind, LiveOffsets, SHIPPED_GENERATION, ShippedSegment, sidecar_of,
};
use crate::journal::Journal;
use crate::received::{self, ReceivedFile, marker};
use crate::shared::Shared;
use crate::stats::DiskRoom;
use bytes::Bytes;

/// The log may fill this many segments before the received ones are installed. It will not fill
/// more while a snapshot is received: the first snapshot that the journal takes itself makes the
/// received one useless.
const NUMBERS_BETWEEN: u32 = 1 << 16;

/// Why a piece or a snapshot was not accepted.
#[derive(Debug, Error)]
pub enum ImportError {
    /// Nothing was written; retry with this sender or another one.
    #[error("what another node sent is refused: {0}")]
    Refused(&'static str),
    #[error("a snapshot is being received already")]
    Busy,
    /// Temporary, until space is freed.
    #[error("the disk is full")]
    NoRoom,
    #[error("cannot keep what another node sent: {0}")]
    Io(#[from] io::Error),
}

/// Another node's snapshot being received. There is one at a time.
#[derive(Debug)]
pub struct Import {
    pub(super) shared: Arc<Shared>,
    /// Id of the first segment.
    from: u32,
    /// Complete and durable segments.
    files: Vec<ReceivedFile>,
    /// Some of the files are from an earlier attempt, and so from another snapshot.
    resumed: bool,
    /// The journal's own snapshot covers everything up to this log index.
    base: u64,
    /// Everything up to this log index has been received.
    have: u64,
    expected: Option<ExpectedSnapshot>,
    writing: Option<SegmentImport>,
}

#[derive(Debug)]
pub(super) struct ExpectedSnapshot {
    pub(super) id: EntryId,
    pub(super) live: LiveOffsets,
    listed: Vec<ListedSegment>,
    /// Place in the list of the first incomplete segment.
    next: usize,
}

/// The segment being received.
#[derive(Debug)]
struct SegmentImport {
    segment: u32,
    indexes: (u64, u64),
    writer: BlockWriter,
    rows: u64,
    last: LastRow,
}

impl Journal {
    /// Begins to receive a snapshot, or resumes an earlier attempt. Blocking.
    pub fn import(&self) -> Result<Import, ImportError> {
        let shared = self.shared();
        {
            let mut state = shared.import.lock();
            if std::mem::replace(&mut state.busy, true) {
                return Err(ImportError::Busy);
            }
        }
        let own = shared.snapshot.lock().map_or(0, |id| id.index);
        let mut import = Import {
            shared: Arc::clone(shared),
            from: 0,
            files: Vec::new(),
            resumed: false,
            base: own,
            have: own,
            expected: None,
            writing: None,
        };
        let known = shared.import.lock().from;
        if let Some(from) = known {
            let (files, useless) = received::find(&shared.index, from, own)?;
            if let Some(last) = files.last() {
                import.from = from;
                import.have = own.max(last.indexes.1);
                received::remove(&shared.index, &useless)?;
                (import.files, import.resumed) = (files, true);
                let (segments, have) = (import.files.len(), import.have);
                info!(segments, have, "goes on with another node's snapshot");
                return Ok(import);
            }
            received::discard(shared, from)?;
        }
        let next = shared.spares.next_id().checked_add(NUMBERS_BETWEEN);
        import.from = next.ok_or(ImportError::Refused("no segment numbers are left"))?;
        marker::write(&*shared.disk, &shared.dir, import.from)?;
        shared.import.lock().from = Some(import.from);
        Ok(import)
    }
}

impl Import {
    /// Whether segments of an earlier attempt are reused. They have batches of the removed
    /// predecessor of a stream that was created again since.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// Discards all received segments, so that the next attempt starts from the beginning.
    /// Blocking.
    pub fn discard(mut self) -> io::Result<()> {
        self.writing = None;
        received::discard(&self.shared, self.from)
    }

    /// The log index up to which nothing is missing.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// Announces the snapshot: its id, and two of its sections.
    pub fn expect(&mut self, id: EntryId, live: &[u8], segments: &[u8]) -> Result<(), ImportError> {
        let live = LiveOffsets::decode(live)
            .map_err(|_| ImportError::Refused("live offsets that make no sense"))?;
        let listed = decode_segments(segments)
            .ok_or(ImportError::Refused("a list of segments that makes no sense"))?;
        if listed.iter().any(|segment| segment.covered > id.index) {
            return Err(ImportError::Refused("segments with entries behind the snapshot"));
        }
        self.writing = None;
        self.expected = Some(ExpectedSnapshot { id, live, listed, next: 0 });
        Ok(())
    }

    /// The list place of the segment to request; `None` once all are complete.
    pub fn next_segment(&self) -> Option<u64> {
        let expected = self.expected.as_ref()?;
        (expected.next < expected.listed.len()).then_some(expected.next as u64)
    }

    /// Bytes of the received segments, and of all listed ones. Approximate: batches that die in the
    /// meantime are not sent.
    pub fn progress(&self) -> (u64, u64) {
        let Some(expected) = &self.expected else { return (0, 0) };
        let bytes = |listed: &[ListedSegment]| {
            listed.iter().fold(0_u64, |sum, it| sum.saturating_add(it.bytes))
        };
        (bytes(&expected.listed[..expected.next]), bytes(&expected.listed))
    }

    /// Accepts the next rows of the requested segment. After an error the segment starts over.
    /// Blocking.
    pub fn push(&mut self, piece: Bytes) -> Result<(), ImportError> {
        let pushed = self.push_rows(piece);
        if pushed.is_err() {
            self.writing = None;
        }
        pushed
    }

    fn push_rows(&mut self, piece: Bytes) -> Result<(), ImportError> {
        if matches!(self.shared.spares.room(), DiskRoom::Full { .. }) {
            return Err(ImportError::NoRoom);
        }
        let rows = piece::decode(piece).map_err(ImportError::Refused)?;
        if self.writing.is_none() {
            self.writing = Some(self.begin()?);
        }
        let (Some(expected), Some(writing)) = (&self.expected, &mut self.writing) else {
            return Err(ImportError::Refused("batches that were not requested"));
        };
        for row in rows {
            let live = expected.live.get(row.stream);
            let known = live.is_some_and(|live| {
                row.address.next_offset() > live.start && row.address.next_offset() <= live.end
            });
            if !known {
                return Err(ImportError::Refused("a batch that the snapshot does not have"));
            }
            writing.push(row)?;
        }
        Ok(())
    }

    fn begin(&self) -> Result<SegmentImport, ImportError> {
        let listed = self.expected.as_ref().and_then(|it| it.listed.get(it.next));
        let Some(listed) = listed else {
            return Err(ImportError::Refused("batches that were not requested"));
        };
        let segment = self.next_number()?;
        let before = self.files.last().map_or(self.base, |last| last.indexes.1);
        let indexes = (before.saturating_add(1), listed.covered.max(before.saturating_add(1)));
        let draft =
            self.shared.index.files().begin(FileKind::Segment, segment, SHIPPED_GENERATION)?;
        let writer = BlockWriter::new(draft, segment, SHIPPED_GENERATION, Some(indexes))?;
        Ok(SegmentImport { segment, indexes, writer, rows: 0, last: None })
    }

    /// The id of the next segment.
    pub(super) fn next_number(&self) -> Result<u32, ImportError> {
        let next = self.from.checked_add(self.files.len() as u32);
        next.ok_or(ImportError::Refused("no segment numbers are left"))
    }

    /// Completes the requested segment, of which all rows have arrived: it is durable on return,
    /// and the next one is to be requested. Blocking.
    pub fn finish_segment(&mut self) -> Result<(), ImportError> {
        let Some(expected) = &mut self.expected else {
            return Err(ImportError::Refused("a segment that was not requested"));
        };
        let Some(listed) = expected.listed.get(expected.next) else {
            return Err(ImportError::Refused("a segment that was not requested"));
        };
        let covered = listed.covered;
        if let Some(SegmentImport { segment, indexes, writer, rows: 1.., .. }) = self.writing.take()
        {
            let index = &self.shared.index;
            let (body, addresses) = writer.finish()?;
            let sidecar = sidecar_of(segment, SHIPPED_GENERATION, Some(indexes), &addresses);
            let mut side = index.files().begin(FileKind::Sidecar, segment, SHIPPED_GENERATION)?;
            side.append(&mut [IoSlice::new(sidecar.as_bytes())])?;
            side.sync()?;
            side.publish()?;
            body.publish()?;
            index.files().sync_dir()?;
            self.files.push(ReceivedFile { segment, indexes });
        }
        expected.next += 1;
        self.have = self.have.max(covered);
        Ok(())
    }

    /// The announced snapshot, once it is complete.
    pub(super) fn complete(&self) -> Result<&ExpectedSnapshot, ImportError> {
        let missing = self.next_segment().is_some();
        let expected = self.expected.as_ref().filter(|_| !missing);
        expected.ok_or(ImportError::Refused("segments are missing"))
    }

    /// The received segments, read one by one. Blocking.
    pub(super) fn shipped(&self) -> impl Iterator<Item = io::Result<ShippedSegment>> {
        self.files.iter().map(|file| {
            let found = self.shared.index.unknown(file.segment, SHIPPED_GENERATION)?;
            let (segment, indexes) = (file.segment, file.indexes);
            let (file_bytes, sidecar) = (found.file_bytes, found.sidecar);
            Ok(ShippedSegment { segment, indexes, file_bytes, sidecar })
        })
    }
}

/// Stream and next offset of the last row: later rows are of a later stream, or from this offset
/// on.
pub(super) type LastRow = Option<(u64, u64)>;

pub(super) fn check_order(
    last: &mut LastRow,
    stream: u64,
    address: &Address,
) -> Result<(), ImportError> {
    let follows = last.is_none_or(|(of, next)| match stream == of {
        true => address.base_offset >= next,
        false => stream > of,
    });
    if !follows {
        return Err(ImportError::Refused("batches out of order"));
    }
    *last = Some((stream, address.next_offset()));
    Ok(())
}

impl Drop for Import {
    fn drop(&mut self) {
        // Removes its draft before another import may begin.
        self.writing = None;
        self.shared.import.lock().busy = false;
    }
}

impl SegmentImport {
    fn push(&mut self, row: piece::Row) -> Result<(), ImportError> {
        let piece::Row { stream, address, batch } = row;
        check_order(&mut self.last, stream, &address)?;
        self.writer.begin_stream(stream)?;
        let is_here = self.writer.has(&address);
        match batch {
            Some(_) if is_here => return Err(ImportError::Refused("a batch that came before")),
            Some(batch) => self.writer.push(address, batch)?,
            None if self.writer.push_shared(address)? => {}
            None => return Err(ImportError::Refused("a batch that did not come before")),
        }
        self.rows += 1;
        Ok(())
    }
}
