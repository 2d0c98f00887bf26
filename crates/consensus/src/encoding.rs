//! The stored state of consensus: votes, members, the head of a snapshot.
//!
//! Each begins with a byte that names its version, then postcard. The structs here are the format:
//! openraft's own types change from alpha to alpha and are not stored.

use base::{Format, Levels};
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use openraft::BasicNode;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::engine::{LogId, Membership, SnapshotMeta, StoredMembership, Vote, log_id};

const VERSION: u8 = 1;
const _: () = assert!(VERSION as u32 == Format::Consensus.newest(Levels::OURS.max));

#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum DecodeError {
    #[error("version {0} is not known to this build")]
    Version(u8),
    #[error("it is empty")]
    Empty,
    #[error("{0}")]
    Content(#[from] postcard::Error),
    #[error("the members contradict each other: {0}")]
    Members(String),
}

/// Also the form in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct VoteRecord {
    pub(crate) term: u64,
    pub(crate) node: u64,
    pub(crate) committed: bool,
}

/// Position of an entry in the log; also the form in messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Position {
    pub(crate) term: u64,
    pub(crate) index: u64,
}

#[derive(Serialize, Deserialize)]
struct MembersRecord {
    /// More than one while the group changes from one set of voters to another.
    voters: Vec<BTreeSet<u64>>,
    /// Voters and learners, with their addresses.
    nodes: BTreeMap<u64, String>,
}

#[derive(Serialize, Deserialize)]
struct SnapshotRecord {
    last_applied: Option<Position>,
    members_since: Option<Position>,
    members: MembersRecord,
}

pub(crate) fn encode_vote(vote: &Vote) -> Vec<u8> {
    encode(&VoteRecord::from(vote))
}

pub(crate) fn decode_vote(bytes: &[u8]) -> Result<Vote, DecodeError> {
    decode::<VoteRecord>(bytes).map(Vote::from)
}

pub(crate) fn encode_members(members: &Membership) -> Bytes {
    encode(&MembersRecord::from(members)).into()
}

pub(crate) fn decode_members(bytes: &[u8]) -> Result<Membership, DecodeError> {
    decode::<MembersRecord>(bytes)?.into_members()
}

pub(crate) fn encode_snapshot_meta(meta: &SnapshotMeta) -> Bytes {
    let members = &meta.last_membership;
    encode(&SnapshotRecord {
        last_applied: meta.last_log_id.map(Position::from),
        members_since: members.log_id().map(Position::from),
        members: MembersRecord::from(members.membership()),
    })
    .into()
}

pub(crate) fn decode_snapshot_meta(bytes: &[u8]) -> Result<SnapshotMeta, DecodeError> {
    let record: SnapshotRecord = decode(bytes)?;
    let since = record.members_since.map(LogId::from);
    Ok(SnapshotMeta {
        last_log_id: record.last_applied.map(LogId::from),
        last_membership: StoredMembership::new(since, record.members.into_members()?),
    })
}

impl From<&Vote> for VoteRecord {
    fn from(vote: &Vote) -> Self {
        let leader = vote.leader_id();
        Self { term: leader.term, node: leader.voted_for, committed: vote.committed }
    }
}

impl From<VoteRecord> for Vote {
    fn from(VoteRecord { term, node, committed }: VoteRecord) -> Self {
        match committed {
            true => Vote::new_committed(term, node),
            false => Vote::new(term, node),
        }
    }
}

impl From<&Membership> for MembersRecord {
    fn from(members: &Membership) -> Self {
        Self {
            voters: members.get_joint_config().clone(),
            nodes: members.nodes().map(|(id, node)| (*id, node.addr.clone())).collect(),
        }
    }
}

impl MembersRecord {
    fn into_members(self) -> Result<Membership, DecodeError> {
        if self.voters.is_empty() && self.nodes.is_empty() {
            return Ok(Membership::default());
        }
        let nodes: BTreeMap<u64, BasicNode> =
            self.nodes.into_iter().map(|(id, addr)| (id, BasicNode { addr })).collect();
        Membership::new(self.voters, nodes).map_err(|error| DecodeError::Members(error.to_string()))
    }
}

impl From<LogId> for Position {
    fn from(id: LogId) -> Self {
        Self { term: id.committed_leader_id().term, index: id.index() }
    }
}

impl From<Position> for LogId {
    fn from(position: Position) -> Self {
        log_id(position.term, position.index)
    }
}

pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_extend(value, vec![VERSION]).expect("a growing buffer takes any of these records")
}

pub(crate) fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, DecodeError> {
    match bytes.split_first() {
        Some((&VERSION, content)) => Ok(postcard::from_bytes(content)?),
        Some((&version, _)) => Err(DecodeError::Version(version)),
        None => Err(DecodeError::Empty),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Membership {
        let node = |addr: &str| BasicNode { addr: addr.to_owned() };
        Membership::new(
            vec![BTreeSet::from([1, 2]), BTreeSet::from([2, 3])],
            BTreeMap::from([(1, node("a:1")), (2, node("b:1")), (3, node("")), (4, node("d:1"))]),
        )
        .unwrap()
    }

    #[test]
    fn stored_vote_round_trips() {
        for vote in [Vote::new(7, 3), Vote::new_committed(u64::MAX, 0)] {
            assert_eq!(decode_vote(&encode_vote(&vote)).unwrap(), vote);
        }
    }

    #[test]
    fn joint_membership_round_trips_with_learners_and_addresses() {
        assert_eq!(decode_members(&encode_members(&members())).unwrap(), members());
    }

    #[test]
    fn snapshot_head_round_trips() {
        let meta = SnapshotMeta {
            last_log_id: Some(log_id(3, 99)),
            last_membership: StoredMembership::new(Some(log_id(1, 0)), members()),
        };
        assert_eq!(decode_snapshot_meta(&encode_snapshot_meta(&meta)).unwrap(), meta);
        let nothing = SnapshotMeta::default();
        assert_eq!(decode_snapshot_meta(&encode_snapshot_meta(&nothing)).unwrap(), nothing);
    }

    #[test]
    fn later_version_is_rejected_by_number() {
        assert_eq!(decode_vote(&[2, 0, 0, 0]), Err(DecodeError::Version(2)));
        assert_eq!(decode_vote(&[]), Err(DecodeError::Empty));
        assert!(matches!(decode_members(&[1, 255, 255]), Err(DecodeError::Content(_))));
    }
}
