//! Freshness of this node's copy of the catalog, and the other nodes that may change it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::Level;
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

    /// Calls `catch_up` before a change of another node is confirmed, as long as `follower` lives. It brings the
    /// follower up to date with this node's copy of the catalog.
    pub fn follow_catalog<T: Send + Sync + 'static>(
        &self,
        follower: Weak<T>,
        catch_up: impl Fn(Arc<T>) + Send + Sync + 'static,
    ) {
        self.propagation()
            .add_follower(Box::new(move || follower.upgrade().map(&catch_up).is_some()));
    }

    /// Whether this node may lack definitions that were confirmed at other nodes: gateways then wait for
    /// [`Self::definitions_are_current`] before they route a message or judge a right.
    pub fn may_lack_definitions(&self) -> bool {
        !self.is_alone() && self.propagation().may_be_behind()
    }

    /// Waits until this node has all definitions that were confirmed at other nodes before the call. Fails if the
    /// node has been behind for too long. Returns at once if no majority of the catalog's voters is connected, and the
    /// node has been behind for too long: then the definitions that it has are used.
    #[tasks::boxed]
    pub async fn definitions_are_current(&self) -> Result<(), Unavailable> {
        if self.is_alone() {
            return Ok(());
        }
        match self.propagation().hold(self.catalog_shard()).await {
            Err(_) if !self.catalog_shard().majority_is_connected() => Ok(()),
            held => held,
        }
    }

    /// Waits until every connected node follows the changes that this node's copy has, or knows that it is behind.
    pub(crate) async fn propagated(&self) {
        if let Some(remote) = self.peers().remote()
            && self.level().now() >= Level::PROPAGATION
        {
            self.propagation().reach_all(remote, &self.catalog_shard().shard).await;
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
