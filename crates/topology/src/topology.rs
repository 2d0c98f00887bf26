//! All virtual hosts.

use std::sync::{Arc, Weak};

use base::HashMap;
use broker::{Broker, ExecuteError};
use documents::{Change, StoreError, WritePrecondition};
use parking_lot::{Mutex, RwLock};
use tasks::Task;

use crate::changes::{AttemptOutcome, Attempts};
use crate::cleanup::{OpenError, expiry, recovery, sweep};
use crate::error::ChangeError;
use crate::names::DEFAULT_VHOST;
use crate::projection;
use crate::queue::OwnerId;
use crate::store::{IN_VHOSTS, Run, SPACES, VHOSTS, VirtualHostDocument};
use crate::virtual_host::{Registry, Shared, TopologyOptions, VirtualHost};

/// All vhosts. A cheap handle; clones share them.
#[derive(Clone, Debug)]
pub struct Topology(pub(crate) Arc<Registry>);

/// A topology that does not keep itself alive.
#[derive(Clone, Debug)]
pub struct WeakTopology(Weak<Registry>);

impl WeakTopology {
    pub fn upgrade(&self) -> Option<Topology> {
        self.0.upgrade().map(Topology)
    }
}

impl Topology {
    /// Loads the documents, deletes transient leftovers, follows the changes of all nodes from then on, and deletes
    /// queues that expire.
    pub async fn open(broker: Broker) -> Result<Self, OpenError> {
        Self::open_with(broker, TopologyOptions::default()).await
    }

    #[tasks::boxed]
    pub async fn open_with(broker: Broker, options: TopologyOptions) -> Result<Self, OpenError> {
        // A node that is alone counts no runs: any unused number will do.
        let boot = match broker.is_alone() {
            true => broker.entropy().uuid().as_u64_pair().0.max(1),
            false => broker.boot(),
        };
        let run = Run { node: broker.node(), boot };
        let watch = Mutex::new(broker.watch_documents(SPACES));
        let more = broker.watch_documents(SPACES);
        let inner = Arc::new_cyclic(|topology| {
            let shared = Shared::new(topology.clone());
            let mut vhosts = HashMap::default();
            let default = VirtualHost::new(DEFAULT_VHOST, 0, &broker, &shared);
            vhosts.insert(Arc::from(DEFAULT_VHOST), default);
            let (vhosts, changed) = (RwLock::new(vhosts), tokio::sync::watch::Sender::new(()));
            Registry { broker, run, vhosts, watch, changed, shared, options }
        });
        let topology = Self(inner);
        recovery::recover(&topology.0).await?;
        let inner = &topology.0;
        let expiring = expiry::run(Arc::downgrade(inner), Arc::clone(&inner.shared.expiry));
        inner.broker.vital(Task::AmqpQueueExpiry, expiring);
        let following = projection::run(Arc::downgrade(inner), more);
        inner.broker.vital(Task::AmqpProjection, following);
        inner.broker.follow_catalog(Arc::downgrade(inner), |registry| registry.catch_up());
        inner.broker.vital(Task::AmqpSweep, sweep::run(Arc::downgrade(inner)));
        Ok(topology)
    }

    pub fn downgrade(&self) -> WeakTopology {
        WeakTopology(Arc::downgrade(&self.0))
    }

    pub fn broker(&self) -> &Broker {
        &self.0.broker
    }

    pub fn vhost(&self, name: &str) -> Option<VirtualHost> {
        self.0.vhost(name)
    }

    /// Like [`Self::vhost`], after applying all changes of other nodes: `None` means that it does not exist.
    pub async fn look_for_vhost(&self, name: &str) -> Result<Option<VirtualHost>, StoreError> {
        if let Some(vhost) = self.vhost(name).filter(|_| name == DEFAULT_VHOST) {
            return Ok(Some(vhost));
        }
        self.0.broker.catalog_is_current().await.map_err(ExecuteError::from)?;
        self.0.catch_up();
        Ok(self.vhost(name))
    }

    /// Returns whether this node's documents contain the vhost, even if memory has not caught up.
    pub fn has_vhost(&self, name: &str) -> bool {
        let kept = documents::join(&[name]);
        name == DEFAULT_VHOST || documents::store::version(&self.0.broker, VHOSTS, &kept).is_some()
    }

    /// Sorted by name.
    pub fn vhosts(&self) -> Vec<VirtualHost> {
        let mut vhosts = self.0.all_vhosts();
        vhosts.sort_by(|a, b| a.name().cmp(b.name()));
        vhosts
    }

    /// Creates a vhost, or returns the existing one.
    #[tasks::boxed]
    pub async fn create_vhost(&self, name: &str) -> Result<VirtualHost, StoreError> {
        let mut attempts = Attempts::default();
        loop {
            self.0.catch_up();
            if let Some(vhost) = self.vhost(name) {
                return Ok(vhost);
            }
            // Clears leftovers of a deleted vhost of this name.
            self.clear(name).await?;
            let (mut change, kept) = (Change::new(), documents::join(&[name]));
            change.put(VHOSTS, kept, &VirtualHostDocument {}, WritePrecondition::Version(0))?;
            for space in IN_VHOSTS {
                change.check_under(space, documents::join(&[name, ""]), 0);
            }
            self.0.make(change, &mut attempts).await?;
        }
    }

    /// Deletes a vhost with all its contents. Returns whether it existed. The default vhost cannot be deleted.
    #[tasks::boxed]
    pub async fn delete_vhost(&self, name: &str) -> Result<bool, ChangeError> {
        if name == DEFAULT_VHOST {
            return Err(ChangeError::DefaultVirtualHost);
        }
        let mut attempts = Attempts::default();
        loop {
            let Some(vhost) = self.look_for_vhost(name).await? else { return Ok(false) };
            let mut change = Change::new();
            vhost.check_unprotected(&mut change)?;
            // The vhost is deleted first, and its connections close: nothing is created in it from then on. Its
            // contents follow. Leftovers of a crash are deleted before another vhost gets the name.
            change.delete(&vhost.stored());
            if let AttemptOutcome::Done = self.0.make(change, &mut attempts).await? {
                break;
            }
        }
        self.clear(name).await?;
        Ok(true)
    }

    /// Deletes leftovers of a deleted vhost.
    async fn clear(&self, name: &str) -> Result<(), StoreError> {
        recovery::clear_vhost(&self.0, name).await
    }

    /// Notifies of deleted vhosts.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Registers an owner of exclusive queues.
    pub fn open_owner(&self, owner: OwnerId) {
        self.0.shared.owners.open(owner);
    }

    /// Removes an owner and deletes its queues before this returns. Failed deletions are retried later.
    pub async fn close_owner(&self, owner: OwnerId) -> Result<(), StoreError> {
        let queues = self.0.shared.owners.close(owner);
        let deleted = queues.into_iter().map(|(vhost, queue)| async move {
            let deleted = self.0.delete_owned(&vhost, &queue, owner).await;
            if deleted.is_err() {
                self.0.shared.owners.leave(owner, (vhost, queue));
            }
            deleted
        });
        let deleted = futures_util::future::join_all(deleted).await;
        deleted.into_iter().collect()
    }
}
