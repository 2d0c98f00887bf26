//! Scrubs on request, and their findings.

use std::time::Duration;

use shard::error::Unavailable;
use shard_peers::stored_status::StoredStatus;

use crate::broker::Broker;

impl Broker {
    /// Starts a scrub of all stored data; `false` if one is running already.
    pub fn scrub(&self) -> bool {
        self.scrubbing().begin()
    }

    /// Returns the findings about this node's stored data.
    pub fn stored(&self) -> StoredStatus {
        self.scrubbing().stored(self.local_shards().iter().cloned())
    }

    /// Returns the findings about another node's stored data.
    pub async fn stored_at(
        &self,
        node: u32,
        within: Duration,
    ) -> Result<StoredStatus, Unavailable> {
        match self.peers().remote() {
            Some(remote) => remote.stored(node, within).await,
            None => Err(Unavailable::NotLeader),
        }
    }
}
