//! All virtual hosts.

use std::sync::{Arc, Weak};

use base::HashMap;
use broker::Broker;
use documents::store::{delete, put, version};
use documents::{Expect, StoreError, Stored};
use parking_lot::RwLock;
use tasks::Task;

use crate::error::ChangeError;
use crate::lifecycle::{self, OwnerId};
use crate::names::DEFAULT_VHOST;
use crate::recovery::{self, OpenError};
use crate::store::{VHOSTS, VirtualHostDocument};
use crate::virtual_host::{Shared, VirtualHost};

/// All vhosts. Clones share it.
#[derive(Clone, Debug)]
pub struct Topology(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    broker: Broker,
    vhosts: RwLock<HashMap<Arc<str>, VirtualHost>>,
    /// Held by whoever makes or deletes a vhost. It puts only this node's changes in order: a
    /// deletion is of many documents and topics, which no one version could stand for.
    changes: tokio::sync::Mutex<()>,
    /// Tells sessions that a vhost went.
    changed: tokio::sync::watch::Sender<()>,
    shared: Shared,
}

/// A topology that does not keep itself alive.
#[derive(Clone, Debug)]
pub struct WeakTopology(Weak<Inner>);

impl WeakTopology {
    pub fn upgrade(&self) -> Option<Topology> {
        self.0.upgrade().map(Topology)
    }
}

impl Topology {
    /// Reads what is kept, takes away what does not survive a restart, and watches over queues
    /// that expire.
    pub async fn open(broker: Broker) -> Result<Self, OpenError> {
        let shared = Shared::default();
        let vhosts = recovery::load(&broker, &shared).await?;
        let inner = Arc::new(Inner {
            broker,
            vhosts: RwLock::new(vhosts),
            changes: tokio::sync::Mutex::new(()),
            changed: tokio::sync::watch::Sender::new(()),
            shared,
        });
        let expiry = Arc::clone(&inner.shared.expiry);
        let expiring = lifecycle::run(Arc::downgrade(&inner), expiry);
        inner.broker.vital(Task::AmqpQueueExpiry, expiring);
        Ok(Self(inner))
    }

    pub fn downgrade(&self) -> WeakTopology {
        WeakTopology(Arc::downgrade(&self.0))
    }

    pub fn broker(&self) -> &Broker {
        &self.0.broker
    }

    pub fn vhost(&self, name: &str) -> Option<VirtualHost> {
        self.0.vhosts.read().get(name).cloned()
    }

    /// Sorted by name.
    pub fn vhosts(&self) -> Vec<VirtualHost> {
        let mut vhosts: Vec<_> = self.0.vhosts.read().values().cloned().collect();
        vhosts.sort_by(|a, b| a.name().cmp(b.name()));
        vhosts
    }

    /// Makes a vhost, or answers the one that is there.
    pub async fn create_vhost(&self, name: &str) -> Result<VirtualHost, StoreError> {
        let _changing = self.0.changes.lock().await;
        if let Some(vhost) = self.vhost(name) {
            return Ok(vhost);
        }
        let kept = documents::join(&[name]);
        put(&self.0.broker, VHOSTS, kept, &VirtualHostDocument {}, Expect::Anything).await?;
        let vhost = VirtualHost::new(name, &self.0.broker, &self.0.shared);
        self.0.vhosts.write().insert(Arc::from(name), vhost.clone());
        Ok(vhost)
    }

    /// Deletes a vhost with all that is in it; whether it was there. The default one stays.
    pub async fn delete_vhost(&self, name: &str) -> Result<bool, ChangeError> {
        let _changing = self.0.changes.lock().await;
        if name == DEFAULT_VHOST {
            return Err(ChangeError::DefaultVirtualHost);
        }
        let Some(vhost) = self.vhost(name) else { return Ok(false) };
        // Its document goes first: a crash in between leaves nothing that a client could find, and
        // the next start takes the rest away.
        let kept = documents::join(&[name]);
        if let Some(version) = version(&self.0.broker, VHOSTS, &kept) {
            delete(&self.0.broker, &Stored { space: VHOSTS, name: kept, version }).await?;
        }
        self.0.vhosts.write().remove(name);
        // Its connections first: what they made meanwhile would be nobody's.
        self.note_change();
        vhost.clear().await?;
        Ok(true)
    }

    /// Sessions look again at what is there.
    fn note_change(&self) {
        self.0.changed.send_replace(());
    }

    /// Becomes ready when a vhost is gone.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// From now on there may be queues of this owner.
    pub fn open_owner(&self, owner: OwnerId) {
        self.0.shared.owners.open(owner);
    }

    /// The owner is gone. Its queues are, too, when this returns.
    pub async fn close_owner(&self, owner: OwnerId) -> Result<(), StoreError> {
        let queues = self.0.shared.owners.close(owner);
        let deleted = queues.iter().map(|(vhost, queue)| async move {
            match self.vhost(vhost) {
                Some(vhost) => vhost.delete_owned(owner, queue).await,
                None => Ok(()),
            }
        });
        futures_util::future::try_join_all(deleted).await.map(drop)
    }
}
