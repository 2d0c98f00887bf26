//! Freshness of this node's copy of the catalog, and the other nodes that may change it.

use std::time::Duration;

use base::limits::BARRIER_WITHIN;
use links::{Lane, NodeId};
use shard::document_watch::DocumentWatch;
use shard::error::Unavailable;
use tokio::time::{sleep, timeout};

use crate::broker::Broker;

/// Delay before a retry while the catalog has no known leader or its leader has stepped down.
const RETRY_DELAY: Duration = Duration::from_millis(20);

impl Broker {
    /// Number of this node's start. Always 0 on a node that is alone.
    pub fn boot(&self) -> u64 {
        self.cluster().map_or(0, |cluster| cluster.identity().at.boot)
    }

    /// Number of the start of another connected node; `None` where it is not connected.
    pub fn connected_boot(&self, node: u32) -> Option<u64> {
        let peer = self.cluster()?.links().peer(NodeId(node.into()))?;
        peer.status(Lane::Control).connected_boot()
    }

    /// Whether this node leads the catalog, as far as it knows.
    pub fn leads_catalog(&self) -> bool {
        self.catalog_shard().is_led_here()
    }
}

impl Broker {
    /// Watches the documents of these spaces. Initially all of them count as changed.
    pub fn watch_documents(&self, spaces: &'static [&'static str]) -> DocumentWatch {
        self.catalog_shard().shard.document_watchers.watch(spaces)
    }

    /// Waits until this node's copy of the catalog has every change acknowledged by any node before the call, so that
    /// an entry missing from it does not exist. Fails if the catalog's leader does not reply in time.
    #[tasks::boxed]
    pub async fn catalog_is_current(&self) -> Result<(), Unavailable> {
        if self.is_alone() {
            return Ok(());
        }
        let passing = self.barriers().pass(self.pass_catalog_barrier());
        tokio::select! {
            biased;
            passed = timeout(BARRIER_WITHIN, passing) => passed.unwrap_or(Err(Unavailable::Unanswered)),
            () = self.catalog_shard().majority_is_absent() => Err(Unavailable::Unanswered),
        }
    }

    /// Number of barriers of the catalog begun since this node started. A node that is alone needs none.
    pub fn catalog_barriers(&self) -> u64 {
        self.barriers().begun()
    }

    async fn pass_catalog_barrier(&self) -> Result<(), Unavailable> {
        let catalog = self.catalog_shard();
        loop {
            let index = match catalog.is_led_here() {
                true => catalog.read_index().await,
                false => self.peers().read_index(catalog.leader(), catalog.id()).await,
            };
            match index {
                Ok(index) => {
                    catalog.shard.applied_to(index).await;
                    return Ok(());
                }
                Err(Unavailable::NotLeader | Unavailable::Unanswered) => sleep(RETRY_DELAY).await,
                Err(ended) => return Err(ended),
            }
        }
    }
}
