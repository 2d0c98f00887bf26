//! Reasons why a handshake is refused, with instructions for the operator of the refused node.

use base::{Level, Levels};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::node_id::NodeId;

/// Versions of the protocol that a node speaks, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Versions {
    pub min: u16,
    pub max: u16,
}

impl Versions {
    /// The versions that this code speaks.
    pub const OURS: Self = Self { min: 1, max: 1 };

    /// The newest common version.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

/// Reason why a node refuses another one. Its text goes to the refused side, whose operator reads it there: it
/// contains the instructions.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error(
        "a node of cluster {cluster} refuses one of cluster {presented}: start that with addresses of its own \
         cluster, or, to join the other, with an empty data directory and `--join` in place of `--seeds`"
    )]
    AnotherCluster { cluster: Uuid, presented: Uuid },
    #[error(
        "{node} is not in the cluster: it was removed or never joined; start it with an empty data directory \
         and `--join`"
    )]
    UnknownNode { node: NodeId },
    #[error(
        "{node} is known with data directory {known}, not with {presented}: its disk was wiped, or belongs \
         to another node; a new node has to take its place: start one with an empty data directory and \
         `--join`, then `postroad node replace {} --with NEW`", node.0
    )]
    AnotherDirectory { node: NodeId, known: Uuid, presented: Uuid },
    #[error(
        "{node} was seen with boot {seen} and now presents boot {presented}: its disk was set back or copied, \
         or two processes use one node's directory; stop the older one, or let a new node take its place: \
         `postroad node replace {} --with NEW`", node.0
    )]
    OldBoot { node: NodeId, seen: u64, presented: u64 },
    #[error(
        "a node that speaks protocol versions {} to {} refuses one that speaks {} to {}: upgrade the older one",
        spoken.min, spoken.max, presented.min, presented.max
    )]
    NoCommonVersion { spoken: Versions, presented: Versions },
    #[error(
        "the address of {wanted} is the address of {found}: if it replaces {wanted}, type `postroad node replace`, \
         otherwise correct the address"
    )]
    AnotherNode { wanted: NodeId, found: NodeId },
    #[error("a node that knows no lane {code} refuses one that does: upgrade the older one")]
    UnknownLane { code: u8 },
    /// A reason of a later version, represented by its text.
    #[error("{text}")]
    Other { text: String },
    #[error(
        "the lists of seeds differ: {node} was started with `--seeds {listed}`; start all nodes with the same \
         list, in the same order"
    )]
    SeedsDiffer { node: NodeId, listed: String },
    #[error(
        "cluster {cluster} is founded already, and {node} with it: if its disk was wiped, a new node has to take \
         its place: start it with `--join` in place of `--seeds`, then `postroad node replace {} --with NEW`", node.0
    )]
    Founded { cluster: Uuid, node: NodeId },
    #[error("{node} asks the cluster for a number for the new node: ask again in a moment")]
    JoinPending { node: NodeId },
    #[error("the cluster does not take this node: {reason}")]
    NotJoined { reason: String },
    #[error(
        "{node} was removed from the cluster; start it with an empty data directory and `--join`"
    )]
    Removed { node: NodeId },
    /// The binary of the refused node cannot replay and write the cluster's level.
    #[error(
        "the cluster is at feature level {level}, and the program of {node} supports {can}: start {node} with a program \
         that supports level {level}, as the other nodes run"
    )]
    LevelMissing { node: NodeId, level: Level, can: Levels },
    /// An image of the node's disk was restored: entries that it acknowledged may be missing.
    #[error(
        "the data directory of {node} was set back: it presents epoch {presented}, and epoch {seen} was seen; records that it \
         acknowledged may be missing there, so it must not vote: start a node with an empty data directory and `--join`, then \
         `postroad node replace {} --with NEW`", node.0
    )]
    SetBack { node: NodeId, seen: u64, presented: u64 },
    /// The leader of a shard found entries missing that the node had acknowledged in the same term.
    #[error(
        "{node} lacks entries that it acknowledged: its data directory was set back or lost writes, so it must not vote: \
         start a node with an empty data directory and `--join`, then `postroad node replace {} --with NEW`", node.0
    )]
    LogLost { node: NodeId },
}

base::levels!(Refusal {
    Level::FIRST => AnotherCluster | UnknownNode | AnotherDirectory | OldBoot | NoCommonVersion
        | AnotherNode | UnknownLane | Other | SeedsDiffer | Founded | JoinPending | NotJoined | Removed
        | LevelMissing;
    Level::EPOCHS => SetBack | LogLost;
});

/// Length limit of a text from a peer.
const TEXT_BYTES_MAX: usize = 1 << 10;

impl Refusal {
    /// Two bytes for the text's length, the text, and the value itself, which an older version may not know.
    pub(crate) fn encode(&self) -> Bytes {
        let text = self.to_string();
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let mut bytes = Vec::with_capacity(2 + text.len() + 64);
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        // Without the value the text still represents it.
        bytes.extend(postcard::to_stdvec(self).unwrap_or_default());
        bytes.into()
    }

    /// `None`: not a refusal.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = u16::from_le_bytes(*length) as usize;
        let (text, value) = rest.split_at_checked(length)?;
        if let Ok(known) = postcard::from_bytes(value) {
            return Some(known);
        }
        let text = String::from_utf8_lossy(text);
        let text = text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned();
        Some(Self::Other { text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_common_version_is_chosen_or_none() {
        let versions = |min, max| Versions { min, max };
        assert_eq!(versions(1, 3).common(versions(2, 5)), Some(3));
        assert_eq!(versions(2, 2).common(versions(1, 9)), Some(2));
        assert_eq!(versions(1, 2).common(versions(3, 4)), None);
    }

    #[test]
    fn refusal_round_trips_and_an_unknown_one_keeps_its_text() {
        let node = NodeId(7);
        let refusal = Refusal::OldBoot { node, seen: 5, presented: 4 };
        assert_eq!(Refusal::decode(&refusal.encode()), Some(refusal));

        let mut unknown = 2_u16.to_le_bytes().to_vec();
        unknown.extend_from_slice(b"no\xff\xff\xff");
        assert_eq!(Refusal::decode(&unknown), Some(Refusal::Other { text: "no".into() }));
        assert_eq!(Refusal::decode(&[9, 0, 1]), None);
        assert_eq!(Refusal::decode(&[]), None);
    }

    #[test]
    fn refusal_text_contains_instructions() {
        let refusal = Refusal::AnotherDirectory {
            node: NodeId(3),
            known: Uuid::from_u128(1),
            presented: Uuid::from_u128(2),
        };
        assert!(refusal.to_string().contains("postroad node replace 3 --with NEW"), "{refusal}");
    }
}
