//! Messages between the members of a group.
//!
//! ```text
//! 0 version u8   1 checksum of the rest u32, little-endian   5 group, sender, recipient, content
//! ```
//!
//! The part from 5 on is postcard of the structs here, which are the format, like those of `encoding`: openraft's
//! own types change from alpha to alpha. The checksum rejects a message that was damaged in transit, instead of
//! decoding another one. Entries follow a [`Request::Append`] in bytes of their own (`entries`): each in its form
//! in the journal, under its own checksum.
//!
//! * `entries`: the entries of an append
//! * `snapshots`: messages of a snapshot transfer
//! * `tests`: arbitrary bytes cause no panic

mod entries;
mod snapshots;
#[cfg(test)]
mod tests;

use base::checksum::crc32c;
use base::limits::GROUP_MESSAGE_BYTES_MAX;
use base::{Format, Level, Levels};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub(crate) use entries::{Entries, decode_entries, encode_entries};
pub(crate) use snapshots::{
    CoveringRequest, ManifestRecord, ManifestRequest, OfferReply, PieceRecord, SectionRequest,
    SegmentRequest,
};

use crate::encoding::{Position, VoteRecord};
use crate::engine::{LogId, Vote};

const VERSION: u8 = 1;
const _: () = assert!(VERSION as u32 == Format::GroupMessage.newest(Levels::OURS.max));
const CONTENT_AT: usize = 5;
/// No group reaches it in its life. Larger numbers would overflow counters that start from them.
const NUMBER_MAX: u64 = 1 << 62;

/// The group of a message. Two separately founded groups have different ids, even if they were meant to be one:
/// messages of one must never reach the other's log.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct GroupId {
    pub cluster: u128,
    pub shard: u32,
}

/// Reason why a message is rejected, which is sent to its sender.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error("it makes no sense: {0}")]
    Malformed(String),
    #[error("it is of another group")]
    OtherGroup,
    #[error("it is for another node")]
    OtherNode,
    #[error("the group's member here has stopped")]
    Stopped,
    /// It was held for long, this node was restarted, or the limit of held snapshots was reached.
    #[error("the snapshot is not held any more")]
    NotHeld,
    #[error("the disk does not give it: {0}")]
    Disk(String),
    #[error("it has not applied all of it yet")]
    Behind,
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    group: GroupId,
    from: u64,
    to: u64,
    content: T,
}

/// Both ends of a conversation, from the view of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) group: GroupId,
    pub(crate) here: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Vote(Candidacy),
    PreVote(Candidacy),
    Transfer(Transfer),
    Snapshot(SnapshotOffer),
    Append(Append),
    Manifest(ManifestRequest),
    Section(SectionRequest),
    Segment(SegmentRequest),
    Covering(CoveringRequest),
}

base::levels!(Request {
    Level::FIRST => Vote | PreVote | Transfer | Snapshot | Append | Manifest | Section | Segment
        | Covering;
});

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Candidacy {
    pub(crate) vote: VoteRecord,
    pub(crate) last: Option<Position>,
    pub(crate) transfer: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Transfer {
    pub(crate) leader: VoteRecord,
    pub(crate) to: u64,
    pub(crate) last: Option<Position>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotOffer {
    pub(crate) leader: VoteRecord,
    pub(crate) last: Option<Position>,
    /// The leader's address: an empty member knows no members.
    pub(crate) address: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Append {
    pub(crate) leader: VoteRecord,
    pub(crate) previous: Option<Position>,
    pub(crate) committed: Option<Position>,
    pub(crate) entries: u32,
    /// The last index that every member has: no member will request it.
    pub(crate) with_all: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Vote { vote: VoteRecord, granted: bool, last: Option<Position> },
    Transfer(TransferReply),
    Append(AppendResponse),
    Refused(Refusal),
    Offered(OfferReply),
    Manifest(ManifestRecord),
    Piece(PieceRecord),
}

base::levels!(Reply {
    Level::FIRST => Vote | Transfer | Append | Refused | Offered | Manifest | Piece;
});

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum TransferReply {
    Taken,
    VoteChanged { expected: VoteRecord, actual: VoteRecord },
    NotDurable { expected: Option<Position>, actual: Option<Position> },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum AppendResponse {
    /// Durable here up to this one.
    Matches(Option<Position>),
    /// The entry before the first differs here, or is missing.
    Conflict(Position),
    HigherVote(VoteRecord),
}

impl Route {
    /// A message to that node.
    pub(crate) fn encode<T: Serialize>(&self, to: u64, content: T) -> Bytes {
        let envelope = Envelope { group: self.group, from: self.here, to, content };
        let begin = vec![VERSION, 0, 0, 0, 0];
        let mut bytes = postcard::to_extend(&envelope, begin).expect("a growing buffer takes any");
        let checksum = crc32c(&bytes[CONTENT_AT..]);
        bytes[1..CONTENT_AT].copy_from_slice(&checksum.to_le_bytes());
        bytes.into()
    }

    /// The sender and the content of a message, if it is for this member.
    pub(crate) fn decode<T: for<'de> Deserialize<'de> + Checked>(
        &self,
        message: &[u8],
    ) -> Result<(u64, T), Refusal> {
        let malformed = |what: &str| Refusal::Malformed(what.to_owned());
        if message.len() > GROUP_MESSAGE_BYTES_MAX {
            return Err(malformed("it is too long"));
        }
        match message.first() {
            Some(&VERSION) => {}
            Some(version) => {
                let what = format!("version {version} is not known to this build");
                return Err(Refusal::Malformed(what));
            }
            None => return Err(malformed("it is empty")),
        }
        let checksum = message[1..].first_chunk::<4>().ok_or_else(|| malformed("it is cut off"))?;
        let content = &message[CONTENT_AT..];
        if crc32c(content) != u32::from_le_bytes(*checksum) {
            return Err(malformed("it is damaged"));
        }
        let (envelope, rest) = postcard::take_from_bytes::<Envelope<T>>(content)
            .map_err(|error| Refusal::Malformed(error.to_string()))?;
        if envelope.group != self.group {
            return Err(Refusal::OtherGroup);
        }
        if envelope.to != self.here {
            return Err(Refusal::OtherNode);
        }
        if !rest.is_empty() || !envelope.content.holds(envelope.from) {
            return Err(malformed("what it says contradicts itself"));
        }
        Ok((envelope.from, envelope.content))
    }
}

/// Checks the assumptions of the engine about its input.
pub(crate) trait Checked {
    fn holds(&self, from: u64) -> bool;
}

fn sensible(vote: &VoteRecord) -> bool {
    vote.term <= NUMBER_MAX
}

fn possible(position: &Option<Position>) -> bool {
    position.as_ref().is_none_or(|it| it.term <= NUMBER_MAX && it.index <= NUMBER_MAX)
}

impl Checked for Request {
    fn holds(&self, from: u64) -> bool {
        let leads = |vote: &VoteRecord| sensible(vote) && vote.committed && vote.node == from;
        match self {
            Self::Vote(candidacy) | Self::PreVote(candidacy) => {
                let Candidacy { vote, last, .. } = candidacy;
                sensible(vote) && !vote.committed && vote.node == from && possible(last)
            }
            Self::Transfer(Transfer { leader, last, .. })
            | Self::Snapshot(SnapshotOffer { leader, last, .. }) => leads(leader) && possible(last),
            Self::Append(Append { leader, previous, committed, .. }) => {
                leads(leader) && possible(previous) && possible(committed)
            }
            Self::Manifest(_) | Self::Section(_) | Self::Segment(_) | Self::Covering(_) => true,
        }
    }
}

impl Checked for Reply {
    fn holds(&self, _: u64) -> bool {
        match self {
            Self::Vote { vote, last, .. } => sensible(vote) && possible(last),
            Self::Append(AppendResponse::Matches(last)) => possible(last),
            Self::Append(AppendResponse::Conflict(at)) => {
                at.term <= NUMBER_MAX && at.index <= NUMBER_MAX
            }
            Self::Append(AppendResponse::HigherVote(vote)) => sensible(vote),
            Self::Transfer(TransferReply::VoteChanged { expected, actual }) => {
                sensible(expected) && sensible(actual)
            }
            Self::Transfer(TransferReply::NotDurable { expected, actual }) => {
                possible(expected) && possible(actual)
            }
            Self::Offered(OfferReply::HigherVote(vote)) => sensible(vote),
            Self::Manifest(manifest) => manifest.holds(),
            Self::Transfer(TransferReply::Taken)
            | Self::Refused(_)
            | Self::Offered(_)
            | Self::Piece(_) => true,
        }
    }
}

pub(crate) fn positions(id: Option<LogId>) -> Option<Position> {
    id.map(Position::from)
}

pub(crate) fn log_ids(position: Option<Position>) -> Option<LogId> {
    position.map(LogId::from)
}

pub(crate) fn vote_of(record: VoteRecord) -> Vote {
    record.into()
}
