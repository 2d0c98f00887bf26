//! The start: documents become memory, and what a restart or a crash leaves over is taken away.
//!
//! | found | becomes |
//! | --- | --- |
//! | a queue that does not survive a restart | its topic and its document go |
//! | a queue whose topic is not there, or is another one | the document goes: it was being made or deleted |
//! | a queue without a lease group | it gets one: it was being made |
//! | bindings whose ends are not both there | the document goes |
//! | entities of a vhost that is not there | they go: it was being deleted |

use std::sync::Arc;

use base::{HashMap, LeaseGroupId, TopicId};
use broker::{Broker, Document, ExecuteError, Refusal};
use serde::de::DeserializeOwned;

use super::Destination;
use super::documents::{
    self, BINDINGS, BindingsDocument, EXCHANGES, ExchangeDocument, QUEUES, QueueDocument, Stored,
    VHOSTS,
};
use super::exchange::{Exchange, ExchangeKind};
use super::policy::{Policy, PolicyDefinition, PolicyError, PolicyScope, Subject};
use super::queue::{Queue, queue_name};
use super::settings::QueueSettings;
use super::vhost::{Shared, Vhost, policy_space};
use crate::errors::Exception;
use crate::names::DEFAULT_VHOST;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("document {name:?} in {space} cannot be read: {source}")]
    Malformed { space: &'static str, name: String, source: serde_json::Error },
    #[error("document {name:?} in {space} is of no use: {reason}")]
    Inconsistent { space: &'static str, name: String, reason: String },
    #[error("policy {name:?} does not hold any more: {source}")]
    Policy { name: String, source: PolicyError },
    #[error("what is left over could not be taken away: {0}")]
    Clearing(#[from] Exception),
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
    let raw = documents::all(broker, space);
    let decode = |(name, Document { version, body }): (String, Document)| {
        let parts = documents::parts(&name);
        match serde_json::from_slice(&body) {
            Ok(body) => Ok(Found { stored: Stored { space, name, version }, parts, body }),
            Err(source) => Err(OpenError::Malformed { space, name, source }),
        }
    };
    raw.into_iter().map(decode).collect()
}

/// What is left over.
#[derive(Default)]
struct Leftovers {
    documents: Vec<Stored>,
    topics: Vec<TopicId>,
}

pub(super) async fn load(
    broker: &Broker,
    shared: &Shared,
) -> Result<HashMap<Arc<str>, Vhost>, OpenError> {
    let mut vhosts = HashMap::default();
    vhosts.insert(Arc::from(DEFAULT_VHOST), Vhost::new(DEFAULT_VHOST, broker, shared));
    for found in read::<documents::VhostDocument>(broker, VHOSTS)? {
        let name = found.part(0)?;
        vhosts.insert(Arc::from(name), Vhost::new(name, broker, shared));
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

type Vhosts = HashMap<Arc<str>, Vhost>;

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
            .map_err(|source| OpenError::Policy { name, source })?;
        policy.version = found.stored.version;
        vhost.topology().write().policies.set(scope, policy);
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
        let kind = ExchangeKind::named(&found.body.kind)
            .map_err(|exception| found.inconsistent(&exception.explanation))?;
        let name = Arc::from(found.part(1)?);
        vhost.topology().write().add_exchange(Exchange {
            vhost: Arc::from(vhost.name()),
            name,
            kind,
            durable: true,
            auto_delete: found.body.auto_delete,
            internal: found.body.internal,
            arguments: found.body.arguments,
            policy: None,
            operator_policy: None,
            node: routing::NodeId(0),
            generation: 0,
            version: found.stored.version,
            alternate: None,
        });
    }
    Ok(())
}

fn load_queues(
    broker: &Broker,
    vhosts: &Vhosts,
    shared: &Shared,
    leftovers: &mut Leftovers,
) -> Result<Vec<(Vhost, Arc<Queue>)>, OpenError> {
    let mut queues = Vec::new();
    for found in read::<QueueDocument>(broker, QUEUES)? {
        let name = found.part(1)?;
        let topic = topic_of(broker, &found.body, name);
        let vhost = vhosts.get(found.part(0)?);
        let (Some(vhost), Some((topic, topic_name, group)), true) =
            (vhost, &topic, found.body.durable)
        else {
            leftovers.topics.extend(topic.map(|(topic, ..)| topic));
            leftovers.documents.push(found.stored);
            continue;
        };
        let kind = found.body.kind();
        let mut topology = vhost.topology().write();
        let policies = topology.policies.find(Subject::Queue(name, kind));
        let settings = QueueSettings::new(kind, &found.body.arguments, &policies);
        let queue = Arc::new(Queue::new(
            vhost.shared_name(),
            queue_name(name, topic_name),
            (*topic, Arc::clone(topic_name)),
            kind,
            (true, found.body.auto_delete),
            None,
            shared.values.arguments(found.body.arguments.clone()),
            true,
            shared.values.settings(settings),
        ));
        group.iter().for_each(|group| queue.set_group(*group));
        topology.add_queue(Arc::clone(&queue), found.stored.version);
        queues.push((vhost.clone(), queue));
    }
    Ok(queues)
}

/// The topic of a queue, with its name and the lease group that the queue's consumers share.
fn topic_of(
    broker: &Broker,
    document: &QueueDocument,
    queue: &str,
) -> Option<(TopicId, Arc<str>, Option<LeaseGroupId>)> {
    let catalog = broker.catalog();
    let topic = catalog.topic_named(document.topic(queue))?;
    let group = catalog.lease_group_named(topic.id(), base::MAIN_LEASE_GROUP);
    let same = document.is_of(&topic.uuid());
    same.then(|| (topic.id(), Arc::clone(topic.name()), group.map(|group| group.id())))
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
            vhost.topology().write().restore(source, &destination, chunk, body, version)
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
        let deleted = some.iter().map(|topic| broker.delete_topic(*topic));
        for deleted in futures_util::future::join_all(deleted).await {
            match deleted {
                Ok(()) | Err(ExecuteError::Refused(Refusal::UnknownTopic { .. })) => {}
                Err(other) => return Err(documents::refused(other).into()),
            }
        }
    }
    Ok(documents::delete_all(broker, &leftovers.documents).await?)
}
