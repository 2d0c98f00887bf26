//! The ids of a batch's records (`postroad.id`), hashed for the comparison of `dedup.window.ms`.
//!
//! Ids are part of the replicated state, so every node hashes alike: the first 128 bits of SHA-256. A client cannot
//! find two ids with one hash.

use aws_lc_rs::digest::{SHA256, digest};
use machine::ids::IdHash;
use record::{Batch, ReservedHeaders};

pub(crate) fn hash(id: &[u8]) -> IdHash {
    let digest = digest(&SHA256, id);
    digest.as_ref().first_chunk().map_or(0, |first| IdHash::from_be_bytes(*first))
}

/// The ids of a batch's records, each with its record's position in the batch.
#[derive(Clone, Debug, Default)]
pub struct RecordIds(pub Box<[(u64, u128)]>);

impl RecordIds {
    /// Reads the ids, decompressing the batch if needed.
    pub fn read(batch: &[u8]) -> Self {
        // A batch that cannot be decoded did not come through a gateway; it is no duplicate.
        let Ok(batch) = Batch::decode(batch) else { return Self(Box::default()) };
        let records = batch.records().map_while(Result::ok).enumerate();
        let ids = records.filter_map(|(delta, record)| {
            Some((delta as u64, hash(ReservedHeaders::read(&record.headers).id?)))
        });
        Self(ids.collect())
    }

    /// Number of records with an id.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the ids of the records that are not copies, at their former positions.
    pub(crate) fn without(self, copies: &[u64]) -> Self {
        let ids = self.0.into_iter();
        Self(ids.filter(|(delta, _)| copies.binary_search(delta).is_err()).collect())
    }
}
