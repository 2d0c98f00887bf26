//! The entities of a broker as AMQP has them: vhosts, exchanges, queues, bindings, policies.
//!
//! Memory is what is read; documents in the machine are what is kept ([`documents`]). A change is
//! checked against memory, made durable, and then made in memory, under locks by name
//! ([`stripes`]), so that any number of changes share a sync. Routing takes one read lock for all
//! messages that a session has at hand.
//!
//! * [`vhost`]: declare, delete, bind; what a client may ask for, in RabbitMQ's order and words
//! * [`queue`], [`exchange`], [`policy`]: the entities
//! * [`arguments`], [`settings`]: what a queue's arguments may be, and what they come to
//! * [`topology`], [`routes`]: memory, and the way of a message through it
//! * [`recovery`], [`lifecycle`]: the start, and queues that go by themselves

mod arguments;
mod documents;
pub mod exchange;
mod lifecycle;
mod message;
pub mod policy;
pub mod queue;
mod recovery;
mod routes;
pub mod settings;
mod shared;
mod stripes;
mod topology;
mod values;
mod vhost;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};

use base::HashMap;
use broker::Broker;
use parking_lot::RwLock;
use tasks::Task;

pub use exchange::{Exchange, ExchangeDeclaration, ExchangeKind};
pub use lifecycle::ConnectionId;
pub use message::MessageHeaders;
pub use policy::{ApplyTo, Definition, Policy, PolicyDefinition, PolicyError, PolicyScope};
pub use queue::{Queue, QueueDeclaration, QueueKind};
pub use recovery::OpenError;
pub use routes::{Routed, Routes};
pub use settings::{Overflow, QueueSettings};
pub use topology::Binding;
pub use vhost::{BindingRequest, Vhost};

pub(crate) use arguments::max_age_ms;
pub(crate) use vhost::generated_name;

use crate::errors::Exception;
use crate::names::DEFAULT_VHOST;
use documents::{VHOSTS, VhostDocument};

/// What an exchange's binding leads to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Destination {
    Queue(Arc<str>),
    Exchange(Arc<str>),
}

/// All vhosts. Clones share it.
#[derive(Clone, Debug)]
pub struct Catalog(Arc<CatalogInner>);

#[derive(Debug)]
pub(crate) struct CatalogInner {
    broker: Broker,
    vhosts: RwLock<HashMap<Arc<str>, Vhost>>,
    /// Held by whoever makes or deletes a vhost.
    changes: tokio::sync::Mutex<()>,
    /// Tells sessions that a vhost went, or that a user changed.
    changed: tokio::sync::watch::Sender<()>,
    shared: vhost::Shared,
}

/// A catalog that does not keep itself alive.
#[derive(Clone, Debug)]
pub(crate) struct WeakCatalog(Weak<CatalogInner>);

impl WeakCatalog {
    pub(crate) fn upgrade(&self) -> Option<Catalog> {
        self.0.upgrade().map(Catalog)
    }
}

impl Catalog {
    /// Reads what is kept, takes away what does not survive a restart, and watches over queues
    /// that expire.
    pub async fn open(broker: Broker) -> Result<Self, OpenError> {
        let shared = vhost::Shared::default();
        let vhosts = recovery::load(&broker, &shared).await?;
        let inner = Arc::new(CatalogInner {
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

    pub(crate) fn downgrade(&self) -> WeakCatalog {
        WeakCatalog(Arc::downgrade(&self.0))
    }

    pub fn broker(&self) -> &Broker {
        &self.0.broker
    }

    pub fn vhost(&self, name: &str) -> Option<Vhost> {
        self.0.vhosts.read().get(name).cloned()
    }

    /// Sorted by name.
    pub fn vhosts(&self) -> Vec<Vhost> {
        let mut vhosts: Vec<_> = self.0.vhosts.read().values().cloned().collect();
        vhosts.sort_by(|a, b| a.name().cmp(b.name()));
        vhosts
    }

    /// Makes a vhost, or answers the one that is there.
    pub async fn create_vhost(&self, name: &str) -> Result<Vhost, Exception> {
        let _changing = self.0.changes.lock().await;
        if let Some(vhost) = self.vhost(name) {
            return Ok(vhost);
        }
        documents::put(&self.0.broker, VHOSTS, documents::name(&[name]), &VhostDocument {}).await?;
        let vhost = Vhost::new(name, &self.0.broker, &self.0.shared);
        self.0.vhosts.write().insert(Arc::from(name), vhost.clone());
        Ok(vhost)
    }

    /// Deletes a vhost with all that is in it; whether it was there. The default one stays.
    pub async fn delete_vhost(&self, name: &str) -> Result<bool, Exception> {
        let _changing = self.0.changes.lock().await;
        if name == DEFAULT_VHOST {
            return Err(Exception::precondition_failed("the default vhost cannot be deleted"));
        }
        let Some(vhost) = self.vhost(name) else { return Ok(false) };
        // Its document goes first: a crash in between leaves nothing that a client could find, and
        // the next start takes the rest away.
        let name_kept = documents::name(&[name]);
        let version = self
            .0
            .broker
            .read(|state| state.document(VHOSTS, &name_kept).map(|document| document.version));
        if let Some(version) = version {
            let stored = documents::Stored { space: VHOSTS, name: name_kept, version };
            documents::delete(&self.0.broker, &stored).await?;
        }
        self.0.vhosts.write().remove(name);
        // Its connections first: what they made meanwhile would be nobody's.
        self.note_change();
        vhost.clear().await?;
        Ok(true)
    }

    /// Sessions look again at what is there and what they may do.
    pub(crate) fn note_change(&self) {
        self.0.changed.send_replace(());
    }

    pub(crate) fn changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// A connection that may have exclusive queues.
    pub fn open_connection(&self, connection: ConnectionId) {
        self.0.shared.connections.open(connection);
    }

    /// Its exclusive queues are gone when this returns.
    pub async fn close_connection(&self, connection: ConnectionId) -> Result<(), Exception> {
        let queues = self.0.shared.connections.close(connection);
        let deleted = queues.iter().map(|(vhost, queue)| async move {
            match self.vhost(vhost) {
                Some(vhost) => vhost.delete_owned(connection, queue).await,
                None => Ok(()),
            }
        });
        futures_util::future::try_join_all(deleted).await.map(drop)
    }
}
