//! Invariants that hold for arbitrary bytes from a disk or another node: for fuzz targets, and for
//! tests of the cases they found.

use base::checksum::{crc32c, crc32c_append};
use bytes::Bytes;

use crate::frame::{
    EntryLayout, FRAME_HEADER_BYTES, FrameHeader, check_content, lacks_a_block, layouts,
};
use crate::index::{LiveOffsets, RunTable};

use crate::snapshot::SnapshotFile;
use crate::transfer::manifest::{decode_segments, encode_segments};
use crate::transfer::piece;
use crate::vote;

const ENTRY_CHECKSUM_AT: usize = 36;
const HEADER_CHECKSUM_AT: usize = 48;
const PIECE_CHECKSUM_AT: usize = 8;
const PIECE_HEADER_BYTES: usize = 12;
const SNAPSHOT_CHECKSUM_AT: usize = 72;

/// A frame of a segment: as given, and with corrected checksums.
pub fn frame(data: &[u8]) {
    frame_as_it_is(data);
    let mut frame = data.to_vec();
    let Some((header, content)) = frame.split_at_mut_checked(FRAME_HEADER_BYTES) else { return };
    let mut entries = 0_u32;
    let mut at = 0;
    let mut checksums = crc32c(&[]);
    while let Ok(layout) = EntryLayout::read(&content[at..]) {
        let Some(entry) = content.get_mut(at..at + layout.len) else { break };
        let checksum = crc32c(&entry[..ENTRY_CHECKSUM_AT]);
        let checksum = crc32c_append(checksum, &entry[ENTRY_CHECKSUM_AT + 4..]);
        entry[ENTRY_CHECKSUM_AT..ENTRY_CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
        checksums = crc32c_append(checksums, &checksum.to_le_bytes());
        entries += 1;
        at += layout.len;
    }
    header[28..32].copy_from_slice(&entries.to_le_bytes());
    header[32..36].copy_from_slice(&(at as u32).to_le_bytes());
    header[36..40].copy_from_slice(&checksums.to_le_bytes());
    let checksum = crc32c(&header[..HEADER_CHECKSUM_AT]);
    header[HEADER_CHECKSUM_AT..HEADER_CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    frame_as_it_is(&frame);
}

fn frame_as_it_is(frame: &[u8]) {
    let Some(header) = FrameHeader::decode(frame) else { return };
    assert_eq!(FrameHeader::decode(&header.encode()), Some(header));
    let content = &frame[FRAME_HEADER_BYTES..];
    let is_complete = check_content(&header, content).is_ok();
    let _ = lacks_a_block(&header, content);
    if !is_complete {
        return;
    }
    let content = Bytes::copy_from_slice(&content[..header.content_bytes as usize]);
    let mut end = 0;
    for (at, layout) in layouts(&content) {
        assert_eq!(at, end, "entries follow one another");
        end = at + layout.len;
        let bytes = content.slice(at..end);
        let entry = layout.entry(&bytes);
        let bodies: usize = entry.bodies.iter().map(|body| body.bytes.len()).sum();
        // Each row that shares a body counts it.
        assert!(entry.head.len() <= bytes.len() && bodies <= bytes.len() * bytes.len());
        assert_eq!(EntryLayout::descriptor_bytes(&bytes), Some(layout.head.start as u64));
    }
    assert_eq!(end, content.len());
}

/// A file or a message; the first byte selects its kind.
pub fn stored(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 6 {
        0 => {
            let _ = vote::decode(bytes);
        }
        1 => snapshot(bytes),
        2 => {
            if let Some(segments) = decode_segments(bytes) {
                let again = decode_segments(&encode_segments(&segments));
                assert_eq!(again, Some(segments));
            }
        }
        3 => {
            if let Ok(live) = LiveOffsets::decode(bytes) {
                let again = LiveOffsets::decode(&live.encode()).map(|live| live.encode()).ok();
                assert_eq!(again, Some(live.encode()));
            }
        }
        4 => {
            // The table of a snapshot, with a corrected checksum.
            let sealed = [bytes, &crc32c(bytes).to_le_bytes()].concat();
            if let Ok(table) = RunTable::decode(&sealed) {
                let again = RunTable::decode(&table.encode()).map(|table| table.encode()).ok();
                assert_eq!(again, Some(table.encode()));
            }
        }
        _ => transferred(bytes),
    }
}

fn snapshot(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let Some(rest) = bytes.get(SNAPSHOT_CHECKSUM_AT + 4..) else { return };
    let checksum = crc32c_append(crc32c(&bytes[..SNAPSHOT_CHECKSUM_AT]), rest);
    bytes[SNAPSHOT_CHECKSUM_AT..SNAPSHOT_CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    let bytes = Bytes::from(bytes);
    if let Some(found) = SnapshotFile::decode(&bytes) {
        let parts = found.meta.len() + found.machine.len() + found.table.len();
        assert_eq!(parts, bytes.len() - SNAPSHOT_CHECKSUM_AT - 4);
    }
}

fn transferred(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= PIECE_HEADER_BYTES {
        let count = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as usize;
        let end = count.saturating_mul(piece::ROW_BYTES).saturating_add(PIECE_HEADER_BYTES);
        let crc = crc32c(&bytes[PIECE_HEADER_BYTES..end.min(bytes.len())]);
        bytes[PIECE_CHECKSUM_AT..PIECE_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
    if let Ok(rows) = piece::decode(Bytes::from(bytes)) {
        let again = piece::decode(Bytes::from(piece::encode(&rows)));
        assert_eq!(again, Ok(rows));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_of_frames_and_files_passes() {
        test_corpus::each("journal_frame", super::frame);
        test_corpus::each("journal_stored", super::stored);
    }
}
