//! Shards pinned to nodes by operators. The plan follows a pin while its nodes stay, and places all other shards
//! itself.
//!
//! Each pinned shard has a document, named by its number, with the nodes.

use std::collections::{BTreeMap, BTreeSet};

use base::ShardId;
use broker::Broker;
use documents::{LoadedDocument, MalformedDocument};
use serde::{Deserialize, Serialize};

/// Name space of the documents.
pub(crate) const SPACE: &str = "placements";

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Placement {
    pub(crate) nodes: BTreeSet<u64>,
}

/// Pinned shards with their nodes, and the versions of the documents.
pub(crate) type Placements = BTreeMap<ShardId, (BTreeSet<u64>, u64)>;

pub(super) fn read(broker: &Broker) -> Result<Placements, MalformedDocument> {
    let found = documents::store::read_all::<Placement>(broker, SPACE)?;
    let placement = |LoadedDocument { stored, body }: LoadedDocument<Placement>| {
        let shard = ShardId(stored.name.parse().ok()?);
        Some((shard, (body.nodes, stored.version)))
    };
    Ok(found.into_iter().filter_map(placement).collect())
}
