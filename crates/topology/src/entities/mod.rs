//! The entities of one vhost in memory: exchanges, queues and bindings, and the network that routes messages. Pure:
//! it mirrors the documents, and uses neither disk nor broker.

mod bindings;
pub(crate) mod removal;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::{HashMap, HashSet, TopicId};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use routing::{BindingTarget, Network, NodeOptions, SinkId};
use tasks::{Task, TaskGuard};
use values::Table;

use crate::arguments::ALTERNATE_EXCHANGE;
use crate::exchange::Destination;
use crate::exchange::Exchange;
use crate::matched::matched;
use crate::policy::{Policies, Subject};
use crate::queue::Queue;
pub use bindings::Binding;
pub(crate) use bindings::BindingPlan;
use bindings::BindingSet;

#[derive(Debug)]
pub(crate) struct Entities {
    pub(crate) vhost: Arc<str>,
    /// Its sinks are the queues.
    pub(crate) network: Network<QueueEntry>,
    pub(crate) exchanges: HashMap<Arc<str>, Entry>,
    pub(crate) pairs: HashMap<(Arc<str>, Destination), BindingSet>,
    /// Queue of each topic.
    topics: HashMap<TopicId, SinkId>,
    pub(crate) policies: Policies,
}

/// Entities shared by sessions.
#[derive(Debug)]
pub(crate) struct SharedEntities(RwLock<Entities>);

/// A write guard. Half a change must not be used for routing: a panic during a change ends the process, although a
/// session makes the change.
pub(crate) struct Change<'a> {
    entities: RwLockWriteGuard<'a, Entities>,
    _entered: TaskGuard,
}

impl SharedEntities {
    pub(crate) fn new(entities: Entities) -> Self {
        Self(RwLock::new(entities))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Entities> {
        self.0.read()
    }

    pub(crate) fn write(&self) -> Change<'_> {
        let change =
            Change { entities: self.0.write(), _entered: tasks::enter(Task::AmqpTopology) };
        tasks::inject::point(Task::AmqpTopology);
        change
    }
}

impl Deref for Change<'_> {
    type Target = Entities;

    fn deref(&self) -> &Entities {
        &self.entities
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Entities {
        &mut self.entities
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) exchange: Exchange,
    /// Destinations bound to this exchange.
    pub(crate) destinations: HashSet<Destination>,
    /// Exchanges that this exchange is bound to.
    pub(crate) sources: HashSet<Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct QueueEntry {
    pub(crate) queue: Arc<Queue>,
    /// Exchanges that the queue is bound to. Most queues are bound to the default exchange only.
    pub(crate) sources: Option<Box<HashSet<Arc<str>>>>,
    /// Version of its document; 0 if it has none.
    pub(crate) version: u64,
}

impl Entities {
    pub(crate) fn new(vhost: Arc<str>) -> Self {
        Self {
            vhost,
            network: Network::new(),
            exchanges: HashMap::default(),
            pairs: HashMap::default(),
            topics: HashMap::default(),
            policies: Policies::default(),
        }
    }

    // -------------------------------------------------------------------------- exchanges

    pub(crate) fn exchange(&self, name: &str) -> Option<&Exchange> {
        self.exchanges.get(name).map(|entry| &entry.exchange)
    }

    pub(crate) fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.values().map(|entry| &entry.exchange)
    }

    /// Adds an exchange whose name is free, and its node in the network.
    pub(crate) fn add_exchange(&mut self, mut exchange: Exchange) {
        let kind =
            if exchange.name.is_empty() { routing::Kind::Names } else { exchange.matching() };
        exchange.node = self.network.add_node(&exchange.name, &kind, NodeOptions::default());
        let name = Arc::clone(&exchange.name);
        let entry =
            Entry { exchange, destinations: HashSet::default(), sources: HashSet::default() };
        self.exchanges.insert(Arc::clone(&name), entry);
        self.apply_policy_to_exchange(&name);
    }

    /// Applies policies to an exchange. All that a policy can set is an alternate exchange, if the arguments have
    /// none.
    pub(crate) fn apply_policy_to_exchange(&mut self, name: &str) {
        let Some(entry) = self.exchanges.get_mut(name) else { return };
        let exchange = &mut entry.exchange;
        let policies = self.policies.find(Subject::Exchange(name));
        let policy = policies.definition.get(ALTERNATE_EXCHANGE).and_then(|value| value.as_str());
        exchange.alternate = exchange.alternate_argument().or(policy).map(Arc::from);
        exchange.policy = policies.policy.clone();
        exchange.operator_policy = policies.operator_policy.clone();
        let options =
            NodeOptions { alternate: exchange.alternate.clone(), defers: exchange.delays() };
        self.network.set_options(exchange.node, options);
    }

    /// Returns whether the exchange has bindings.
    pub(crate) fn exchange_in_use(&self, name: &str) -> bool {
        self.exchanges.get(name).is_some_and(|entry| !entry.destinations.is_empty())
    }

    /// Removes an exchange and all bindings to and from it.
    pub(crate) fn remove_exchange(&mut self, name: &str) {
        let Some(entry) = self.exchanges.remove(name) else { return };
        let name = &entry.exchange.name;
        for destination in entry.destinations {
            if let Some(sources) = self.sources_of(&destination) {
                sources.remove(name);
            }
            self.pairs.remove(&(Arc::clone(name), destination));
        }
        let destination = Destination::Exchange(Arc::clone(name));
        let target = BindingTarget::Node(entry.exchange.node);
        for source in entry.sources {
            self.detach(&source, &destination, target);
        }
        self.network.remove_node(entry.exchange.node);
    }

    /// Removes all bindings of `source` to a removed destination.
    fn detach(&mut self, source: &Arc<str>, destination: &Destination, target: BindingTarget) {
        let pair = self.pairs.remove(&(Arc::clone(source), destination.clone()));
        let Some((entry, known)) = self.exchanges.get_mut(source).zip(pair) else { return };
        entry.destinations.remove(destination);
        let (kind, node) = (entry.exchange.matching(), entry.exchange.node);
        for binding in known.bindings.keys() {
            // The binding was valid when it was created.
            let arguments = Table::decode(&binding.arguments).unwrap_or_default();
            if let Ok(matched) = matched(&kind, &binding.key, &arguments) {
                self.network.unbind(node, matched.arguments(&binding.key), target);
            }
        }
    }

    pub(crate) fn sources_of(
        &mut self,
        destination: &Destination,
    ) -> Option<&mut HashSet<Arc<str>>> {
        match destination {
            Destination::Queue(name) => {
                let sink = self.network.sink_named(name)?;
                Some(self.network.sink_mut(sink)?.sources.get_or_insert_default())
            }
            Destination::Exchange(name) => {
                self.exchanges.get_mut(name).map(|entry| &mut entry.sources)
            }
        }
    }

    // ----------------------------------------------------------------------------- queues

    pub(crate) fn queue(&self, name: &str) -> Option<&Arc<Queue>> {
        self.sink(self.network.sink_named(name)?)
    }

    fn sink(&self, sink: SinkId) -> Option<&Arc<Queue>> {
        self.network.sink(sink).map(|entry| &entry.queue)
    }

    pub(crate) fn queue_entry(&self, name: &str) -> Option<&QueueEntry> {
        self.network.sink(self.network.sink_named(name)?)
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.network.sinks().map(|entry| &entry.queue)
    }

    pub(crate) fn queue_count(&self) -> usize {
        // Each queue has one topic.
        self.topics.len()
    }

    pub(crate) fn queue_of_topic(&self, topic: TopicId) -> Option<&Arc<Queue>> {
        self.sink(*self.topics.get(&topic)?)
    }

    pub(crate) fn add_queue(&mut self, queue: Arc<Queue>, version: u64) {
        let (name, topic) = (Arc::clone(&queue.name), queue.topic);
        let sink = self.network.add_sink(name, QueueEntry { queue, sources: None, version });
        self.topics.insert(topic, sink);
    }

    /// Removes a queue and all bindings to it.
    pub(crate) fn remove_queue(&mut self, name: &str) -> Option<Arc<Queue>> {
        let sink = self.network.sink_named(name)?;
        let entry = self.network.sink_mut(sink)?;
        let (queue, sources) = (Arc::clone(&entry.queue), entry.sources.take());
        let destination = Destination::Queue(Arc::clone(&queue.name));
        for source in sources.into_iter().flat_map(|sources| *sources) {
            self.detach(&source, &destination, BindingTarget::Sink(sink));
        }
        self.network.remove_sink(sink);
        self.topics.remove(&queue.topic);
        queue.set_deleted();
        Some(queue)
    }
}
