//! The sender's announcement, and the list of segments that is one of its sections.
//!
//! ```text
//! segments  magic "PRsl" | version u32 | n x { covered+, bytes }
//! ```
//! Numbers are varints. `covered` is the log index up to which a receiver lacks no batch once it
//! has this segment and all before it. It is stored as the difference to the one before.

use crate::entry::EntryId;
use crate::index::fields::{Fields, put_varint};
use base::{Format, Levels};

const MAGIC: [u8; 4] = *b"PRsl";
const VERSION: u32 = 1;
const _: () = assert!(VERSION == Format::Transfer.newest(Levels::OURS.max));

/// Description of a snapshot being sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub id: EntryId,
    /// By [`Section::ALL`].
    pub sections: [SectionSize; 4],
}

impl Manifest {
    pub fn section(&self, section: Section) -> SectionSize {
        self.sections[section as usize]
    }
}

/// A part of a snapshot that is sent unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Section {
    /// Consensus' own part.
    Meta = 0,
    /// The machine's.
    Machine = 1,
    /// Live offsets of each stream.
    Live = 2,
    /// Segments to send.
    Segments = 3,
}

impl Section {
    pub const ALL: [Self; 4] = [Self::Meta, Self::Machine, Self::Live, Self::Segments];
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SectionSize {
    pub bytes: u64,
    pub crc: u32,
}

/// A segment to send, which the receiver identifies by its place in the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListedSegment {
    pub(crate) covered: u64,
    /// Approximate size.
    pub(crate) bytes: u64,
}

pub(crate) fn encode_segments(segments: &[ListedSegment]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + segments.len() * 8);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    put_varint(&mut out, segments.len() as u64);
    let mut last = 0;
    for ListedSegment { covered, bytes } in segments {
        put_varint(&mut out, covered - last);
        put_varint(&mut out, *bytes);
        last = *covered;
    }
    out
}

/// `None`: the bytes are not a list of segments.
pub(crate) fn decode_segments(bytes: &[u8]) -> Option<Vec<ListedSegment>> {
    let mut fields = Fields::new(bytes);
    if fields.array() != Some(MAGIC) || fields.u32() != Some(VERSION) {
        return None;
    }
    let count = fields.count(2)?;
    let mut segments = Vec::with_capacity(count);
    let mut covered = 0_u64;
    for _ in 0..count {
        covered = covered.checked_add(fields.varint()?)?;
        segments.push(ListedSegment { covered, bytes: fields.varint()? });
    }
    (fields.remaining() == 0).then_some(segments)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn list_of_segments_is_read_back_and_garbage_never_panics(
            steps in prop::collection::vec((0..1_u64 << 40, any::<u64>()), 0..20),
            bytes: Vec<u8>,
        ) {
            let mut covered = 0;
            let segments: Vec<ListedSegment> = steps
                .into_iter()
                .map(|(step, bytes)| {
                    covered += step;
                    ListedSegment { covered, bytes }
                })
                .collect();
            let encoded = encode_segments(&segments);
            prop_assert_eq!(decode_segments(&encoded), Some(segments));
            for len in 0..encoded.len() {
                prop_assert_eq!(decode_segments(&encoded[..len]), None);
            }
            let _ = decode_segments(&bytes);
        }
    }
}
