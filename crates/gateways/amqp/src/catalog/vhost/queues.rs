//! Queues of a vhost: declared, found, deleted; and topics of other protocols, which are queues as
//! they are.

use std::sync::Arc;

use base::{LeaseGroupId, PartitionId, TopicId};
use broker::{ExecuteError, NewTopic, Refusal, Unavailable};
use world::Entropy;

use super::{Vhost, refuse_reserved, without_line_ends};
use crate::catalog::documents::{self, QueueDocument, Stored, refused};
use crate::catalog::exchange::check_text;
use crate::catalog::lifecycle::ConnectionId;
use crate::catalog::policy::Subject;
use crate::catalog::queue::{Queue, QueueDeclaration, QueueKind, queue_name};
use crate::catalog::settings::QueueSettings;
use crate::catalog::stripes::{Access, Key};
use crate::catalog::{arguments, values};
use crate::codec::table::{FieldTable, FieldValue};
use crate::errors::{Exception, Resource};
use crate::names::{DEFAULT_VHOST, escaped_topic_name, topic_name};

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
            _ => Ok(generated_name(self.0.broker.entropy())),
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
            topic: if new.name == name { String::new() } else { new.name.clone() },
            uuid: new.uuid.simple().to_string(),
            kind: kind.name().to_owned(),
            durable,
            auto_delete: declaration.auto_delete,
            arguments: arguments.clone(),
        };
        let topic_name = new.name.clone();
        let kept = documents::name(&[&self.0.name, name]);
        // The document first, in the order of the log: a topic without one would be taken for
        // another protocol's.
        let (version, topic) = tokio::join!(
            documents::put(&self.0.broker, documents::QUEUES, kept.clone(), &document),
            self.0.broker.create_topic(new),
        );
        let version = version?;
        let stored = Stored { space: documents::QUEUES, name: kept, version };
        let topic = match topic {
            Ok(topic) => topic,
            Err(error) => {
                documents::delete(&self.0.broker, &stored).await?;
                return Err(refused(error));
            }
        };
        let owner = declaration.exclusive.then_some(connection);
        // The catalog's own, so that it is there once.
        let shared_name = {
            let catalog = self.0.broker.catalog();
            catalog.topic(topic).map(|topic| Arc::clone(topic.name()))
        };
        let topic_name = shared_name.unwrap_or_else(|| Arc::from(topic_name));
        let values = &self.0.shared.values;
        let queue = Arc::new(Queue::new(
            &self.0.name,
            queue_name(name, &topic_name),
            (topic, topic_name),
            kind,
            (durable, declaration.auto_delete),
            owner,
            values.arguments(arguments),
            true,
            values.settings(settings),
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
        let uuid = self.0.broker.entropy().uuid();
        let mut new =
            NewTopic { name: topic_name(&self.0.name, queue), uuid, partitions: 1, config };
        let checked = self.0.broker.catalog().check_new_topic(&new);
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

    pub(in crate::catalog) async fn delete_if(
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

    pub(in crate::catalog) async fn delete_owned(
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
    pub(super) async fn remove(&self, queue: &Arc<Queue>) -> Result<(), Exception> {
        match self.0.broker.delete_topic(queue.topic).await {
            Ok(()) | Err(ExecuteError::Refused(Refusal::UnknownTopic { .. })) => {}
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
        let partitions = {
            let catalog = self.0.broker.catalog();
            catalog.topic(queue.topic).map(|topic| topic.partition_count())
        };
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
    pub(in crate::catalog) fn foreign_topic(
        &self,
        name: &str,
    ) -> Option<(TopicId, u32, Option<LeaseGroupId>)> {
        // Only plain names: the escaped ones are ours.
        if *self.0.name != *DEFAULT_VHOST || topic_name(DEFAULT_VHOST, name) != name {
            return None;
        }
        let catalog = self.0.broker.catalog();
        let topic = catalog.topic_named(name)?;
        let group = catalog.lease_group_named(topic.id(), base::MAIN_LEASE_GROUP);
        Some((topic.id(), topic.partition_count(), group.map(|group| group.id())))
    }

    /// Makes a topic of another protocol known as a queue, if there is one of this name.
    pub(in crate::catalog) fn adopt(&self, name: &str) {
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
            self.0.shared.values.arguments(FieldTable::new()),
            false,
            self.0.shared.values.settings(QueueSettings::default()),
        );
        queue.set_partition_count(partitions);
        group.into_iter().for_each(|group| queue.set_group(group));
        topology.add_queue(Arc::new(queue), 0);
    }

    /// Makes the lease group that the queue's consumers share.
    pub(in crate::catalog) async fn ensure_group(&self, queue: &Queue) -> Result<(), Exception> {
        if queue.is_stream() || queue.group().is_some() {
            return Ok(());
        }
        let name = base::MAIN_LEASE_GROUP.to_owned();
        let config = queue.settings().lease_config(&queue.vhost, &queue.name);
        let made = self.0.broker.create_lease_group(queue.topic, name, Vec::new(), config).await;
        let group = match made {
            Ok(group) => group,
            // Somebody gave it other values: they hold.
            Err(ExecuteError::Refused(Refusal::LeaseGroupExists { group, .. })) => group,
            Err(other) => return Err(refused(other)),
        };
        queue.set_group(group);
        Ok(())
    }

    /// Messages that a consumer could have now; of a stream, all that are there.
    pub async fn message_count(&self, queue: &Queue) -> u64 {
        self.0.broker.acknowledged_is_readable(queue.topic).await;
        match queue.group() {
            Some(group) => self.0.broker.counters(group).await.map_or(0, |all| all.ready),
            None => self.held(queue).await.unwrap_or_default(),
        }
    }

    /// Messages that are there.
    async fn held(&self, queue: &Queue) -> Result<u64, Unavailable> {
        let partitions = {
            let catalog = self.0.broker.catalog();
            catalog.topic(queue.topic).map(|topic| topic.partition_ids())
        };
        let partitions: Vec<PartitionId> = partitions.into_iter().flatten().collect();
        let bounds = self.0.broker.shards().bounds(&partitions).await?;
        Ok(bounds.into_iter().flatten().map(|bounds| bounds.end - bounds.log_start).sum())
    }
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
pub(crate) fn generated_name(entropy: &dyn Entropy) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    format!("amq.gen-{}", URL_SAFE_NO_PAD.encode(entropy.uuid().as_bytes()))
}
