//! Queues of `queue.declare` and `queue.delete`: checked in RabbitMQ's order and refused in its words
//! (`rabbit_amqqueue`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use access::Operation;
use base::LeaseGroupId;
use broker::Broker;
use broker::delivery::RemoveError;
use topology::arguments::{DEAD_LETTER_EXCHANGE, QUEUE_TYPE, sorted};
use topology::{ChangeError, Entity, NewQueue, Owner, OwnerId, Queue, QueueKind, VirtualHost};

use super::arguments::{self, module};
use super::exchanges::check_text;
use super::values::{assert_equivalent, assert_same};
use super::without_line_ends;
use crate::errors::{Exception, NamedEntity, ReplyCode, Resource};
use crate::rights::Rights;
use crate::table::{FieldTable, FieldValue};

/// The content of a `queue.declare`.
#[derive(Clone, Copy, Debug)]
pub struct QueueDeclaration<'a> {
    /// Empty: the server generates a name.
    pub name: &'a str,
    pub durable: bool,
    pub exclusive: bool,
    pub auto_delete: bool,
    pub arguments: &'a FieldTable,
}

/// A queue after its declaration.
#[derive(Clone, Debug)]
pub struct DeclareOutcome {
    pub queue: Arc<Queue>,
    /// Whether the declaration created it.
    pub is_new: bool,
}

/// `queue.declare`, not passive. `most`: limit of queues in the virtual host.
pub async fn declare(
    vhost: &VirtualHost,
    connection: OwnerId,
    declaration: QueueDeclaration<'_>,
    most: Option<u64>,
) -> Result<DeclareOutcome, Exception> {
    let arguments = with_queue_type(vhost, &declaration);
    let name = name_for(vhost, &declaration, &arguments)?;
    let new = NewQueue {
        name: &name,
        durable: declaration.durable,
        auto_delete: declaration.auto_delete,
        owner: declaration.exclusive.then_some(connection),
        arguments: &arguments,
    };
    let is_new = AtomicBool::new(false);
    let judge = |present: Option<&Queue>| match present {
        Some(present) => {
            is_new.store(false, Ordering::Relaxed);
            check_equivalent(present, &new)
        }
        None => {
            is_new.store(true, Ordering::Relaxed);
            check_limit(vhost, &name, most)?;
            let resource = Resource::queue(&name, vhost.name());
            check_text(resource, DEAD_LETTER_EXCHANGE, &arguments)?;
            let kind = arguments::check(resource, &arguments)?;
            check_properties(resource, kind, &declaration)
        }
    };
    let queue = vhost.declare_queue(new, judge).await?;
    Ok(DeclareOutcome { queue, is_new: is_new.into_inner() })
}

/// Concurrent declarations are not counted.
fn check_limit(vhost: &VirtualHost, name: &str, most: Option<u64>) -> Result<(), Exception> {
    match most {
        Some(most) if vhost.queue_count() as u64 >= most => {
            Err(Exception::precondition_failed(format!(
                "cannot declare queue '{name}': queue limit in vhost '{}' ({most}) is reached",
                vhost.name()
            )))
        }
        _ => Ok(()),
    }
}

/// Returns the queue for a passive `queue.declare`.
pub async fn check(
    vhost: &VirtualHost,
    connection: OwnerId,
    name: &str,
) -> Result<Arc<Queue>, Exception> {
    Ok(vhost.current_queue(connection, &without_line_ends(name)).await?)
}

/// Returns the queue to delete or describe it.
pub async fn find(
    vhost: &VirtualHost,
    connection: OwnerId,
    name: &str,
) -> Result<Arc<Queue>, Exception> {
    Ok(vhost.queue(connection, &without_line_ends(name)).await?)
}

/// Returns the queue with its lease group, to consume, get or purge. The first such use turns a topic into a queue,
/// which requires the right to configure it.
pub async fn ready(
    vhost: &VirtualHost,
    connection: OwnerId,
    name: &str,
    rights: &Rights,
) -> Result<Arc<Queue>, Exception> {
    let queue = find(vhost, connection, name).await?;
    if queue.group().is_none() && !queue.is_stream() {
        rights.check_queue(Operation::Alter, &queue.name, vhost.name())?;
        vhost.make_ready(&queue).await?;
    }
    Ok(queue)
}

/// Returns the queue with its lease group, for `basic.get`, which not every queue supports.
pub async fn gettable(
    vhost: &VirtualHost,
    connection: OwnerId,
    name: &str,
    rights: &Rights,
) -> Result<Arc<Queue>, Exception> {
    let queue = ready(vhost, connection, name, rights).await?;
    if queue.group().is_none() {
        let text = format!("basic.get not supported by stream queues {}", queue.resource());
        return Err(Exception::new(ReplyCode::NotImplemented, text));
    };
    if queue.kind == QueueKind::Quorum && queue.settings().single_active_consumer {
        let text = format!(
            "cannot obtain access to locked {}. basic.get operations are not supported by quorum \
             queues with single active consumer",
            queue.resource()
        );
        return Err(Exception::new(ReplyCode::ResourceLocked, text));
    }
    Ok(queue)
}

/// Retries a request whose queue turned out to be deleted: this node may have known an earlier queue of the name,
/// which was deleted and declared again on another node.
#[derive(Debug, Default)]
pub struct QueueRetry {
    /// The queue of the last attempt, and its lease group.
    last: Option<(Arc<Queue>, Option<LeaseGroupId>)>,
}

impl QueueRetry {
    /// Returns whether the queue must be looked up again. Call it with the error of an attempt at `queue`. False if
    /// the lookup found the same queue as before.
    pub async fn is_outdated(
        &mut self,
        vhost: &VirtualHost,
        queue: &Arc<Queue>,
        refused: &Exception,
    ) -> Result<bool, Exception> {
        if refused.code != ReplyCode::NotFound {
            return Ok(false);
        }
        let group = queue.group();
        if let Some((last, last_group)) = &self.last
            && Arc::ptr_eq(last, queue)
            && *last_group == group
        {
            return Ok(false);
        }
        self.last = Some((Arc::clone(queue), group));
        vhost.refresh().await.map_err(ChangeError::from)?;
        Ok(true)
    }
}

/// `queue.purge`. Returns the number of purged messages.
pub async fn purge(
    broker: &Broker,
    vhost: &VirtualHost,
    connection: OwnerId,
    name: &str,
    rights: &Rights,
) -> Result<u64, Exception> {
    let mut attempts = QueueRetry::default();
    loop {
        let queue = ready(vhost, connection, name, rights).await?;
        match purge_queue(broker, &queue).await {
            Err(refused) if attempts.is_outdated(vhost, &queue, &refused).await? => {}
            purged => return purged,
        }
    }
}

async fn purge_queue(broker: &Broker, queue: &Queue) -> Result<u64, Exception> {
    let Some(group) = queue.group() else {
        let text = format!("queue.purge not supported by stream queues {}", queue.resource());
        return Err(Exception::new(ReplyCode::NotImplemented, text));
    };
    broker.acknowledged_is_readable(queue.topic).await;
    broker.purge(group).await.map_err(|error| match error {
        RemoveError::UnknownGroup(_) => Exception::not_found(queue.resource()),
        error => Exception::new(ReplyCode::InternalError, error.to_string()),
    })
}

/// `queue.delete`. Returns the number of ready messages. A missing queue counts as deleted.
pub async fn delete(
    vhost: &VirtualHost,
    connection: OwnerId,
    name: &str,
    if_unused: bool,
    if_empty: bool,
) -> Result<u64, Exception> {
    Ok(vhost.delete_queue(connection, &without_line_ends(name), if_unused, if_empty).await?)
}

/// The name given by the client, or a generated one.
fn name_for(
    vhost: &VirtualHost,
    declaration: &QueueDeclaration<'_>,
    arguments: &FieldTable,
) -> Result<String, Exception> {
    let name = without_line_ends(declaration.name);
    if name.starts_with("amq.") {
        return Err(ChangeError::ReservedName(Entity::queue(&name, vhost.name())).into());
    }
    if !name.is_empty() {
        return Ok(name);
    }
    let kind = arguments.get(QUEUE_TYPE).and_then(FieldValue::as_str);
    match kind.and_then(QueueKind::named) {
        Some(kind @ (QueueKind::Quorum | QueueKind::Stream)) => {
            Err(Exception::precondition_failed(format!(
                "Cannot declare a server-named queue for type {}",
                module(kind)
            )))
        }
        _ => Ok(vhost.generated_queue_name()),
    }
}

/// Checks that a declaration equals the existing queue.
fn check_equivalent(present: &Queue, new: &NewQueue<'_>) -> Result<(), Exception> {
    if present.owner != new.owner.map(Owner::Here) {
        return Err(Exception::resource_locked(&present.name, &present.vhost));
    }
    let queue = present.resource();
    assert_same(queue, "durable", present.durable, new.is_durable())?;
    assert_same(queue, "auto_delete", present.auto_delete, new.auto_delete)?;
    for name in arguments::known(present.kind) {
        assert_equivalent(queue, name, present.arguments.get(name), new.arguments.get(name))?;
    }
    Ok(())
}

/// Adds the queue type to the arguments, which every queue stores.
fn with_queue_type(vhost: &VirtualHost, declaration: &QueueDeclaration<'_>) -> FieldTable {
    let mut arguments = declaration.arguments.clone();
    let named = arguments.get(QUEUE_TYPE);
    if named.is_none() || named.and_then(FieldValue::as_str) == Some("undefined") {
        let outlives = declaration.durable && !declaration.exclusive && !declaration.auto_delete;
        let kind = vhost.metadata().queue_kind(outlives);
        arguments.set(QUEUE_TYPE, kind.name());
        arguments = sorted(&arguments);
    }
    arguments
}

/// Quorum queues and streams must be durable, not exclusive and not auto-delete.
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
