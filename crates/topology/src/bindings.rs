//! Bindings of a virtual host in memory: how one is planned, so that its document can be written
//! first, and carried out. As pure as [`crate::entities`], whose other half it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::HashMap;
use bytes::Bytes;
use documents::Stored;
use routing::Target;
use values::Table;

use crate::Destination;
use crate::entities::{Entities, Removed};
use crate::exchange::Exchange;
use crate::matched::{Matched, matched};
use crate::store::{
    BINDINGS, BINDINGS_PER_DOCUMENT, BindingDocument, BindingsDocument, bindings_name,
};

/// A binding besides its two ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BindingKey {
    pub(crate) key: Box<str>,
    /// Encoded, in the order of names.
    pub(crate) arguments: Bytes,
}

/// All bindings of one exchange to one destination.
#[derive(Debug, Default)]
pub(crate) struct Pair {
    /// And the document that each is in.
    pub(crate) bindings: HashMap<Arc<BindingKey>, u32>,
    /// Documents by number; none where the bindings are not kept.
    pub(crate) chunks: BTreeMap<u32, Chunk>,
}

#[derive(Debug, Default)]
pub(crate) struct Chunk {
    bindings: Vec<Arc<BindingKey>>,
    pub(crate) version: u64,
}

/// A binding that is about to be made or removed.
#[derive(Debug)]
pub(crate) struct BindingPlan {
    pub(crate) source: Arc<str>,
    pub(crate) destination: Destination,
    binding: Arc<BindingKey>,
    matched: Matched,
    chunk: u32,
    /// The document as it will be; `None` where the binding is not kept.
    pub(crate) document: Option<(String, BindingsDocument)>,
    /// The document as it is.
    pub(crate) present: Option<Stored>,
    generations: (u64, u64),
}

/// A binding as it is listed.
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    pub source: Arc<str>,
    pub destination: Destination,
    pub key: String,
    pub arguments: Table,
}

impl Entities {
    pub(crate) fn bindings(&self) -> Vec<Binding> {
        let listed = self.pairs.iter().flat_map(|((source, destination), pair)| {
            pair.bindings.keys().map(|binding| Binding {
                source: Arc::clone(source),
                destination: destination.clone(),
                key: binding.key.to_string(),
                arguments: Table::decode(&binding.arguments).unwrap_or_default(),
            })
        });
        listed.collect()
    }

    /// What making this binding takes; `None`: it is there. Both ends exist.
    pub(crate) fn plan_bind(
        &self,
        source: &Exchange,
        destination: &Destination,
        key: &str,
        arguments: &Table,
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
    pub(crate) fn plan_unbind(
        &self,
        source: &Exchange,
        destination: &Destination,
        key: &str,
        arguments: &Table,
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
            let name = bindings_name(&self.vhost, &source.name, destination, chunk);
            let held = pair.and_then(|pair| pair.chunks.get(&chunk));
            let held = held.into_iter().flat_map(|held| &held.bindings).map(|binding| {
                let arguments = Table::decode(&binding.arguments).unwrap_or_default();
                BindingDocument { key: binding.key.to_string(), arguments }
            });
            (name, BindingsDocument { bindings: held.collect() })
        });
        let present = document.as_ref().and_then(|(name, _)| {
            let chunk = pair?.chunks.get(&chunk)?;
            let version = chunk.version;
            Some(Stored { space: BINDINGS, name: name.clone(), version })
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
    pub(crate) fn bind(&mut self, plan: &BindingPlan, version: u64) -> bool {
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
    pub(crate) fn unbind(&mut self, plan: &BindingPlan, version: Option<u64>) -> Removed {
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
    pub(crate) fn restore(
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
