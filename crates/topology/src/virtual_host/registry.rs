//! All virtual hosts of a node, and the state that they share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::HashMap;
use broker::{Broker, DocumentWatch};
use parking_lot::{Mutex, RwLock};

use super::VirtualHost;
use super::expiry::Expiry;
use super::owners::Owners;
use crate::limits::RUN_GONE_AFTER;
use crate::queue::SharedValues;
use crate::store::{DeferredWork, DocumentId, Run};

/// The topology in this node's memory.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) broker: Broker,
    /// This run of this node.
    pub(crate) run: Run,
    pub(crate) vhosts: RwLock<HashMap<Arc<str>, VirtualHost>>,
    /// Changed documents. Locked while they are applied to memory.
    pub(crate) watch: Mutex<DocumentWatch>,
    /// Notifies sessions that a vhost was deleted.
    pub(crate) changed: tokio::sync::watch::Sender<()>,
    pub(crate) shared: Shared,
    pub(crate) options: TopologyOptions,
}

#[derive(Clone, Copy, Debug)]
pub struct TopologyOptions {
    /// A node disconnected for this long is lost, and its transient entities are deleted.
    pub gone_after: Duration,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self { gone_after: RUN_GONE_AFTER }
    }
}

/// State shared by all vhosts.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) owners: Arc<Owners>,
    pub(crate) expiry: Arc<Expiry>,
    pub(crate) values: Arc<SharedValues>,
    pub(crate) kept: Arc<DeferredWork>,
    pub(super) topology: Weak<Registry>,
}

impl Shared {
    pub(crate) fn new(topology: Weak<Registry>) -> Self {
        Self {
            owners: Arc::default(),
            expiry: Arc::default(),
            values: Arc::default(),
            kept: Arc::default(),
            topology,
        }
    }
}

impl Registry {
    pub(crate) fn vhost(&self, name: &str) -> Option<VirtualHost> {
        self.vhosts.read().get(name).cloned()
    }

    pub(crate) fn all_vhosts(&self) -> Vec<VirtualHost> {
        self.vhosts.read().values().cloned().collect()
    }

    /// Returns whether this very vhost still exists, and not only one of its name.
    pub(crate) fn has(&self, vhost: &VirtualHost) -> bool {
        self.vhost(vhost.name()).is_some_and(|known| known.is(vhost))
    }

    /// Returns the vhost and name of the entity of a document.
    pub(crate) fn entity_of(&self, (_, name): &DocumentId) -> Option<(VirtualHost, String)> {
        let mut parts = documents::split(name).into_iter();
        Some((self.vhost(&parts.next()?)?, parts.next()?))
    }

    /// Makes sessions recheck their vhosts.
    pub(crate) fn note_change(&self) {
        self.changed.send_replace(());
    }
}
