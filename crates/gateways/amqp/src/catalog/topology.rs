//! The entities of one vhost in memory: who exists, who is bound to whom, and the network that
//! messages are routed through. Pure: it says what changes and which documents follow, and touches
//! neither disk nor broker.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::{HashMap, HashSet, TopicId};
use bytes::Bytes;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use routing::{Network, NodeOptions, SinkId, Target};
use tasks::{Entered, Task};

use super::Destination;
use super::documents::{self, BINDINGS_PER_DOCUMENT, BindingDocument, BindingsDocument, Stored};
use super::exchange::{Exchange, Matched, matched};
use super::policy::{Policies, Subject};
use super::queue::Queue;
use crate::codec::table::{FieldTable, FieldValue};

#[derive(Debug)]
pub(super) struct Topology {
    pub(super) vhost: Arc<str>,
    /// Its sinks are the queues.
    pub(super) network: Network<QueueEntry>,
    exchanges: HashMap<Arc<str>, Entry>,
    pairs: HashMap<(Arc<str>, Destination), Pair>,
    /// Which queue has this topic.
    topics: HashMap<TopicId, SinkId>,
    pub(super) policies: Policies,
    next_generation: u64,
}

/// A topology that sessions share.
#[derive(Debug)]
pub(super) struct SharedTopology(RwLock<Topology>);

/// Half a change is something that nobody may route by: a panic in it ends the process, though it
/// is a session that makes the change.
pub(super) struct Change<'a> {
    topology: RwLockWriteGuard<'a, Topology>,
    _entered: Entered,
}

impl SharedTopology {
    pub(super) fn new(topology: Topology) -> Self {
        Self(RwLock::new(topology))
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, Topology> {
        self.0.read()
    }

    pub(super) fn write(&self) -> Change<'_> {
        let change =
            Change { topology: self.0.write(), _entered: tasks::enter(Task::AmqpTopology) };
        tasks::inject::point(Task::AmqpTopology);
        change
    }
}

impl Deref for Change<'_> {
    type Target = Topology;

    fn deref(&self) -> &Topology {
        &self.topology
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut Topology {
        &mut self.topology
    }
}

#[derive(Debug)]
struct Entry {
    exchange: Exchange,
    /// What is bound to it.
    destinations: HashSet<Destination>,
    /// The exchanges that it is bound to.
    sources: HashSet<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct QueueEntry {
    pub(super) queue: Arc<Queue>,
    /// The exchanges that it is bound to. Most queues are bound to none but the default one.
    sources: Option<Box<HashSet<Arc<str>>>>,
    /// Of its document; 0 if it has none.
    version: u64,
}

/// A binding besides its two ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct BindingKey {
    key: Box<str>,
    /// Encoded, in the order of names.
    arguments: Bytes,
}

/// All bindings of one exchange to one destination.
#[derive(Debug, Default)]
struct Pair {
    /// And the document that each is in.
    bindings: HashMap<Arc<BindingKey>, u32>,
    /// Documents by number; none where the bindings are not kept.
    chunks: BTreeMap<u32, Chunk>,
}

#[derive(Debug, Default)]
struct Chunk {
    bindings: Vec<Arc<BindingKey>>,
    version: u64,
}

/// A binding that is about to be made or removed.
#[derive(Debug)]
pub(super) struct BindingPlan {
    pub(super) source: Arc<str>,
    pub(super) destination: Destination,
    binding: Arc<BindingKey>,
    matched: Matched,
    chunk: u32,
    /// The document as it will be; `None` where the binding is not kept.
    pub(super) document: Option<(String, BindingsDocument)>,
    /// The document as it is.
    pub(super) present: Option<Stored>,
    generations: (u64, u64),
}

/// What became of a removal: documents to delete, and queues that are out of the way.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub(super) documents: Vec<Stored>,
    /// Exchanges that went because nothing was bound to them any more.
    pub(super) auto_deleted: Vec<Arc<str>>,
}

/// A binding as it is listed.
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    pub source: Arc<str>,
    pub destination: Destination,
    pub key: String,
    pub arguments: FieldTable,
}

impl Topology {
    pub(super) fn new(vhost: Arc<str>) -> Self {
        Self {
            vhost,
            network: Network::new(),
            exchanges: HashMap::default(),
            pairs: HashMap::default(),
            topics: HashMap::default(),
            policies: Policies::default(),
            next_generation: 1,
        }
    }

    // -------------------------------------------------------------------------- exchanges

    pub(super) fn exchange(&self, name: &str) -> Option<&Exchange> {
        self.exchanges.get(name).map(|entry| &entry.exchange)
    }

    pub(super) fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.exchanges.values().map(|entry| &entry.exchange)
    }

    /// Takes an exchange whose name is free. Its place in the network is made here.
    pub(super) fn add_exchange(&mut self, mut exchange: Exchange) {
        self.next_generation += 1;
        exchange.generation = self.next_generation;
        let kind =
            if exchange.name.is_empty() { routing::Kind::Names } else { exchange.matching() };
        exchange.node = self.network.add_node(&exchange.name, &kind, NodeOptions::default());
        let name = Arc::clone(&exchange.name);
        let entry =
            Entry { exchange, destinations: HashSet::default(), sources: HashSet::default() };
        self.exchanges.insert(Arc::clone(&name), entry);
        self.apply_policy_to_exchange(&name);
    }

    /// What an argument does not say, a policy may: that is all a policy does to an exchange.
    pub(super) fn apply_policy_to_exchange(&mut self, name: &str) {
        let Some(entry) = self.exchanges.get_mut(name) else { return };
        let exchange = &mut entry.exchange;
        let policies = self.policies.find(Subject::Exchange(name));
        let argument = exchange
            .arguments
            .get(super::exchange::ALTERNATE_EXCHANGE)
            .and_then(FieldValue::as_str);
        let policy =
            policies.definition.get(super::exchange::ALTERNATE_EXCHANGE).and_then(|v| v.as_str());
        exchange.alternate = argument.or(policy).map(Arc::from);
        exchange.policy = policies.policy.clone();
        exchange.operator_policy = policies.operator_policy.clone();
        let options =
            NodeOptions { alternate: exchange.alternate.clone(), defers: exchange.delays() };
        self.network.set_options(exchange.node, options);
    }

    /// Something is bound to it.
    pub(super) fn exchange_in_use(&self, name: &str) -> bool {
        self.exchanges.get(name).is_some_and(|entry| !entry.destinations.is_empty())
    }

    pub(super) fn remove_exchange(&mut self, name: &str) -> Removed {
        let mut removed = Removed::default();
        let mut waiting = vec![Arc::from(name)];
        while let Some(name) = waiting.pop() {
            self.remove_one_exchange(&name, &mut removed, &mut waiting);
        }
        removed
    }

    fn remove_one_exchange(
        &mut self,
        name: &Arc<str>,
        removed: &mut Removed,
        orphans: &mut Vec<Arc<str>>,
    ) {
        let Some(entry) = self.exchanges.remove(name) else { return };
        for destination in entry.destinations {
            let pair = (Arc::clone(name), destination);
            self.drop_pair(&pair, removed);
            self.sources_of(&pair.1).map(|sources| sources.remove(name));
        }
        let destination = Destination::Exchange(Arc::clone(name));
        let target = Target::Node(entry.exchange.node);
        for source in entry.sources {
            self.detach(&source, &destination, target, removed, orphans);
        }
        if entry.exchange.version != 0 {
            removed.documents.push(Stored {
                space: documents::EXCHANGES,
                name: documents::name(&[&self.vhost, name]),
                version: entry.exchange.version,
            });
        }
        self.network.remove_node(entry.exchange.node);
    }

    /// Takes away all bindings of `source` to a destination that goes.
    fn detach(
        &mut self,
        source: &Arc<str>,
        destination: &Destination,
        target: Target,
        removed: &mut Removed,
        orphans: &mut Vec<Arc<str>>,
    ) {
        let pair = (Arc::clone(source), destination.clone());
        if let Some((entry, known)) = self.exchanges.get(source).zip(self.pairs.get(&pair)) {
            let (kind, node) = (entry.exchange.matching(), entry.exchange.node);
            for binding in known.bindings.keys() {
                // It was understood when it was made.
                let arguments = FieldTable::decode(&binding.arguments).unwrap_or_default();
                if let Ok(matched) = matched(&kind, &binding.key, &arguments) {
                    self.network.unbind(node, matched.arguments(&binding.key), target);
                }
            }
        }
        self.drop_pair(&pair, removed);
        self.forget_destination(source, destination, removed, orphans);
    }

    fn drop_pair(&mut self, pair: &(Arc<str>, Destination), removed: &mut Removed) {
        let Some(known) = self.pairs.remove(pair) else { return };
        for (number, chunk) in known.chunks {
            removed.documents.push(Stored {
                space: documents::BINDINGS,
                name: documents::bindings_name(&self.vhost, &pair.0, &pair.1, number),
                version: chunk.version,
            });
        }
    }

    /// The last binding of `source` to a destination is gone; maybe its very last.
    fn forget_destination(
        &mut self,
        source: &Arc<str>,
        destination: &Destination,
        removed: &mut Removed,
        orphans: &mut Vec<Arc<str>>,
    ) {
        let Some(entry) = self.exchanges.get_mut(source) else { return };
        let had = entry.destinations.remove(destination);
        if had && entry.destinations.is_empty() && entry.exchange.auto_delete {
            removed.auto_deleted.push(Arc::clone(source));
            orphans.push(Arc::clone(source));
        }
    }

    fn sources_of(&mut self, destination: &Destination) -> Option<&mut HashSet<Arc<str>>> {
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

    pub(super) fn queue(&self, name: &str) -> Option<&Arc<Queue>> {
        self.sink(self.network.sink_named(name)?)
    }

    fn sink(&self, sink: SinkId) -> Option<&Arc<Queue>> {
        self.network.sink(sink).map(|entry| &entry.queue)
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.network.sinks().map(|entry| &entry.queue)
    }

    pub(super) fn queue_of_topic(&self, topic: TopicId) -> Option<&Arc<Queue>> {
        self.sink(*self.topics.get(&topic)?)
    }

    pub(super) fn add_queue(&mut self, queue: Arc<Queue>, version: u64) {
        let (name, topic) = (Arc::clone(&queue.name), queue.topic);
        let sink = self.network.add_sink(name, QueueEntry { queue, sources: None, version });
        self.topics.insert(topic, sink);
    }

    pub(super) fn remove_queue(&mut self, name: &str) -> Option<Removed> {
        let sink = self.network.sink_named(name)?;
        let entry = self.network.sink_mut(sink)?;
        let (queue, version) = (Arc::clone(&entry.queue), entry.version);
        let sources = entry.sources.take();
        let mut removed = Removed::default();
        let mut orphans = Vec::new();
        let destination = Destination::Queue(Arc::clone(&queue.name));
        for source in sources.into_iter().flat_map(|sources| *sources) {
            let target = Target::Sink(sink);
            self.detach(&source, &destination, target, &mut removed, &mut orphans);
        }
        while let Some(orphan) = orphans.pop() {
            self.remove_one_exchange(&orphan, &mut removed, &mut orphans);
        }
        self.network.remove_sink(sink);
        self.topics.remove(&queue.topic);
        queue.set_deleted();
        if version != 0 {
            removed.documents.push(Stored {
                space: documents::QUEUES,
                name: documents::name(&[&self.vhost, name]),
                version,
            });
        }
        Some(removed)
    }

    // --------------------------------------------------------------------------- bindings

    pub(super) fn bindings(&self) -> Vec<Binding> {
        let listed = self.pairs.iter().flat_map(|((source, destination), pair)| {
            pair.bindings.keys().map(|binding| Binding {
                source: Arc::clone(source),
                destination: destination.clone(),
                key: binding.key.to_string(),
                arguments: FieldTable::decode(&binding.arguments).unwrap_or_default(),
            })
        });
        listed.collect()
    }

    /// What making this binding takes; `None`: it is there. Both ends exist.
    pub(super) fn plan_bind(
        &self,
        source: &Exchange,
        destination: &Destination,
        key: &str,
        arguments: &FieldTable,
        matched: Matched,
    ) -> Option<BindingPlan> {
        let binding = BindingKey { key: key.into(), arguments: arguments.to_bytes() };
        let pair = self.pairs.get(&(Arc::clone(&source.name), destination.clone()));
        if pair.is_some_and(|pair| pair.bindings.contains_key(&binding)) {
            return None;
        }
        let room = pair.and_then(|pair| {
            let room = |(_, chunk): &(&u32, &Chunk)| chunk.bindings.len() < BINDINGS_PER_DOCUMENT;
            pair.chunks.iter().rev().find(room).map(|(number, _)| *number)
        });
        let next = || pair.and_then(|pair| pair.chunks.keys().last()).map_or(0, |last| last + 1);
        let chunk = room.unwrap_or_else(next);
        let mut plan = self.plan(source, destination, Arc::new(binding), matched, chunk);
        if let Some((_, document)) = &mut plan.document {
            document
                .bindings
                .push(BindingDocument { key: key.into(), arguments: arguments.clone() });
        }
        Some(plan)
    }

    /// What removing this binding takes; `None`: it is not there.
    pub(super) fn plan_unbind(
        &self,
        source: &Exchange,
        destination: &Destination,
        key: &str,
        arguments: &FieldTable,
        matched: Matched,
    ) -> Option<BindingPlan> {
        let binding = BindingKey { key: key.into(), arguments: arguments.to_bytes() };
        let pair = self.pairs.get(&(Arc::clone(&source.name), destination.clone()))?;
        let chunk = *pair.bindings.get(&binding)?;
        let mut plan = self.plan(source, destination, Arc::new(binding), matched, chunk);
        if let Some((_, document)) = &mut plan.document {
            let encoded = &plan.binding.arguments;
            document
                .bindings
                .retain(|kept| kept.key != key || kept.arguments.to_bytes() != *encoded);
        }
        Some(plan)
    }

    fn plan(
        &self,
        source: &Exchange,
        destination: &Destination,
        binding: Arc<BindingKey>,
        matched: Matched,
        chunk: u32,
    ) -> BindingPlan {
        let pair = self.pairs.get(&(Arc::clone(&source.name), destination.clone()));
        let document = (source.durable && self.is_durable(destination)).then(|| {
            let name = documents::bindings_name(&self.vhost, &source.name, destination, chunk);
            let held = pair.and_then(|pair| pair.chunks.get(&chunk));
            let held = held.into_iter().flat_map(|held| &held.bindings).map(|binding| {
                let arguments = FieldTable::decode(&binding.arguments).unwrap_or_default();
                BindingDocument { key: binding.key.to_string(), arguments }
            });
            (name, BindingsDocument { bindings: held.collect() })
        });
        let present = document.as_ref().and_then(|(name, _)| {
            let chunk = pair?.chunks.get(&chunk)?;
            let version = chunk.version;
            Some(Stored { space: documents::BINDINGS, name: name.clone(), version })
        });
        BindingPlan {
            source: Arc::clone(&source.name),
            destination: destination.clone(),
            binding,
            matched,
            chunk,
            document,
            present,
            generations: (source.generation, self.generation(destination)),
        }
    }

    fn is_durable(&self, destination: &Destination) -> bool {
        match destination {
            Destination::Queue(name) => self.queue(name).is_some_and(|queue| queue.durable),
            Destination::Exchange(name) => self.exchange(name).is_some_and(|x| x.durable),
        }
    }

    fn generation(&self, destination: &Destination) -> u64 {
        match destination {
            Destination::Queue(name) => self.queue(name).map_or(0, |q| u64::from(q.topic.0) + 1),
            Destination::Exchange(name) => self.exchange(name).map_or(0, |x| x.generation),
        }
    }

    /// Carries out a plan whose document, if it has one, is durable with this version. `false`:
    /// one of the ends is gone, and nothing was done.
    pub(super) fn bind(&mut self, plan: &BindingPlan, version: u64) -> bool {
        let Some((node, target)) = self.ends(plan) else { return false };
        self.network.bind(node, plan.matched.arguments(&plan.binding.key), target);
        let pair = (Arc::clone(&plan.source), plan.destination.clone());
        let pair = self.pairs.entry(pair).or_default();
        pair.bindings.insert(Arc::clone(&plan.binding), plan.chunk);
        if plan.document.is_some() {
            let chunk = pair.chunks.entry(plan.chunk).or_default();
            chunk.bindings.push(Arc::clone(&plan.binding));
            chunk.version = version;
        }
        if let Some(entry) = self.exchanges.get_mut(&plan.source) {
            entry.destinations.insert(plan.destination.clone());
        }
        self.sources_of(&plan.destination).map(|sources| sources.insert(Arc::clone(&plan.source)));
        true
    }

    /// As [`Self::bind`]; `version` is the document's, or `None` if that is deleted.
    pub(super) fn unbind(&mut self, plan: &BindingPlan, version: Option<u64>) -> Removed {
        let mut removed = Removed::default();
        let Some((node, target)) = self.ends(plan) else { return removed };
        self.network.unbind(node, plan.matched.arguments(&plan.binding.key), target);
        let name = (Arc::clone(&plan.source), plan.destination.clone());
        let Some(pair) = self.pairs.get_mut(&name) else { return removed };
        pair.bindings.remove(&plan.binding);
        match (version, pair.chunks.get_mut(&plan.chunk)) {
            (Some(version), Some(chunk)) => {
                chunk.bindings.retain(|binding| *binding != plan.binding);
                chunk.version = version;
            }
            _ => {
                pair.chunks.remove(&plan.chunk);
            }
        }
        if !pair.bindings.is_empty() {
            return removed;
        }
        self.pairs.remove(&name);
        self.sources_of(&plan.destination).map(|sources| sources.remove(&plan.source));
        let mut orphans = Vec::new();
        self.forget_destination(&plan.source, &plan.destination, &mut removed, &mut orphans);
        while let Some(orphan) = orphans.pop() {
            self.remove_one_exchange(&orphan, &mut removed, &mut orphans);
        }
        removed
    }

    /// The ends of a planned binding, if they are still the ones that it was planned for.
    fn ends(&self, plan: &BindingPlan) -> Option<(routing::NodeId, Target)> {
        let source = self.exchange(&plan.source)?;
        if plan.generations != (source.generation, self.generation(&plan.destination)) {
            return None;
        }
        let target = match &plan.destination {
            Destination::Queue(name) => Target::Sink(self.network.sink_named(name)?),
            Destination::Exchange(name) => Target::Node(self.exchange(name)?.node),
        };
        Some((source.node, target))
    }

    /// Takes bindings that were read from a document; those whose ends are not there are left.
    pub(super) fn restore(
        &mut self,
        source: &str,
        destination: &Destination,
        chunk: u32,
        document: BindingsDocument,
        version: u64,
    ) -> bool {
        let Some(exchange) = self.exchange(source) else { return false };
        let kind = exchange.matching();
        if self.generation(destination) == 0 {
            return false;
        }
        let mut plans = Vec::new();
        for BindingDocument { key, arguments } in document.bindings {
            let Ok(matched) = matched(&kind, &key, &arguments) else { continue };
            let binding = BindingKey { key: key.into(), arguments: arguments.to_bytes() };
            let binding = Arc::new(binding);
            plans.push(BindingPlan {
                source: Arc::clone(&exchange.name),
                destination: destination.clone(),
                binding,
                matched,
                chunk,
                document: Some((String::new(), BindingsDocument::default())),
                present: None,
                generations: (exchange.generation, self.generation(destination)),
            });
        }
        plans.iter().all(|plan| self.bind(plan, version))
    }
}
