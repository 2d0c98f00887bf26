//! The start: documents become memory, and what a restart or a crash leaves over is taken away.
//!
//! | found | becomes |
//! | --- | --- |
//! | a queue that does not survive a restart | its topic and its document go |
//! | a queue whose topic is not there, or is another one | the document goes: it was being made or deleted |
//! | a queue without a lease group | it gets one: it was being made |
//! | bindings whose ends are not both there | the document goes |
//! | entities of a vhost that is not there | they go: it was being deleted |
//!
//! Nothing else is taken away. A document is the topology's own by its space, and a topic by its
//! UUID, which the queue's document has: one that got the name later is another protocol's, and is a
//! queue as it is. What cannot be understood, such as a type of exchange that a later version made,
//! stops the start and is left as it is. The first row holds for a node alone: where others serve the
//! same state, a queue without an owner that is there is only known to be left over by whoever had
//! its owner.

use std::sync::Arc;

use base::{HashMap, TopicId};
use broker::Broker;
use documents::store::{delete_all, read_all};
use documents::{MalformedDocument, StoreError, Stored};
use serde::de::DeserializeOwned;

use crate::Destination;
use crate::exchange::{Exchange, ExchangeKind, NewExchange};
use crate::names::DEFAULT_VHOST;
use crate::policy::{Policy, PolicyDefinition, PolicyError, PolicyScope, Subject};
use crate::queue::{Queue, queue_name};
use crate::settings::QueueSettings;
use crate::store::{
    BINDINGS, BindingsDocument, EXCHANGES, ExchangeDocument, QUEUES, QueueDocument, VHOSTS,
    VirtualHostDocument, policy_space,
};
use crate::topics;
use crate::virtual_host::{Shared, VirtualHost};

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Malformed(#[from] MalformedDocument),
    #[error("document {name:?} in {space} is of no use: {reason}")]
    Inconsistent { space: &'static str, name: String, reason: String },
    #[error("policy {name:?} does not hold any more: {source}")]
    Policy { name: String, source: Box<PolicyError> },
    #[error("what is left over could not be taken away: {0}")]
    Clearing(#[from] StoreError),
}

/// A document as it was found.
struct Found<T> {
    stored: Stored,
    parts: Vec<String>,
    body: T,
}

impl<T> Found<T> {
    fn part(&self, place: usize) -> Result<&str, OpenError> {
        let part = self.parts.get(place).map(String::as_str);
        part.ok_or_else(|| self.inconsistent("its name has too few parts"))
    }

    fn inconsistent(&self, reason: &str) -> OpenError {
        let (space, name) = (self.stored.space, self.stored.name.clone());
        OpenError::Inconsistent { space, name, reason: reason.to_owned() }
    }
}

fn read<T: DeserializeOwned>(
    broker: &Broker,
    space: &'static str,
) -> Result<Vec<Found<T>>, OpenError> {
    let found = read_all::<T>(broker, space)?.into_iter();
    let in_parts = found.map(|documents::Found { stored, body }| {
        let parts = documents::split(&stored.name);
        Found { stored, parts, body }
    });
    Ok(in_parts.collect())
}

/// What is left over.
#[derive(Default)]
struct Leftovers {
    documents: Vec<Stored>,
    topics: Vec<TopicId>,
}

pub(crate) async fn load(
    broker: &Broker,
    shared: &Shared,
) -> Result<HashMap<Arc<str>, VirtualHost>, OpenError> {
    let mut vhosts = HashMap::default();
    vhosts.insert(Arc::from(DEFAULT_VHOST), VirtualHost::new(DEFAULT_VHOST, broker, shared));
    for found in read::<VirtualHostDocument>(broker, VHOSTS)? {
        let name = found.part(0)?;
        vhosts.insert(Arc::from(name), VirtualHost::new(name, broker, shared));
    }
    let mut leftovers = Leftovers::default();
    for scope in [PolicyScope::User, PolicyScope::Operator] {
        load_policies(broker, &vhosts, scope, &mut leftovers)?;
    }
    load_exchanges(broker, &vhosts, &mut leftovers)?;
    let queues = load_queues(broker, &vhosts, shared, &mut leftovers)?;
    load_bindings(broker, &vhosts, &mut leftovers)?;
    clear(broker, leftovers).await?;
    for some in queues.chunks(MADE_AT_ONCE) {
        let made = some.iter().map(|(vhost, queue)| vhost.ensure_group(queue));
        futures_util::future::try_join_all(made).await?;
    }
    queues.iter().for_each(|(_, queue)| shared.expiry.watch(queue));
    for vhost in vhosts.values() {
        // A policy may have changed right before a crash, and not reached every queue.
        vhost.apply_policies().await?;
    }
    Ok(vhosts)
}

/// Lease groups that are made in one go.
const MADE_AT_ONCE: usize = 1_024;

type Vhosts = HashMap<Arc<str>, VirtualHost>;

fn load_policies(
    broker: &Broker,
    vhosts: &Vhosts,
    scope: PolicyScope,
    leftovers: &mut Leftovers,
) -> Result<(), OpenError> {
    for found in read::<PolicyDefinition>(broker, policy_space(scope))? {
        let Some(vhost) = vhosts.get(found.part(0)?) else {
            leftovers.documents.push(found.stored);
            continue;
        };
        let name = found.part(1)?.to_owned();
        let mut policy = Policy::new(scope, &name, found.body)
            .map_err(|source| OpenError::Policy { name, source: source.into() })?;
        policy.version = found.stored.version;
        vhost.entities().write().policies.set(scope, policy);
    }
    Ok(())
}

fn load_exchanges(
    broker: &Broker,
    vhosts: &Vhosts,
    leftovers: &mut Leftovers,
) -> Result<(), OpenError> {
    for found in read::<ExchangeDocument>(broker, EXCHANGES)? {
        let Some(vhost) = vhosts.get(found.part(0)?) else {
            leftovers.documents.push(found.stored);
            continue;
        };
        let kind = &found.body.kind;
        let kind = ExchangeKind::named(kind)
            .ok_or_else(|| found.inconsistent(&format!("unknown exchange type '{kind}'")))?;
        let new = NewExchange {
            name: found.part(1)?,
            kind,
            durable: true,
            auto_delete: found.body.auto_delete,
            internal: found.body.internal,
            arguments: &found.body.arguments,
        };
        let exchange = Exchange::new(vhost.shared_name(), &new, found.stored.version);
        vhost.entities().write().add_exchange(exchange);
    }
    Ok(())
}

fn load_queues(
    broker: &Broker,
    vhosts: &Vhosts,
    shared: &Shared,
    leftovers: &mut Leftovers,
) -> Result<Vec<(VirtualHost, Arc<Queue>)>, OpenError> {
    let mut queues = Vec::new();
    for found in read::<QueueDocument>(broker, QUEUES)? {
        let name = found.part(1)?;
        let topic = topics::named(broker, found.body.topic(name));
        let topic = topic.filter(|topic| found.body.is_of(&topic.uuid));
        let vhost = vhosts.get(found.part(0)?);
        let (Some(vhost), Some(topic), true) = (vhost, &topic, found.body.durable) else {
            leftovers.topics.extend(topic.map(|topic| topic.id));
            leftovers.documents.push(found.stored);
            continue;
        };
        let kind = found.body.kind();
        let mut entities = vhost.entities().write();
        let policies = entities.policies.find(Subject::Queue(name, kind));
        let settings = QueueSettings::new(kind, &found.body.arguments, &policies);
        let queue = Arc::new(Queue::new(
            vhost.shared_name(),
            queue_name(name, &topic.name),
            (topic.id, Arc::clone(&topic.name)),
            kind,
            (true, found.body.auto_delete),
            None,
            shared.values.arguments(found.body.arguments.clone()),
            true,
            shared.values.settings(settings),
        ));
        topic.group.iter().for_each(|group| queue.set_group(*group));
        entities.add_queue(Arc::clone(&queue), found.stored.version);
        queues.push((vhost.clone(), queue));
    }
    Ok(queues)
}

fn load_bindings(
    broker: &Broker,
    vhosts: &Vhosts,
    leftovers: &mut Leftovers,
) -> Result<(), OpenError> {
    for found in read::<BindingsDocument>(broker, BINDINGS)? {
        let (source, name) = (found.part(1)?, found.part(3)?);
        let destination = match found.part(2)? {
            "queue" => Destination::Queue(Arc::from(name)),
            "exchange" => Destination::Exchange(Arc::from(name)),
            _ => return Err(found.inconsistent("it leads neither to a queue nor an exchange")),
        };
        let chunk = found.part(4)?.parse();
        let chunk = chunk.map_err(|_| found.inconsistent("it has no number"))?;
        let restored = vhosts.get(found.part(0)?).is_some_and(|vhost| {
            if let Destination::Queue(name) = &destination {
                vhost.adopt(name);
            }
            let (body, version) = (found.body.clone(), found.stored.version);
            vhost.entities().write().restore(source, &destination, chunk, body, version)
        });
        if !restored {
            leftovers.documents.push(found.stored);
        }
    }
    Ok(())
}

/// Topics first: a document without its topic is found again, a topic without its document is not.
async fn clear(broker: &Broker, leftovers: Leftovers) -> Result<(), OpenError> {
    for some in leftovers.topics.chunks(MADE_AT_ONCE) {
        let deleted = some.iter().map(|topic| topics::delete(broker, *topic));
        futures_util::future::try_join_all(deleted).await?;
    }
    Ok(delete_all(broker, &leftovers.documents).await?)
}
