//! Bindings of a virtual host in memory: the plan of a change, its document, and the update of memory from the
//! document. Pure, like [`Entities`], which it completes.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{HashMap, HashSet};
use bytes::Bytes;
use documents::DocumentRef;
use routing::BindingTarget;
use values::Table;

use super::Entities;
use crate::exchange::{Destination, Exchange};
use crate::matched::matched;
use crate::store::{
    BINDINGS, BINDINGS_PER_DOCUMENT, BindingDocument, BindingEnds, BindingsDocument, bindings_name,
};

/// A binding without its two ends.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BindingKey {
    pub(crate) key: Box<str>,
    /// Encoded, sorted by name.
    pub(crate) arguments: Bytes,
}

/// All bindings of one exchange to one destination.
#[derive(Debug, Default)]
pub(crate) struct BindingSet {
    /// Each binding with the number of its document.
    pub(crate) bindings: HashMap<Arc<BindingKey>, u32>,
    /// Documents by number.
    pub(crate) chunks: BTreeMap<u32, Chunk>,
}

#[derive(Debug, Default)]
pub(crate) struct Chunk {
    bindings: Vec<Arc<BindingKey>>,
    pub(crate) version: u64,
}

/// The new content of a document of bindings.
#[derive(Debug)]
pub(crate) struct BindingPlan {
    pub(crate) name: String,
    pub(crate) document: BindingsDocument,
    /// Version of the document in memory; `None`: it does not exist yet.
    pub(crate) version: Option<u64>,
    pub(crate) ends: BindingEnds,
    /// The document is the pair's only one.
    pub(crate) is_last: bool,
}

impl BindingPlan {
    pub(crate) fn stored(&self) -> DocumentRef {
        let (name, version) = (self.name.clone(), self.version.unwrap_or(0));
        DocumentRef { space: BINDINGS, name, version }
    }
}

/// A listed binding.
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

    /// Plans a new binding; `None`: it exists already. Both ends must exist.
    pub(crate) fn plan_bind(
        &self,
        source: &Exchange,
        destination: &Destination,
        key: &str,
        arguments: &Table,
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
        let mut plan = self.plan(source, destination, room.unwrap_or_else(next))?;
        let made = BindingDocument { key: key.into(), arguments: arguments.clone() };
        plan.document.bindings.push(made);
        Some(plan)
    }

    /// Plans the removal of a binding; `None`: it does not exist.
    pub(crate) fn plan_unbind(
        &self,
        source: &Exchange,
        destination: &Destination,
        key: &str,
        arguments: &Table,
    ) -> Option<BindingPlan> {
        let binding = BindingKey { key: key.into(), arguments: arguments.to_bytes() };
        let pair = self.pairs.get(&(Arc::clone(&source.name), destination.clone()))?;
        let chunk = *pair.bindings.get(&binding)?;
        let mut plan = self.plan(source, destination, chunk)?;
        let other = |kept: &BindingDocument| {
            kept.key != key || kept.arguments.to_bytes() != binding.arguments
        };
        plan.document.bindings.retain(other);
        Some(plan)
    }

    /// Starts a plan with the current content of the document of this number.
    fn plan(
        &self,
        source: &Exchange,
        destination: &Destination,
        number: u32,
    ) -> Option<BindingPlan> {
        let ends = self.ends(source, destination)?;
        let pair = self.pairs.get(&(Arc::clone(&source.name), destination.clone()));
        let chunk = pair.and_then(|pair| pair.chunks.get(&number));
        let held = chunk.into_iter().flat_map(|chunk| &chunk.bindings).map(|binding| {
            let arguments = Table::decode(&binding.arguments).unwrap_or_default();
            BindingDocument { key: binding.key.to_string(), arguments }
        });
        Some(BindingPlan {
            name: bindings_name(&self.vhost, &source.name, destination, number),
            document: BindingsDocument { bindings: held.collect(), ends: Some(ends) },
            version: chunk.map(|chunk| chunk.version),
            ends,
            is_last: pair.is_none_or(|pair| pair.chunks.keys().all(|known| *known == number)),
        })
    }

    /// Names and versions of the documents of all bindings to a queue, or to and from an exchange.
    pub(crate) fn chunks_of(&self, end: &Destination) -> Vec<(String, u64)> {
        let (sources, destinations) = match end {
            Destination::Queue(name) => {
                (self.queue_entry(name).and_then(|entry| entry.sources.as_deref()), None)
            }
            Destination::Exchange(name) => {
                let entry = self.exchanges.get(name);
                (entry.map(|entry| &entry.sources), entry.map(|entry| &entry.destinations))
            }
        };
        let to = sources.into_iter().flatten().map(|source| (Arc::clone(source), end.clone()));
        let name = match end {
            Destination::Queue(name) | Destination::Exchange(name) => name,
        };
        let from = destinations.into_iter().flatten();
        let from = from.map(|destination| (Arc::clone(name), destination.clone()));
        let pairs = to.chain(from).filter_map(|pair| Some((self.pairs.get(&pair)?, pair)));
        let chunks = pairs.flat_map(|(known, (source, destination))| {
            let named = |(number, chunk): (&u32, &Chunk)| {
                (bindings_name(&self.vhost, &source, &destination, *number), chunk.version)
            };
            known.chunks.iter().map(named).collect::<Vec<_>>()
        });
        chunks.collect()
    }

    /// The identity of the two ends, which distinguishes them from others of the same names; `None`: the destination
    /// does not exist.
    pub(crate) fn ends(&self, source: &Exchange, destination: &Destination) -> Option<BindingEnds> {
        let destination = match destination {
            Destination::Queue(name) => u64::from(self.queue(name)?.topic.0),
            Destination::Exchange(name) => self.exchange(name)?.version,
        };
        Some(BindingEnds { source: source.version, destination })
    }

    /// Updates memory from a document of bindings. Returns false if the document belongs to other ends than the
    /// existing ones; its bindings then do not route.
    pub(crate) fn set_chunk(
        &mut self,
        source: &Arc<str>,
        destination: &Destination,
        number: u32,
        document: Option<(BindingsDocument, u64)>,
    ) -> bool {
        let Some((document, version)) = document else {
            self.change_chunk(source, destination, number, Vec::new(), 0);
            return true;
        };
        let ends = self.exchange(source).and_then(|exchange| self.ends(exchange, destination));
        let is_theirs =
            ends.is_some_and(|ends| document.ends.is_none_or(|document| document == ends));
        let bindings = document.bindings.into_iter().filter(|_| is_theirs);
        let bindings = bindings.map(|BindingDocument { key, arguments }| {
            Arc::new(BindingKey { key: key.into(), arguments: arguments.to_bytes() })
        });
        self.change_chunk(source, destination, number, bindings.collect(), version);
        is_theirs
    }

    fn change_chunk(
        &mut self,
        source: &Arc<str>,
        destination: &Destination,
        number: u32,
        bindings: Vec<Arc<BindingKey>>,
        version: u64,
    ) {
        let Some((node, target)) = self.places(source, destination) else { return };
        let Some(kind) = self.exchange(source).map(Exchange::matching) else { return };
        let name = (Arc::clone(source), destination.clone());
        let pair = self.pairs.entry(name.clone()).or_default();
        let before = pair.chunks.remove(&number).unwrap_or_default().bindings;
        let stay: HashSet<Arc<BindingKey>> = bindings.iter().cloned().collect();
        // The binding was valid when it was created.
        let reading = |binding: &BindingKey| {
            let arguments = Table::decode(&binding.arguments).unwrap_or_default();
            matched(&kind, &binding.key, &arguments).ok()
        };
        let gone: Vec<_> = before.into_iter().filter(|binding| !stay.contains(binding)).collect();
        for gone in &gone {
            pair.bindings.remove(gone);
            if let Some(matched) = reading(gone) {
                self.network.unbind(node, matched.arguments(&gone.key), target);
            }
        }
        for binding in &bindings {
            if pair.bindings.insert(Arc::clone(binding), number).is_none()
                && let Some(matched) = reading(binding)
            {
                self.network.bind(node, matched.arguments(&binding.key), target);
            }
        }
        if !bindings.is_empty() {
            pair.chunks.insert(number, Chunk { bindings, version });
        }
        let is_bound = !pair.chunks.is_empty();
        if !is_bound {
            self.pairs.remove(&name);
        }
        if let Some(entry) = self.exchanges.get_mut(source) {
            match is_bound {
                true => entry.destinations.insert(destination.clone()),
                false => entry.destinations.remove(destination),
            };
        }
        if let Some(sources) = self.sources_of(destination) {
            match is_bound {
                true => sources.insert(Arc::clone(source)),
                false => sources.remove(source),
            };
        }
    }

    /// Positions of both ends in the network.
    fn places(
        &self,
        source: &str,
        destination: &Destination,
    ) -> Option<(routing::NodeId, BindingTarget)> {
        let source = self.exchange(source)?.node;
        let target = match destination {
            Destination::Queue(name) => BindingTarget::Sink(self.network.sink_named(name)?),
            Destination::Exchange(name) => BindingTarget::Node(self.exchange(name)?.node),
        };
        Some((source, target))
    }
}
