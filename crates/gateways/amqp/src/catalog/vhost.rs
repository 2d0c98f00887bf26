//! One vhost: what a client may ask of its entities, checked in RabbitMQ's order and refused in its
//! words (`rabbit_channel`, `rabbit_exchange`, `rabbit_binding`, `rabbit_amqqueue`).

mod policies;
mod queues;

use std::sync::Arc;

use broker::Broker;

use super::documents::{self, ExchangeDocument, Stored};
use super::exchange::{
    self, Exchange, ExchangeDeclaration, ExchangeKind, Matched, PREDECLARED, matched,
};
use super::lifecycle::{ConnectionId, Connections, Expiry};
use super::policy::PolicyScope;
use super::queue::Queue;
use super::routes::Routes;
use super::shared::SharedValues;
use super::stripes::{Access, Held, Key, Stripes};
use super::topology::{Binding, Removed, SharedTopology, Topology};
use super::{Destination, values};
use crate::codec::table::FieldTable;
use crate::errors::{Exception, ReplyCode, Resource};

pub(super) use policies::policy_space;
pub(crate) use queues::generated_name;

/// Clones share it.
#[derive(Clone, Debug)]
pub struct Vhost(Arc<Inner>);

/// What all vhosts have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) connections: Arc<Connections>,
    pub(super) expiry: Arc<Expiry>,
    pub(super) values: Arc<SharedValues>,
}

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    broker: Broker,
    topology: SharedTopology,
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
    pub arguments: &'a FieldTable,
}

impl Vhost {
    pub(super) fn new(name: &str, broker: &Broker, shared: &Shared) -> Self {
        let name: Arc<str> = Arc::from(name);
        let mut topology = Topology::new(Arc::clone(&name));
        for (exchange, kind, internal) in PREDECLARED {
            topology.add_exchange(Exchange {
                vhost: Arc::clone(&name),
                name: Arc::from(exchange),
                kind,
                durable: true,
                auto_delete: false,
                internal,
                arguments: FieldTable::new(),
                policy: None,
                operator_policy: None,
                node: routing::NodeId(0),
                generation: 0,
                version: 0,
                alternate: None,
            });
        }
        Self(Arc::new(Inner {
            name,
            broker: broker.clone(),
            topology: SharedTopology::new(topology),
            stripes: Stripes::default(),
            policing: tokio::sync::RwLock::default(),
            shared: shared.clone(),
        }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The same vhost, and not only one of the same name.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn shared_name(&self) -> &Arc<str> {
        &self.0.name
    }

    pub(super) fn topology(&self) -> &SharedTopology {
        &self.0.topology
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
        let mut exchanges: Vec<_> = self.0.topology.read().exchanges().cloned().collect();
        exchanges.sort_by(|a, b| a.name.cmp(&b.name));
        exchanges
    }

    /// Those that were declared, and topics of other protocols that somebody asked for.
    pub fn queues(&self) -> Vec<Arc<Queue>> {
        let mut queues: Vec<_> = self.0.topology.read().queues().cloned().collect();
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        queues
    }

    /// Without those of the default exchange, which every queue has.
    pub fn bindings(&self) -> Vec<Binding> {
        let mut bindings = self.0.topology.read().bindings();
        bindings.sort_by(|a, b| {
            (&a.source, &a.destination, &a.key).cmp(&(&b.source, &b.destination, &b.key))
        });
        bindings
    }

    /// Deletes everything, for the vhost itself is gone.
    pub(super) async fn clear(&self) -> Result<(), Exception> {
        for queue in self.queues() {
            let _held = self.lock(&[(Key::Queue(&queue.name), Access::Change)]).await;
            self.remove(&queue).await?;
        }
        let exchanges = self.exchanges().into_iter().filter(|exchange| exchange.version != 0);
        for exchange in exchanges {
            let _held = self.lock(&[(Key::Exchange(&exchange.name), Access::Change)]).await;
            let removed = self.0.topology.write().remove_exchange(&exchange.name);
            self.finish(removed).await?;
        }
        for scope in [PolicyScope::User, PolicyScope::Operator] {
            for policy in self.policies(scope) {
                let name = documents::name(&[&self.0.name, &policy.name]);
                let stored = Stored { space: policy_space(scope), name, version: policy.version };
                documents::delete(&self.0.broker, &stored).await?;
            }
        }
        Ok(())
    }
}

// ------------------------------------------------------------------------------------- exchanges

impl Vhost {
    /// `exchange.declare`, not passive.
    pub async fn declare_exchange(
        &self,
        declaration: ExchangeDeclaration<'_>,
    ) -> Result<(), Exception> {
        let kind = ExchangeKind::named(declaration.kind)?;
        let name = without_line_ends(declaration.name);
        refuse_default(&name)?;
        let _policing = self.0.policing.read().await;
        let _held = self.lock(&[(Key::Exchange(&name), Access::Change)]).await;
        if let Some(present) = self.0.topology.read().exchange(&name) {
            return present.check_equivalent(kind, &declaration);
        }
        refuse_reserved("exchange", &name)?;
        let resource = Resource::exchange(&name, &self.0.name);
        exchange::check_arguments(resource, kind, declaration.arguments)?;
        let mut version = 0;
        if declaration.durable {
            let document = ExchangeDocument {
                kind: kind.name().to_owned(),
                auto_delete: declaration.auto_delete,
                internal: declaration.internal,
                arguments: declaration.arguments.clone(),
            };
            let kept = documents::name(&[&self.0.name, &name]);
            version = documents::put(&self.0.broker, documents::EXCHANGES, kept, &document).await?;
        }
        self.0.topology.write().add_exchange(Exchange {
            vhost: Arc::clone(&self.0.name),
            name: Arc::from(&*name),
            kind,
            durable: declaration.durable,
            auto_delete: declaration.auto_delete,
            internal: declaration.internal,
            arguments: declaration.arguments.clone(),
            policy: None,
            operator_policy: None,
            node: routing::NodeId(0),
            generation: 0,
            version,
            alternate: None,
        });
        Ok(())
    }

    /// `exchange.declare`, passive: whether it is there.
    pub fn check_exchange(&self, name: &str) -> Result<(), Exception> {
        let name = without_line_ends(name);
        refuse_default(&name)?;
        match self.0.topology.read().exchange(&name) {
            Some(_) => Ok(()),
            None => Err(Exception::not_found(Resource::exchange(&name, &self.0.name))),
        }
    }

    /// `exchange.delete`. One that is not there is deleted already.
    pub async fn delete_exchange(&self, name: &str, if_unused: bool) -> Result<(), Exception> {
        let name = without_line_ends(name);
        refuse_default(&name)?;
        let resource = Resource::exchange(&name, &self.0.name);
        if name.starts_with("amq.") {
            return Err(Exception::new(
                ReplyCode::AccessRefused,
                format!("deletion of system {resource} not allowed"),
            ));
        }
        let _held = self.lock(&[(Key::Exchange(&name), Access::Change)]).await;
        let stored = {
            let topology = self.0.topology.read();
            let Some(present) = topology.exchange(&name) else { return Ok(()) };
            if if_unused && topology.exchange_in_use(&name) {
                return Err(Exception::precondition_failed(format!("{resource} in use")));
            }
            (present.version != 0).then(|| Stored {
                space: documents::EXCHANGES,
                name: documents::name(&[&self.0.name, &name]),
                version: present.version,
            })
        };
        if let Some(stored) = stored {
            documents::delete(&self.0.broker, &stored).await?;
        }
        let removed = self.0.topology.write().remove_exchange(&name);
        self.finish(removed).await
    }

    /// Deletes the documents of what is gone from memory.
    async fn finish(&self, removed: Removed) -> Result<(), Exception> {
        documents::delete_all(&self.0.broker, &removed.documents).await
    }
}

// -------------------------------------------------------------------------------------- bindings

impl Vhost {
    /// `queue.bind` and `exchange.bind`.
    pub async fn bind(
        &self,
        connection: ConnectionId,
        request: BindingRequest<'_>,
    ) -> Result<(), Exception> {
        let (source, destination) = self.binding_ends(&request)?;
        let _held = self.lock_binding(&source, &destination).await;
        self.check_ends(&source, &destination)?;
        let arguments = values::sorted(request.arguments);
        let plan = {
            let topology = self.0.topology.read();
            let Some(exchange) = topology.exchange(&source) else {
                return Err(Exception::not_found(Resource::exchange(&source, &self.0.name)));
            };
            let read = matched(&exchange.matching(), request.key, &arguments)?;
            let only_queues = exchange.kind == ExchangeKind::LocalRandom;
            if only_queues && matches!(destination, Destination::Exchange(_)) {
                return Err(Exception::precondition_failed("Destination not found"));
            }
            self.check_destination(&topology, connection, &destination)?;
            topology.plan_bind(exchange, &destination, request.key, &arguments, read)
        };
        let Some(plan) = plan else { return Ok(()) };
        let mut stored = None;
        if let Some((name, document)) = &plan.document {
            let space = documents::BINDINGS;
            let version = documents::put(&self.0.broker, space, name.clone(), document).await?;
            stored = Some(Stored { space, name: name.clone(), version });
        }
        let version = stored.as_ref().map_or(0, |stored| stored.version);
        if self.0.topology.write().bind(&plan, version) {
            return Ok(());
        }
        // One of the ends went by itself meanwhile (auto-delete): so does the binding.
        if let Some(stored) = stored {
            documents::delete(&self.0.broker, &stored).await?;
        }
        self.check_ends(&source, &destination)
    }

    /// `queue.unbind` and `exchange.unbind`. What is not there is unbound already.
    pub async fn unbind(
        &self,
        connection: ConnectionId,
        request: BindingRequest<'_>,
    ) -> Result<(), Exception> {
        let (source, destination) = self.binding_ends(&request)?;
        let _held = self.lock_binding(&source, &destination).await;
        let arguments = values::sorted(request.arguments);
        let plan = {
            let topology = self.0.topology.read();
            let Some(exchange) = topology.exchange(&source) else { return Ok(()) };
            // A binding that could not be made is not there.
            let read =
                matched(&exchange.matching(), request.key, &arguments).unwrap_or(Matched::Key);
            let plan = topology.plan_unbind(exchange, &destination, request.key, &arguments, read);
            let Some(plan) = plan else { return Ok(()) };
            self.check_destination(&topology, connection, &destination)?;
            plan
        };
        let mut version = None;
        if let (Some((name, document)), Some(present)) = (&plan.document, &plan.present) {
            if document.bindings.is_empty() {
                documents::delete(&self.0.broker, present).await?;
            } else {
                let space = documents::BINDINGS;
                let put = documents::put(&self.0.broker, space, name.clone(), document);
                version = Some(put.await?);
            }
        }
        let removed = self.0.topology.write().unbind(&plan, version);
        self.finish(removed).await
    }

    /// The names as they count, none of them the default exchange.
    fn binding_ends(
        &self,
        request: &BindingRequest<'_>,
    ) -> Result<(String, Destination), Exception> {
        let source = without_line_ends(request.source);
        let destination = match request.destination {
            Destination::Queue(name) => Destination::Queue(without_line_ends(name).into()),
            Destination::Exchange(name) => {
                let name = without_line_ends(name);
                refuse_default(&name)?;
                Destination::Exchange(name.into())
            }
        };
        refuse_default(&source)?;
        Ok((source, destination))
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

    fn check_ends(&self, source: &str, destination: &Destination) -> Result<(), Exception> {
        let vhost = &self.0.name;
        if let Destination::Queue(name) = destination {
            self.adopt(name);
        }
        let topology = self.0.topology.read();
        if topology.exchange(source).is_none() {
            return Err(Exception::not_found(Resource::exchange(source, vhost)));
        }
        match destination {
            Destination::Queue(name) if topology.queue(name).is_none() => {
                Err(Exception::not_found(Resource::queue(name, vhost)))
            }
            Destination::Exchange(name) if topology.exchange(name).is_none() => {
                Err(Exception::not_found(Resource::exchange(name, vhost)))
            }
            _ => Ok(()),
        }
    }

    fn check_destination(
        &self,
        topology: &Topology,
        connection: ConnectionId,
        destination: &Destination,
    ) -> Result<(), Exception> {
        match destination {
            Destination::Queue(name) => {
                topology.queue(name).map_or(Ok(()), |queue| queue.check_access(connection))
            }
            Destination::Exchange(_) => Ok(()),
        }
    }
}

/// Line ends do not belong to names.
fn without_line_ends(name: &str) -> String {
    name.replace(['\r', '\n'], "")
}

fn refuse_default(exchange: &str) -> Result<(), Exception> {
    if exchange.is_empty() {
        return Err(Exception::new(
            ReplyCode::AccessRefused,
            "operation not permitted on the default exchange",
        ));
    }
    Ok(())
}

fn refuse_reserved(kind: &str, name: &str) -> Result<(), Exception> {
    if name.starts_with("amq.") {
        return Err(Exception::new(
            ReplyCode::AccessRefused,
            format!("{kind} name '{name}' contains reserved prefix 'amq.*'"),
        ));
    }
    Ok(())
}
