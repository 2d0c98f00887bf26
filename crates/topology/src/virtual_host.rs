//! One virtual host: its entities, and changes of them.

mod policies;
mod queues;

use std::sync::Arc;

use broker::Broker;
use documents::store::{delete, delete_all, put};
use documents::{Expect, StoreError, Stored};
use values::Table;

use crate::Destination;
use crate::arguments::sorted;
use crate::bindings::Binding;
use crate::entities::{Entities, Removed, SharedEntities};
use crate::error::{BindingError, ChangeError, Entity};
use crate::exchange::{Exchange, ExchangeKind, NewExchange, PREDECLARED};
use crate::lifecycle::{Expiry, OwnerId, Owners};
use crate::matched::{Matched, matched};
use crate::names::generated_queue_name;
use crate::policy::PolicyScope;
use crate::queue::Queue;
use crate::routes::Routes;
use crate::shared::SharedValues;
use crate::store::{BINDINGS, EXCHANGES, ExchangeDocument, policy_space};
use crate::stripes::{Access, Held, Key, Stripes};

/// What names of exchanges begin with that nobody declares or deletes.
const RESERVED_PREFIX: &str = "amq.";

/// Clones share it.
#[derive(Clone, Debug)]
pub struct VirtualHost(Arc<Inner>);

/// What all vhosts have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) owners: Arc<Owners>,
    pub(crate) expiry: Arc<Expiry>,
    pub(crate) values: Arc<SharedValues>,
}

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    broker: Broker,
    entities: SharedEntities,
    /// Puts this node's changes of one entity in order. A change is of several documents and a topic,
    /// which no one version could stand for.
    stripes: Stripes,
    /// Read by who makes a queue or an exchange, written by who changes policies.
    policing: tokio::sync::RwLock<()>,
    shared: Shared,
}

/// One end or the other of a binding, and what it says.
#[derive(Clone, Copy, Debug)]
pub struct BindingRequest<'a> {
    pub source: &'a str,
    pub destination: &'a Destination,
    pub key: &'a str,
    pub arguments: &'a Table,
}

impl VirtualHost {
    pub(crate) fn new(name: &str, broker: &Broker, shared: &Shared) -> Self {
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
            broker: broker.clone(),
            entities: SharedEntities::new(entities),
            stripes: Stripes::default(),
            policing: tokio::sync::RwLock::default(),
            shared: shared.clone(),
        }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A name for a queue that its client gives none.
    pub fn generated_queue_name(&self) -> String {
        generated_queue_name(self.0.broker.entropy())
    }

    /// The same vhost, and not only one of the same name.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.0.name
    }

    pub(crate) fn entities(&self) -> &SharedEntities {
        &self.0.entities
    }

    /// Where messages go. Take it once for all that are at hand, and drop it before waiting.
    pub fn routes(&self) -> Routes<'_> {
        Routes::new(self)
    }

    async fn lock(&self, keys: &[(Key<'_>, Access)]) -> Vec<Held<'_>> {
        self.0.stripes.lock(keys).await
    }

    /// Sorted by name, as the next two are.
    pub fn exchanges(&self) -> Vec<Exchange> {
        let mut exchanges: Vec<_> = self.0.entities.read().exchanges().cloned().collect();
        exchanges.sort_by(|a, b| a.name.cmp(&b.name));
        exchanges
    }

    /// Those that were declared, and topics of other protocols that somebody asked for.
    pub fn queues(&self) -> Vec<Arc<Queue>> {
        let mut queues: Vec<_> = self.0.entities.read().queues().cloned().collect();
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        queues
    }

    /// Without those of the default exchange, which every queue has.
    pub fn bindings(&self) -> Vec<Binding> {
        let mut bindings = self.0.entities.read().bindings();
        bindings.sort_by(|a, b| {
            (&a.source, &a.destination, &a.key).cmp(&(&b.source, &b.destination, &b.key))
        });
        bindings
    }

    /// Deletes everything, for the vhost itself is gone.
    pub(crate) async fn clear(&self) -> Result<(), StoreError> {
        for queue in self.queues() {
            let _held = self.lock(&[(Key::Queue(&queue.name), Access::Change)]).await;
            self.remove(&queue).await?;
        }
        let exchanges = self.exchanges().into_iter().filter(|exchange| exchange.version != 0);
        for exchange in exchanges {
            let _held = self.lock(&[(Key::Exchange(&exchange.name), Access::Change)]).await;
            let removed = self.0.entities.write().remove_exchange(&exchange.name);
            self.finish(removed).await?;
        }
        for scope in [PolicyScope::User, PolicyScope::Operator] {
            for policy in self.policies(scope) {
                let name = documents::join(&[&self.0.name, &policy.name]);
                let stored = Stored { space: policy_space(scope), name, version: policy.version };
                delete(&self.0.broker, &stored).await?;
            }
        }
        Ok(())
    }
}

// ------------------------------------------------------------------------------------- exchanges

impl VirtualHost {
    pub fn has_exchange(&self, name: &str) -> bool {
        self.0.entities.read().exchange(name).is_some()
    }

    /// Makes an exchange unless there is one of its name. `judge` is asked first: with the one that
    /// is there, whether it is the one that is declared; with none, whether such a one may be made.
    pub async fn declare_exchange<E: From<ChangeError>>(
        &self,
        new: NewExchange<'_>,
        judge: impl FnOnce(Option<&Exchange>) -> Result<(), E>,
    ) -> Result<(), E> {
        refuse_default(new.name)?;
        let _policing = self.0.policing.read().await;
        let _held = self.lock(&[(Key::Exchange(new.name), Access::Change)]).await;
        if let Some(present) = self.0.entities.read().exchange(new.name) {
            return judge(Some(present));
        }
        if new.name.starts_with(RESERVED_PREFIX) {
            let entity = Entity::exchange(new.name, &self.0.name);
            return Err(ChangeError::ReservedName(entity).into());
        }
        judge(None)?;
        Ok(self.create_exchange(&new).await.map_err(ChangeError::from)?)
    }

    async fn create_exchange(&self, new: &NewExchange<'_>) -> Result<(), StoreError> {
        let mut version = 0;
        if new.durable {
            let document = ExchangeDocument {
                kind: new.kind.name().to_owned(),
                auto_delete: new.auto_delete,
                internal: new.internal,
                arguments: new.arguments.clone(),
            };
            let kept = documents::join(&[&self.0.name, new.name]);
            version = put(&self.0.broker, EXCHANGES, kept, &document, Expect::Anything).await?;
        }
        self.0.entities.write().add_exchange(Exchange::new(&self.0.name, new, version));
        Ok(())
    }

    /// Deletes an exchange and its bindings. One that is not there is deleted already.
    pub async fn delete_exchange(&self, name: &str, if_unused: bool) -> Result<(), ChangeError> {
        refuse_default(name)?;
        let entity = || Entity::exchange(name, &self.0.name);
        if name.starts_with(RESERVED_PREFIX) {
            return Err(ChangeError::SystemExchange(entity()));
        }
        let _held = self.lock(&[(Key::Exchange(name), Access::Change)]).await;
        let stored = {
            let entities = self.0.entities.read();
            let Some(present) = entities.exchange(name) else { return Ok(()) };
            if if_unused && entities.exchange_in_use(name) {
                return Err(ChangeError::InUse(entity()));
            }
            (present.version != 0).then(|| Stored {
                space: EXCHANGES,
                name: documents::join(&[&self.0.name, name]),
                version: present.version,
            })
        };
        if let Some(stored) = stored {
            delete(&self.0.broker, &stored).await?;
        }
        let removed = self.0.entities.write().remove_exchange(name);
        Ok(self.finish(removed).await?)
    }

    /// Deletes the documents of what is gone from memory.
    async fn finish(&self, removed: Removed) -> Result<(), StoreError> {
        delete_all(&self.0.broker, &removed.documents).await
    }
}

// -------------------------------------------------------------------------------------- bindings

impl VirtualHost {
    /// Binds a queue or an exchange to an exchange. `user` must own the queue, if that has an owner.
    pub async fn bind(
        &self,
        user: OwnerId,
        request: BindingRequest<'_>,
    ) -> Result<(), ChangeError> {
        let BindingRequest { source, destination, key, .. } = request;
        refuse_default_ends(source, destination)?;
        let _held = self.lock_binding(source, destination).await;
        self.check_ends(source, destination)?;
        let arguments = sorted(request.arguments);
        let plan = {
            let entities = self.0.entities.read();
            let Some(exchange) = entities.exchange(source) else {
                return Err(not_found(Entity::exchange(source, &self.0.name)));
            };
            let read = matched(&exchange.matching(), key, &arguments)?;
            let only_queues = exchange.kind == ExchangeKind::LocalRandom;
            if only_queues && matches!(destination, Destination::Exchange(_)) {
                return Err(BindingError::QueuesOnly.into());
            }
            self.check_destination(&entities, user, destination)?;
            entities.plan_bind(exchange, destination, key, &arguments, read)
        };
        let Some(plan) = plan else { return Ok(()) };
        let mut stored = None;
        if let Some((name, document)) = &plan.document {
            let space = BINDINGS;
            let version =
                put(&self.0.broker, space, name.clone(), document, Expect::Anything).await?;
            stored = Some(Stored { space, name: name.clone(), version });
        }
        let version = stored.as_ref().map_or(0, |stored| stored.version);
        if self.0.entities.write().bind(&plan, version) {
            return Ok(());
        }
        // One of the ends went by itself meanwhile (auto-delete): so does the binding.
        if let Some(stored) = stored {
            delete(&self.0.broker, &stored).await?;
        }
        self.check_ends(source, destination)
    }

    /// Takes a binding away. What is not there is unbound already.
    pub async fn unbind(
        &self,
        user: OwnerId,
        request: BindingRequest<'_>,
    ) -> Result<(), ChangeError> {
        let BindingRequest { source, destination, key, .. } = request;
        refuse_default_ends(source, destination)?;
        let _held = self.lock_binding(source, destination).await;
        let arguments = sorted(request.arguments);
        let plan = {
            let entities = self.0.entities.read();
            let Some(exchange) = entities.exchange(source) else { return Ok(()) };
            // A binding that could not be made is not there.
            let read = matched(&exchange.matching(), key, &arguments).unwrap_or(Matched::Key);
            let plan = entities.plan_unbind(exchange, destination, key, &arguments, read);
            let Some(plan) = plan else { return Ok(()) };
            self.check_destination(&entities, user, destination)?;
            plan
        };
        let mut version = None;
        if let (Some((name, document)), Some(present)) = (&plan.document, &plan.present) {
            if document.bindings.is_empty() {
                delete(&self.0.broker, present).await?;
            } else {
                let space = BINDINGS;
                let (broker, name) = (&self.0.broker, name.clone());
                version = Some(put(broker, space, name, document, Expect::Anything).await?);
            }
        }
        let removed = self.0.entities.write().unbind(&plan, version);
        Ok(self.finish(removed).await?)
    }

    async fn lock_binding(&self, source: &str, destination: &Destination) -> Vec<Held<'_>> {
        let end = match destination {
            Destination::Queue(name) => Key::Queue(name),
            Destination::Exchange(name) => Key::Exchange(name),
        };
        let pair = Key::Pair(source, destination);
        let keys =
            [(Key::Exchange(source), Access::Keep), (end, Access::Keep), (pair, Access::Change)];
        self.lock(&keys).await
    }

    fn check_ends(&self, source: &str, destination: &Destination) -> Result<(), ChangeError> {
        let vhost = &self.0.name;
        if let Destination::Queue(name) = destination {
            self.adopt(name);
        }
        let entities = self.0.entities.read();
        if entities.exchange(source).is_none() {
            return Err(not_found(Entity::exchange(source, vhost)));
        }
        match destination {
            Destination::Queue(name) if entities.queue(name).is_none() => {
                Err(not_found(Entity::queue(name, vhost)))
            }
            Destination::Exchange(name) if entities.exchange(name).is_none() => {
                Err(not_found(Entity::exchange(name, vhost)))
            }
            _ => Ok(()),
        }
    }

    fn check_destination(
        &self,
        entities: &Entities,
        user: OwnerId,
        destination: &Destination,
    ) -> Result<(), ChangeError> {
        match destination {
            Destination::Queue(name) => {
                entities.queue(name).map_or(Ok(()), |queue| queue.check_owner(user))
            }
            Destination::Exchange(_) => Ok(()),
        }
    }
}

fn not_found(entity: Entity) -> ChangeError {
    ChangeError::NotFound(entity)
}

fn refuse_default(exchange: &str) -> Result<(), ChangeError> {
    if exchange.is_empty() { Err(ChangeError::DefaultExchange) } else { Ok(()) }
}

fn refuse_default_ends(source: &str, destination: &Destination) -> Result<(), ChangeError> {
    if let Destination::Exchange(name) = destination {
        refuse_default(name)?;
    }
    refuse_default(source)
}
