//! One vhost: what a client may ask of its entities, checked in RabbitMQ's order and refused in its
//! words (`rabbit_channel`, `rabbit_exchange`, `rabbit_binding`, `rabbit_amqqueue`).

use std::sync::Arc;

use base::{LeaseGroupId, TopicId};
use broker::{Broker, ExecuteError};
use machine::command::NewTopic;
use machine::{Command, Outcome, Refusal};
use parking_lot::RwLock;
use uuid::Uuid;

use super::documents::{self, ExchangeDocument, QueueDocument, Stored, internal, refused};
use super::exchange::{
    self, Exchange, ExchangeDeclaration, ExchangeKind, Matched, PREDECLARED, check_text, matched,
};
use super::lifecycle::{ConnectionId, Connections, Expiry};
use super::policy::{Policy, PolicyDefinition, PolicyError, PolicyMatch, PolicyScope, Subject};
use super::queue::{Queue, QueueDeclaration, QueueKind};
use super::routes::Routes;
use super::settings::{QueueSettings, TOPIC_CONFIGS};
use super::stripes::{Access, Held, Key, Stripes};
use super::topology::{Binding, Removed, Topology};
use super::{Destination, arguments, values};
use crate::codec::table::{FieldTable, FieldValue};
use crate::errors::{Exception, ReplyCode, Resource};
use crate::names::{DEFAULT_VHOST, escaped_topic_name, topic_name};

/// Clones share it.
#[derive(Clone, Debug)]
pub struct Vhost(Arc<Inner>);

/// What all vhosts have in common.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    pub(super) connections: Arc<Connections>,
    pub(super) expiry: Arc<Expiry>,
}

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    broker: Broker,
    topology: RwLock<Topology>,
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
            topology: RwLock::new(topology),
            stripes: Stripes::default(),
            policing: tokio::sync::RwLock::default(),
            shared: shared.clone(),
        }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn topology(&self) -> &RwLock<Topology> {
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

// ---------------------------------------------------------------------------------------- queues

impl Vhost {
    /// `queue.declare`, not passive.
    pub async fn declare_queue(
        &self,
        connection: ConnectionId,
        declaration: QueueDeclaration<'_>,
    ) -> Result<Arc<Queue>, Exception> {
        let arguments = with_queue_type(declaration.arguments);
        let name = self.name_for(&declaration, &arguments)?;
        let _policing = self.0.policing.read().await;
        let _held = self.lock(&[(Key::Queue(&name), Access::Change)]).await;
        if let Some(present) = self.present(&name).await? {
            present.check_equivalent(connection, &declaration, &arguments)?;
            present.used();
            return Ok(present);
        }
        let resource = Resource::queue(&name, &self.0.name);
        check_text(resource, arguments::DEAD_LETTER_EXCHANGE, &arguments)?;
        let kind = arguments::check(resource, &arguments)?;
        check_properties(resource, kind, &declaration)?;
        self.create_queue(connection, &name, kind, &declaration, arguments).await
    }

    /// The name that a client gave, or one that the server makes up.
    fn name_for(
        &self,
        declaration: &QueueDeclaration<'_>,
        arguments: &FieldTable,
    ) -> Result<String, Exception> {
        let name = without_line_ends(declaration.name);
        if !name.is_empty() {
            refuse_reserved("queue", &name)?;
            return Ok(name);
        }
        let kind = arguments.get(arguments::QUEUE_TYPE).and_then(FieldValue::as_str);
        match kind.and_then(QueueKind::named) {
            Some(kind @ (QueueKind::Quorum | QueueKind::Stream)) => {
                Err(Exception::precondition_failed(format!(
                    "Cannot declare a server-named queue for type {}",
                    kind.module()
                )))
            }
            _ => Ok(generated_name()),
        }
    }

    async fn create_queue(
        &self,
        connection: ConnectionId,
        name: &str,
        kind: QueueKind,
        declaration: &QueueDeclaration<'_>,
        arguments: FieldTable,
    ) -> Result<Arc<Queue>, Exception> {
        let durable = declaration.durable && !declaration.exclusive;
        let settings = {
            let policies = self.0.topology.read().policies.find(Subject::Queue(name, kind));
            QueueSettings::new(kind, &arguments, &policies)
        };
        let new = self.new_topic(name, settings.topic_config(kind, durable))?;
        let document = QueueDocument {
            topic: new.name.clone(),
            uuid: new.uuid.to_string(),
            kind: kind.name().to_owned(),
            durable,
            auto_delete: declaration.auto_delete,
            arguments: arguments.clone(),
        };
        let topic_name: Arc<str> = Arc::from(new.name.as_str());
        let kept = documents::name(&[&self.0.name, name]);
        // The document first, in the order of the log: a topic without one would be taken for
        // another protocol's.
        let (version, topic) = tokio::join!(
            documents::put(&self.0.broker, documents::QUEUES, kept.clone(), &document),
            create_topic(&self.0.broker, new),
        );
        let version = version?;
        let stored = Stored { space: documents::QUEUES, name: kept, version };
        let topic = match topic {
            Ok(topic) => topic,
            Err(exception) => {
                documents::delete(&self.0.broker, &stored).await?;
                return Err(exception);
            }
        };
        let owner = declaration.exclusive.then_some(connection);
        let queue = Arc::new(Queue::new(
            &self.0.name,
            Arc::from(name),
            (topic, topic_name),
            kind,
            (durable, declaration.auto_delete),
            owner,
            arguments,
            true,
            settings,
        ));
        self.ensure_group(&queue).await?;
        self.0.topology.write().add_queue(Arc::clone(&queue), version);
        self.0.shared.expiry.watch(&queue);
        if owner.is_some() && !self.0.shared.connections.add(connection, &queue) {
            // Its connection closed while it was being made.
            self.remove(&queue).await?;
        }
        Ok(queue)
    }

    /// The topic that a new queue is to have: under its own name, or, where Kafka's rules forbid
    /// that beside a topic that exists, under its escaped one.
    fn new_topic(
        &self,
        queue: &str,
        config: std::collections::BTreeMap<String, String>,
    ) -> Result<NewTopic, Exception> {
        let uuid = Uuid::new_v4();
        let mut new =
            NewTopic { name: topic_name(&self.0.name, queue), uuid, partitions: 1, config };
        let checked = self.0.broker.read(|state| state.check_new_topic(&new));
        match checked {
            Ok(_) => Ok(new),
            Err(Refusal::TopicCollision { .. }) => {
                new.name = escaped_topic_name(&self.0.name, queue);
                Ok(new)
            }
            Err(refusal) => Err(refused(ExecuteError::Refused(refusal))),
        }
    }

    /// The queue, for a client that wants to consume from it, get from it, purge it or know about
    /// it (`queue.declare`, passive).
    pub async fn queue(
        &self,
        connection: ConnectionId,
        name: &str,
    ) -> Result<Arc<Queue>, Exception> {
        let name = without_line_ends(name);
        let Some(queue) = self.present(&name).await? else {
            return Err(Exception::not_found(Resource::queue(&name, &self.0.name)));
        };
        queue.check_access(connection)?;
        if queue.group().is_none() && !queue.is_stream() {
            let _held = self.lock(&[(Key::Queue(&name), Access::Change)]).await;
            self.ensure_group(&queue).await?;
        }
        Ok(queue)
    }

    /// A queue by name, whoever asks.
    pub fn find_queue(&self, name: &str) -> Option<Arc<Queue>> {
        self.adopt(name);
        self.0.topology.read().queue(name).cloned()
    }

    /// `queue.delete`: how many messages were ready. One that is not there is deleted already.
    pub async fn delete_queue(
        &self,
        connection: ConnectionId,
        name: &str,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u64, Exception> {
        let name = without_line_ends(name);
        let _held = self.lock(&[(Key::Queue(&name), Access::Change)]).await;
        let Some(queue) = self.present(&name).await? else { return Ok(0) };
        queue.check_access(connection)?;
        let resource = queue.resource();
        if if_unused && queue.consumer_count() > 0 {
            return Err(Exception::precondition_failed(format!("{resource} in use")));
        }
        let messages = self.message_count(&queue).await;
        if if_empty && messages > 0 {
            return Err(Exception::precondition_failed(format!("{resource} not empty")));
        }
        self.remove(&queue).await?;
        Ok(messages)
    }

    /// A consumer is gone; the last one takes an auto-delete queue with it.
    pub async fn consumer_left(&self, queue: &Arc<Queue>) -> Result<(), Exception> {
        if queue.consumer_went() && queue.auto_delete {
            self.delete_if(queue, |queue| queue.consumer_count() == 0).await?;
        }
        Ok(())
    }

    pub(super) async fn delete_if(
        &self,
        queue: &Arc<Queue>,
        condition: impl Fn(&Queue) -> bool,
    ) -> Result<(), Exception> {
        let _held = self.lock(&[(Key::Queue(&queue.name), Access::Change)]).await;
        if queue.is_deleted() || !condition(queue) {
            return Ok(());
        }
        self.remove(queue).await
    }

    pub(super) async fn delete_owned(
        &self,
        owner: ConnectionId,
        name: &str,
    ) -> Result<(), Exception> {
        let _held = self.lock(&[(Key::Queue(name), Access::Change)]).await;
        let queue = self.0.topology.read().queue(name).cloned();
        match queue.filter(|queue| queue.owner == Some(owner)) {
            Some(queue) => self.remove(&queue).await,
            None => Ok(()),
        }
    }

    /// Deletes a queue that is locked for it. The topic goes first: it is what makes a queue.
    async fn remove(&self, queue: &Arc<Queue>) -> Result<(), Exception> {
        match self.0.broker.execute(Command::DeleteTopic { topic: queue.topic }).await {
            Ok(_) | Err(ExecuteError::Refused(Refusal::UnknownTopic { .. })) => {}
            Err(other) => return Err(refused(other)),
        }
        self.forget(queue).await
    }

    /// What follows once a queue's topic is gone.
    async fn forget(&self, queue: &Arc<Queue>) -> Result<(), Exception> {
        if let Some(owner) = queue.owner {
            self.0.shared.connections.remove(owner, queue);
        }
        let removed = {
            let mut topology = self.0.topology.write();
            let same = topology.queue(&queue.name).is_some_and(|known| known.topic == queue.topic);
            if same { topology.remove_queue(&queue.name) } else { None }
        };
        queue.set_deleted();
        match removed {
            Some(removed) => self.finish(removed).await,
            None => Ok(()),
        }
    }

    /// The queue of this name, if its topic is there still: another protocol may have deleted it.
    async fn present(&self, name: &str) -> Result<Option<Arc<Queue>>, Exception> {
        let Some(queue) = self.find_queue(name) else { return Ok(None) };
        let partitions = self
            .0
            .broker
            .read(|state| state.topic(queue.topic).map(machine::Topic::partition_count));
        match partitions {
            Some(partitions) => {
                queue.set_partition_count(partitions);
                Ok(Some(queue))
            }
            None => {
                self.forget(&queue).await?;
                // A topic made since then under the name is a queue of its own.
                Ok(self.find_queue(name))
            }
        }
    }

    /// The topic of another protocol that this name is a queue of.
    pub(super) fn foreign_topic(&self, name: &str) -> Option<(TopicId, u32, Option<LeaseGroupId>)> {
        // Only plain names: the escaped ones are ours.
        if *self.0.name != *DEFAULT_VHOST || topic_name(DEFAULT_VHOST, name) != name {
            return None;
        }
        self.0.broker.read(|state| {
            let topic = state.topic_named(name)?;
            let group = state.lease_group_named(topic.id, base::MAIN_LEASE_GROUP);
            Some((topic.id, topic.partition_count(), group.map(|group| group.id)))
        })
    }

    /// Makes a topic of another protocol known as a queue, if there is one of this name.
    pub(super) fn adopt(&self, name: &str) {
        if self.0.topology.read().queue(name).is_some() {
            return;
        }
        let Some((topic, partitions, group)) = self.foreign_topic(name) else { return };
        let mut topology = self.0.topology.write();
        if topology.queue(name).is_some() || topology.queue_of_topic(topic).is_some() {
            return;
        }
        let topic_name: Arc<str> = Arc::from(name);
        let queue = Queue::new(
            &self.0.name,
            Arc::clone(&topic_name),
            (topic, topic_name),
            QueueKind::Classic,
            (true, false),
            None,
            FieldTable::new(),
            false,
            QueueSettings::default(),
        );
        queue.set_partition_count(partitions);
        group.into_iter().for_each(|group| queue.set_group(group));
        topology.add_queue(Arc::new(queue), 0);
    }

    /// Makes the lease group that the queue's consumers share.
    pub(super) async fn ensure_group(&self, queue: &Queue) -> Result<(), Exception> {
        if queue.is_stream() || queue.group().is_some() {
            return Ok(());
        }
        let command = Command::CreateLeaseGroup {
            topic: queue.topic,
            name: base::MAIN_LEASE_GROUP.to_owned(),
            starts: Vec::new(),
            config: queue.settings().lease_config(&queue.vhost, &queue.name),
        };
        let group = match self.0.broker.execute(command).await {
            Ok(Outcome::LeaseGroup(group)) => group,
            Ok(other) => {
                return Err(internal(&format_args!("a lease group was answered with {other:?}")));
            }
            // Somebody gave it other values: they hold.
            Err(ExecuteError::Refused(Refusal::LeaseGroupExists { group, .. })) => group,
            Err(other) => return Err(refused(other)),
        };
        queue.set_group(group);
        Ok(())
    }

    /// Messages that a consumer could have now; of a stream, all that are there.
    pub async fn message_count(&self, queue: &Queue) -> u64 {
        match queue.group() {
            Some(group) => self.0.broker.counters(group).await.map_or(0, |all| all.ready),
            None => self.0.broker.read(|state| {
                let partitions = state.topic(queue.topic).map(|topic| topic.partitions.iter());
                let held = |partition: &machine::Partition| {
                    partition.next_offset() - partition.log_start()
                };
                partitions.into_iter().flatten().map(held).sum()
            }),
        }
    }
}

// -------------------------------------------------------------------------------------- policies

impl Vhost {
    /// The highest priority first.
    pub fn policies(&self, scope: PolicyScope) -> Vec<Policy> {
        self.0.topology.read().policies.list(scope).to_vec()
    }

    /// Makes or replaces a policy; it holds for all that it fits when this returns.
    pub async fn set_policy(
        &self,
        scope: PolicyScope,
        name: &str,
        set: PolicyDefinition,
    ) -> Result<(), PolicyError> {
        let mut policy = Policy::new(scope, name, set)?;
        let _policing = self.0.policing.write().await;
        let kept = documents::name(&[&self.0.name, name]);
        policy.version =
            documents::put(&self.0.broker, policy_space(scope), kept, &policy.set).await?;
        self.0.topology.write().policies.set(scope, policy);
        Ok(self.apply_policies().await?)
    }

    pub async fn delete_policy(&self, scope: PolicyScope, name: &str) -> Result<(), PolicyError> {
        let _policing = self.0.policing.write().await;
        let known = self.policies(scope).into_iter().find(|policy| *policy.name == *name);
        let Some(policy) = known else { return Err(PolicyError::NotFound(name.to_owned())) };
        let stored = Stored {
            space: policy_space(scope),
            name: documents::name(&[&self.0.name, name]),
            version: policy.version,
        };
        documents::delete(&self.0.broker, &stored).await?;
        self.0.topology.write().policies.remove(scope, name);
        Ok(self.apply_policies().await?)
    }

    pub(super) async fn apply_policies(&self) -> Result<(), Exception> {
        let queues = {
            let mut topology = self.0.topology.write();
            let exchanges: Vec<_> = topology.exchanges().map(|x| Arc::clone(&x.name)).collect();
            exchanges.iter().for_each(|exchange| topology.apply_policy_to_exchange(exchange));
            topology.queues().cloned().collect::<Vec<_>>()
        };
        let declared: Vec<_> = queues.into_iter().filter(|queue| queue.declared).collect();
        for some in declared.chunks(CONFIGURED_AT_ONCE) {
            let applied = some.iter().map(|queue| self.apply_settings(queue));
            futures_util::future::try_join_all(applied).await?;
        }
        Ok(())
    }

    /// Brings a queue's settings, and the configuration of its topic and its lease group, to what
    /// its arguments and the policies come to.
    async fn apply_settings(&self, queue: &Arc<Queue>) -> Result<(), Exception> {
        let policies: PolicyMatch =
            self.0.topology.read().policies.find(Subject::Queue(&queue.name, queue.kind));
        let settings = QueueSettings::new(queue.kind, &queue.arguments, &policies);
        let topic = settings.topic_config(queue.kind, queue.durable);
        let lease = settings.lease_config(&queue.vhost, &queue.name);
        queue.set_settings(settings);
        self.0.shared.expiry.watch(queue);
        let commands = self.0.broker.read(|state| {
            let present = state.topic(queue.topic).map(|topic| topic.overrides.clone());
            let topic = present.and_then(|present| changed(&present, &TOPIC_CONFIGS, topic));
            let topic = topic.map(|config| Command::SetTopicConfig { topic: queue.topic, config });
            let group = queue.group().and_then(|group| state.lease_group(group));
            let lease = group.and_then(|group| {
                let config = changed(&group.overrides, &LEASE_CONFIGS, lease)?;
                Some(Command::SetLeaseGroupConfig { group: group.id, config })
            });
            [topic, lease]
        });
        for command in commands.into_iter().flatten() {
            match self.0.broker.execute(command).await {
                Ok(_)
                | Err(ExecuteError::Refused(
                    Refusal::UnknownTopic { .. } | Refusal::UnknownLeaseGroup { .. },
                )) => {}
                Err(other) => return Err(refused(other)),
            }
        }
        Ok(())
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

/// The names of a lease group's configuration that follow from a queue's settings.
const LEASE_CONFIGS: [&str; 5] =
    ["attempts.max", "consumers", "dead.letter.route", "lease.ms", "record.ttl.ms"];

/// Queues whose configuration is changed in one go.
const CONFIGURED_AT_ONCE: usize = 256;

type Overrides = std::collections::BTreeMap<String, String>;

/// `present` with the `named` values as `wanted` has them; `None` if it is so already.
fn changed(present: &Overrides, named: &[&str], wanted: Overrides) -> Option<Overrides> {
    let others = present.iter().filter(|(name, _)| !named.contains(&name.as_str()));
    let mut config: Overrides = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    config.extend(wanted);
    (config != *present).then_some(config)
}

pub(super) const fn policy_space(scope: PolicyScope) -> &'static str {
    match scope {
        PolicyScope::User => documents::POLICIES,
        PolicyScope::Operator => documents::OPERATOR_POLICIES,
    }
}

async fn create_topic(broker: &Broker, new: NewTopic) -> Result<TopicId, Exception> {
    match broker.execute(Command::CreateTopics { topics: vec![new] }).await.map_err(refused)? {
        Outcome::Topics(mut outcomes) => match outcomes.pop() {
            Some(Ok(topic)) => Ok(topic),
            Some(Err(refusal)) => Err(refused(ExecuteError::Refused(refusal))),
            None => Err(internal(&"a topic was not answered")),
        },
        other => Err(internal(&format_args!("a topic was answered with {other:?}"))),
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

/// Every queue says of what type it is.
fn with_queue_type(arguments: &FieldTable) -> FieldTable {
    let mut arguments = arguments.clone();
    let named = arguments.get(arguments::QUEUE_TYPE);
    if named.is_none() || named.and_then(FieldValue::as_str) == Some("undefined") {
        arguments.set(arguments::QUEUE_TYPE, QueueKind::Classic.name());
        arguments = values::sorted(&arguments);
    }
    arguments
}

/// Quorum queues and streams outlive everything, so they cannot be declared otherwise.
fn check_properties(
    queue: Resource<'_>,
    kind: QueueKind,
    declaration: &QueueDeclaration<'_>,
) -> Result<(), Exception> {
    if kind == QueueKind::Classic {
        return Ok(());
    }
    let durable = declaration.durable && !declaration.exclusive;
    for (wrong, property) in [
        (declaration.auto_delete, "auto-delete"),
        (declaration.exclusive, "exclusive-owner"),
        (!durable, "non-durable"),
    ] {
        if wrong {
            let text = format!("invalid property '{property}' for {queue}");
            return Err(Exception::precondition_failed(text));
        }
    }
    Ok(())
}

/// `amq.gen-` and 128 random bits, as RabbitMQ writes them.
fn generated_name() -> String {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    format!("amq.gen-{}", URL_SAFE_NO_PAD.encode(Uuid::new_v4().as_bytes()))
}
