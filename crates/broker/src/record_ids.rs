//! The ids of a batch's records (`postroad.id`), as they are compared for `dedup.window.ms`: hashes of
//! 128 bits under keys of this process.

use std::hash::BuildHasher;
#[expect(clippy::disallowed_types, reason = "a client must not find two ids with one hash")]
use std::hash::RandomState;
use std::sync::LazyLock;

use record::{Batch, Reserved};

/// Of this process, and never seen outside of it.
#[expect(clippy::disallowed_types, reason = "a client must not find two ids with one hash")]
static KEYS: LazyLock<(RandomState, RandomState)> = LazyLock::new(Default::default);

pub(crate) fn hash(id: &[u8]) -> u128 {
    let (high, low) = &*KEYS;
    u128::from(high.hash_one(id)) << 64 | u128::from(low.hash_one(id))
}

/// The ids of a batch's records, each with its record's place in the batch.
#[derive(Clone, Debug, Default)]
pub struct RecordIds(pub(crate) Box<[(u64, u128)]>);

impl RecordIds {
    /// Unpacks the batch if it is compressed.
    pub fn read(batch: &[u8]) -> Self {
        // A batch that cannot be read did not come through a gateway; it is no duplicate.
        let Ok(batch) = Batch::decode(batch) else { return Self(Box::default()) };
        let records = batch.records().map_while(Result::ok).enumerate();
        let ids = records.filter_map(|(delta, record)| {
            Some((delta as u64, hash(Reserved::read(&record.headers).id?)))
        });
        Self(ids.collect())
    }

    /// Those of the records that are not copies, at the places that they had.
    pub(crate) fn without(self, copies: &[u64]) -> Self {
        let ids = self.0.into_iter();
        Self(ids.filter(|(delta, _)| copies.binary_search(delta).is_err()).collect())
    }
}
