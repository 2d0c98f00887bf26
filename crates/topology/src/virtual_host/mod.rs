//! One virtual host: its entities, and changes of them.

mod binding;
mod policies;
mod queues;

use std::sync::{Arc, Weak};

use base::Level;
use broker::{Broker, ExecuteError, Unavailable};
use documents::{Change, DocumentRef, StoreError, WritePrecondition};
use parking_lot::RwLock;
use values::Table;

use crate::Destination;
use crate::bindings::Binding;
use crate::changing::{AttemptOutcome, Attempts};
use crate::entities::{Entities, SharedEntities};
use crate::error::{ChangeError, Entity};
use crate::exchange::{Exchange, NewExchange, PREDECLARED};
use crate::lifecycle::{Expiry, Owners};
use crate::metadata::Metadata;
use crate::names::generated_queue_name;
use crate::projection::DeferredWork;
use crate::queue::Queue;
use crate::routes::Routes;
use crate::shared::SharedValues;
use crate::store::{BINDINGS, EXCHANGES, ExchangeDocument, OwnerDocument, VHOSTS, prefix};
use crate::stripes::{Access, Key, StripeGuard, Stripes};
use crate::topology;

/// Prefix of the names of exchanges that clients may neither declare nor delete.
const RESERVED_PREFIX: &str = "amq.";

/// A cheap handle; clones share the vhost.
#[derive(Clone, Debug)]
pub struct VirtualHost(Arc<Inner>);

/// State shared by all vhosts.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) owners: Arc<Owners>,
    pub(crate) expiry: Arc<Expiry>,
    pub(crate) values: Arc<SharedValues>,
    pub(crate) kept: Arc<DeferredWork>,
    topology: Weak<topology::Inner>,
}

impl Shared {
    pub(crate) fn new(topology: Weak<topology::Inner>) -> Self {
        Self {
            owners: Arc::default(),
            expiry: Arc::default(),
            values: Arc::default(),
            kept: Arc::default(),
            topology,
        }
    }
}

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

/// A binding to be added or removed.
#[derive(Clone, Copy, Debug)]
pub struct BindingRequest<'a> {
    pub source: &'a str,
    pub destination: &'a Destination,
    pub key: &'a str,
    pub arguments: &'a Table,
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

    pub(crate) fn topology(&self) -> Result<Arc<topology::Inner>, StoreError> {
        let stopping = || ExecuteError::from(Unavailable::Stopping).into();
        self.0.shared.topology.upgrade().ok_or_else(stopping)
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.0.name
    }

    pub(crate) fn entities(&self) -> &SharedEntities {
        &self.0.entities
    }

    /// Locks the routes for reading. Take the lock once for all messages at hand, and drop it before any wait.
    pub fn routes(&self) -> Routes<'_> {
        Routes::new(self)
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
}

// ------------------------------------------------------------------------------------- exchanges

impl VirtualHost {
    pub fn has_exchange(&self, name: &str) -> bool {
        self.0.entities.read().exchange(name).is_some()
    }

    /// Creates an exchange unless one of its name exists. `judge` is called first: with an existing exchange it
    /// decides whether the declaration equals it, without one whether the exchange may be created.
    pub async fn declare_exchange<E: From<ChangeError>>(
        &self,
        new: NewExchange<'_>,
        judge: impl Fn(Option<&Exchange>) -> Result<(), E>,
    ) -> Result<(), E> {
        refuse_default(new.name)?;
        let _held = self.lock(&[(Key::Exchange(new.name), Access::Change)]).await;
        let (mut attempts, mut is_current) = (Attempts::default(), false);
        loop {
            self.catch_up();
            // Another node may have deleted the exchange in this node's memory.
            if self.has_exchange(new.name) && !std::mem::replace(&mut is_current, true) {
                self.refresh().await.map_err(ChangeError::from)?;
                continue;
            }
            if let Some(present) = self.0.entities.read().exchange(new.name) {
                return judge(Some(present));
            }
            if new.name.starts_with(RESERVED_PREFIX) {
                let entity = Entity::exchange(new.name, &self.0.name);
                return Err(ChangeError::ReservedName(entity).into());
            }
            judge(None)?;
            if let AttemptOutcome::Done = self.create_exchange(&new, &mut attempts).await? {
                return Ok(());
            }
        }
    }

    async fn create_exchange(
        &self,
        new: &NewExchange<'_>,
        attempts: &mut Attempts,
    ) -> Result<AttemptOutcome, ChangeError> {
        let document = ExchangeDocument {
            kind: new.kind.name().to_owned(),
            auto_delete: new.auto_delete,
            internal: new.internal,
            arguments: new.arguments.clone(),
            durable: new.durable,
            owner: match new.durable {
                true => None,
                false => Some(OwnerDocument { run: self.topology()?.run, connection: None }),
            },
        };
        let (mut change, kept) = (Change::new(), documents::join(&[&self.0.name, new.name]));
        let expect = WritePrecondition::Version(self.0.shared.kept.stale_version(EXCHANGES, &kept));
        change.put(EXCHANGES, kept, &document, expect)?;
        self.make(change, attempts).await
    }

    /// Deletes an exchange and its bindings. A missing exchange counts as deleted.
    pub async fn delete_exchange(&self, name: &str, if_unused: bool) -> Result<(), ChangeError> {
        refuse_default(name)?;
        if name.starts_with(RESERVED_PREFIX) {
            return Err(ChangeError::SystemExchange(Entity::exchange(name, &self.0.name)));
        }
        let _held = self.lock(&[(Key::Exchange(name), Access::Change)]).await;
        if !self.has_exchange(name) {
            self.refresh().await?;
        }
        let mut attempts = Attempts::default();
        loop {
            self.catch_up();
            let mut change = Change::new();
            {
                let entities = self.0.entities.read();
                let Some(removal) = entities.plan_exchange_removal(name) else { return Ok(()) };
                if if_unused && entities.exchange_in_use(name) {
                    return Err(ChangeError::InUse(Entity::exchange(name, &self.0.name)));
                }
                removal.add_to(&self.0.name, &mut change);
            }
            if if_unused {
                // There must be no binding that this node does not know yet either.
                change.check_under(BINDINGS, prefix(&self.0.name, name), 0);
            }
            if let AttemptOutcome::Done = self.make(change, &mut attempts).await? {
                return Ok(());
            }
        }
    }

    /// Deletes an exchange whose run has ended.
    pub(crate) async fn delete_left_exchange(&self, name: &str) -> Result<(), StoreError> {
        unless_gone(self.delete_exchange(name, false).await)
    }
}

/// Ignores all errors but those of the store: an entity to be cleaned up may be gone with its vhost.
fn unless_gone(deleted: Result<(), ChangeError>) -> Result<(), StoreError> {
    match deleted {
        Err(ChangeError::Store(error)) => Err(error),
        _ => Ok(()),
    }
}

fn not_found(entity: Entity) -> ChangeError {
    ChangeError::NotFound(entity)
}

fn refuse_default(exchange: &str) -> Result<(), ChangeError> {
    if exchange.is_empty() { Err(ChangeError::DefaultExchange) } else { Ok(()) }
}
