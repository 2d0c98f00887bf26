//! Messages of a snapshot transfer: the leader offers it, the member requests it piece by piece. The pieces
//! themselves accompany these messages, under checksums of their own.

use crate::limits::SNAPSHOT_SECTION_BYTES_MAX;
use journal::EntryId;
use journal::transfer::{Manifest, SectionSize};
use serde::{Deserialize, Serialize};

use super::NUMBER_MAX;
use crate::encoding::VoteRecord;

/// A member's reply to the offer of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum OfferReply {
    /// It fetches the snapshot, or is about to.
    UnderWay {
        bytes: u64,
        of_bytes: u64,
    },
    /// It has everything in the snapshot, durably.
    Has,
    HigherVote(VoteRecord),
}

/// Requests the newest snapshot for a member with everything up to `have`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ManifestRequest {
    pub(crate) have: u64,
}

/// Requests the entries up to `up_to`, in a snapshot that covers them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CoveringRequest {
    pub(crate) have: u64,
    pub(crate) up_to: u64,
}

/// Requests the next bytes of one of the snapshot's sections.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SectionRequest {
    pub(crate) sending: u64,
    /// Place in `Section::ALL`.
    pub(crate) section: u8,
    pub(crate) from: u64,
}

/// Requests the next rows of a segment.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SegmentRequest {
    pub(crate) sending: u64,
    pub(crate) segment: u64,
    pub(crate) row: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SectionRecord {
    pub(crate) bytes: u64,
    pub(crate) crc: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ManifestRecord {
    /// Identifies the snapshot in requests for its parts.
    pub(crate) sending: u64,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) leader: u64,
    pub(crate) sections: [SectionRecord; 4],
}

/// Accompanied by a piece. For a section `next` is unused: its size is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PieceRecord {
    pub(crate) next: Option<u64>,
}

impl ManifestRecord {
    pub(crate) fn new(sending: u64, manifest: &Manifest) -> Self {
        let EntryId { index, term, leader } = manifest.id;
        let record = |size: SectionSize| SectionRecord { bytes: size.bytes, crc: size.crc };
        Self { sending, index, term, leader, sections: manifest.sections.map(record) }
    }

    pub(crate) fn id(&self) -> EntryId {
        EntryId { index: self.index, term: self.term, leader: self.leader }
    }

    pub(super) fn holds(&self) -> bool {
        self.index <= NUMBER_MAX
            && self.term <= NUMBER_MAX
            && self.sections.iter().all(|section| section.bytes <= SNAPSHOT_SECTION_BYTES_MAX)
    }
}
