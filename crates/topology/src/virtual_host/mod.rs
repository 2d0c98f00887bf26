//! Virtual hosts in memory: the entities of each, and the [`registry`] of all. [`crate::projection`] updates them from
//! the documents, and [`crate::changes`] changes the documents. Depends on [`crate::entities`].

mod expiry;
mod foreign;
mod metadata;
mod owners;
mod policies;
mod registry;

use std::sync::Arc;

use base::Level;
use broker::{Broker, ExecuteError, Unavailable};
use documents::{DocumentRef, StoreError};
use parking_lot::RwLock;
use values::Table;

use crate::entities::{Binding, Entities, SharedEntities};
use crate::exchange::{Exchange, NewExchange, PREDECLARED};
use crate::names::generated_queue_name;
use crate::queue::Queue;
use crate::store::VHOSTS;
use crate::stripes::{Access, Key, StripeGuard, Stripes};
pub(crate) use expiry::Expiry;
pub(crate) use metadata::METADATA_NAME;
pub use metadata::{Metadata, MetadataError};
pub use registry::TopologyOptions;
pub(crate) use registry::{Registry, Shared};

/// A cheap handle; clones share the vhost.
#[derive(Clone, Debug)]
pub struct VirtualHost(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    /// Version of its document; 0: the default vhost, which has none.
    version: u64,
    broker: Broker,
    entities: SharedEntities,
    /// With the version of the document; 0: there is none.
    metadata: RwLock<(Arc<Metadata>, u64)>,
    /// Keeps concurrent changes of one entity on this node apart.
    stripes: Stripes,
    shared: Shared,
}

impl VirtualHost {
    pub(crate) fn new(name: &str, version: u64, broker: &Broker, shared: &Shared) -> Self {
        let name: Arc<str> = Arc::from(name);
        let mut entities = Entities::new(Arc::clone(&name));
        let arguments = &Table::new();
        for (exchange, kind, internal) in PREDECLARED {
            let (durable, auto_delete) = (true, false);
            let new =
                NewExchange { name: exchange, kind, durable, auto_delete, internal, arguments };
            entities.add_exchange(Exchange::new(&name, &new, 0));
        }
        Self(Arc::new(Inner {
            name,
            version,
            broker: broker.clone(),
            entities: SharedEntities::new(entities),
            metadata: RwLock::default(),
            stripes: Stripes::default(),
            shared: shared.clone(),
        }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Generates a name for a queue that was declared without one.
    pub fn generated_queue_name(&self) -> String {
        generated_queue_name(self.0.broker.entropy())
    }

    /// Returns whether it is the same vhost, and not only one of the same name.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn version(&self) -> u64 {
        self.0.version
    }

    /// The vhost's document.
    pub(crate) fn stored(&self) -> DocumentRef {
        let name = documents::join(&[&self.0.name]);
        DocumentRef { space: VHOSTS, name, version: self.0.version }
    }

    /// The feature level of the cluster.
    pub fn level(&self) -> Level {
        self.broker().level().now()
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.0.broker
    }

    pub(crate) fn topology(&self) -> Result<Arc<Registry>, StoreError> {
        let stopping = || ExecuteError::from(Unavailable::Stopping).into();
        self.0.shared.topology.upgrade().ok_or_else(stopping)
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.0.name
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0.shared
    }

    pub(crate) fn entities(&self) -> &SharedEntities {
        &self.0.entities
    }

    /// Description, tags and settings of the vhost.
    pub fn metadata(&self) -> Arc<Metadata> {
        self.metadata_versioned().0
    }

    pub(crate) fn metadata_versioned(&self) -> (Arc<Metadata>, u64) {
        self.0.metadata.read().clone()
    }

    pub(crate) fn take_metadata(&self, metadata: Metadata, version: u64) {
        *self.0.metadata.write() = (Arc::new(metadata), version);
    }

    pub(crate) async fn lock(&self, keys: &[(Key<'_>, Access)]) -> Vec<StripeGuard<'_>> {
        self.0.stripes.lock(keys).await
    }

    /// Sorted by name, like the next two lists.
    pub fn exchanges(&self) -> Vec<Exchange> {
        let mut exchanges: Vec<_> = self.0.entities.read().exchanges().cloned().collect();
        exchanges.sort_by(|a, b| a.name.cmp(&b.name));
        exchanges
    }

    /// Declared queues, and topics of other protocols that were used as queues.
    pub fn queues(&self) -> Vec<Arc<Queue>> {
        let mut queues: Vec<_> = self.0.entities.read().queues().cloned().collect();
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        queues
    }

    /// Number of these queues.
    pub fn queue_count(&self) -> usize {
        self.0.entities.read().queue_count()
    }

    /// Without the bindings of the default exchange, which every queue has.
    pub fn bindings(&self) -> Vec<Binding> {
        let mut bindings = self.0.entities.read().bindings();
        bindings.sort_by(|a, b| {
            (&a.source, &a.destination, &a.key).cmp(&(&b.source, &b.destination, &b.key))
        });
        bindings
    }

    pub fn has_exchange(&self, name: &str) -> bool {
        self.0.entities.read().exchange(name).is_some()
    }
}
