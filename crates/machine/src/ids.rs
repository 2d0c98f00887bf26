//! Ids of records in topics with `dedup.window.ms`, as stored in entries.
//!
//! The leader computes and checks the ids, and puts those of the appended records into the entry.
//! [`crate::rows::record_ids`] stores the ids of accepted appends.

use base::{Offset, TopicId};
use serde::{Deserialize, Serialize};

/// The first 128 bits of the SHA-256 of a record's `postroad.id`.
pub type IdHash = u128;

/// The command of an entry that has ids. Persisted: its fields stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RecordIdsChange {
    pub topics: Vec<TopicIdsChange>,
    /// Once set, the shard has all ids within the windows.
    pub complete: bool,
}

/// Ids of one topic to store, and limits that expire earlier ones. Persisted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TopicIdsChange {
    pub topic: TopicId,
    /// Start of the window: ids that arrived before are forgotten.
    pub expire_before_ms: i64,
    /// Number of ids that the topic keeps. The oldest are forgotten first.
    pub at_most: u64,
    /// Ids of appends of the same entry. They arrive at the entry's time.
    pub appended: Vec<AppendedIds>,
    /// Ids with an earlier arrival time: of a partition that moves, or recovered from the log.
    pub inherited: Vec<KnownId>,
}

/// Ids of one append. Persisted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AppendedIds {
    /// Number of the append in the entry.
    pub append: u32,
    pub ids: IdsOfBatch,
}

/// Ids of a batch, by the places of their records in it. Persisted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct IdsOfBatch(Vec<(u32, HashBytes)>);

/// Big-endian. An array, because a variable-length number of random bits takes more bytes.
type HashBytes = [u8; 16];

/// An id and its record. Persisted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KnownId {
    #[serde(with = "hash_bytes")]
    pub hash: IdHash,
    pub at_ms: i64,
    pub partition: u32,
    pub offset: Offset,
}

impl IdsOfBatch {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Places and hashes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, IdHash)> + '_ {
        self.0.iter().map(|(place, hash)| (*place, u128::from_be_bytes(*hash)))
    }
}

impl FromIterator<(u32, IdHash)> for IdsOfBatch {
    fn from_iter<T: IntoIterator<Item = (u32, IdHash)>>(ids: T) -> Self {
        Self(ids.into_iter().map(|(place, hash)| (place, hash.to_be_bytes())).collect())
    }
}

impl RecordIdsChange {
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty() && !self.complete
    }

    /// Approximate size in an entry.
    pub fn weight(&self) -> usize {
        self.topics.iter().map(TopicIdsChange::weight).sum()
    }

    /// Number of ids that it stores.
    pub fn len(&self) -> usize {
        self.topics.iter().map(TopicIdsChange::len).sum()
    }
}

impl TopicIdsChange {
    /// A change that stores no ids.
    pub fn new(topic: TopicId, expire_before_ms: i64, at_most: u64) -> Self {
        Self { topic, expire_before_ms, at_most, appended: Vec::new(), inherited: Vec::new() }
    }

    pub fn len(&self) -> usize {
        self.appended.iter().map(|it| it.ids.len()).sum::<usize>() + self.inherited.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn weight(&self) -> usize {
        24 + self.appended.iter().map(|it| 6 + it.ids.len() * 18).sum::<usize>()
            + self.inherited.len() * 30
    }
}

mod hash_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{HashBytes, IdHash};

    pub(super) fn serialize<S: Serializer>(hash: &IdHash, to: S) -> Result<S::Ok, S::Error> {
        hash.to_be_bytes().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<IdHash, D::Error> {
        HashBytes::deserialize(from).map(u128::from_be_bytes)
    }
}
