//! The graph: nodes with bindings, sinks, and the traversal by a message.
//!
//! A message visits a node once, however many paths lead there, and reaches a sink once. A node
//! that matches nothing passes the message to its alternate, which is referenced by name: it need
//! not exist yet, and may be added and removed.

use std::hash::BuildHasher;
use std::sync::Arc;

use base::collections::HashState;
use base::{HashMap, HashSet};
use hashbrown::HashTable;

use crate::matcher::{Arguments, Kind, Matcher};
use crate::message::{Headers, Message};
use crate::targets::{BindingTarget, NodeId, SinkId};
use crate::topic::Frontier;

/// Options of a node besides matching.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeOptions {
    /// The node for messages that this one does not match.
    pub alternate: Option<Arc<str>>,
    /// Defers messages that request it from here on ([`Message::deferred`]).
    pub defers: bool,
}

/// `S` is the content of a sink.
#[derive(Clone, Debug)]
pub struct Network<S> {
    nodes: Vec<Option<Node>>,
    free_nodes: Vec<NodeId>,
    node_names: HashMap<Arc<str>, NodeId>,
    sinks: Vec<Option<Sink<S>>>,
    free_sinks: Vec<SinkId>,
    /// By the sink's name.
    sink_names: HashTable<SinkId>,
    hasher: HashState,
}

#[derive(Clone, Debug)]
struct Node {
    name: Arc<str>,
    matcher: Matcher,
    options: NodeOptions,
}

#[derive(Clone, Debug)]
struct Sink<S> {
    name: Arc<str>,
    content: S,
}

/// Result of a traversal, and its buffers: reused from message to message.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// Reached sinks, each once; with `true` if the message is to be deferred first. A sink reached
    /// by both a deferred and a direct path is listed twice.
    pub sinks: Vec<(SinkId, bool)>,
    found: Vec<BindingTarget>,
    front: Frontier,
    waiting: Vec<(NodeId, bool)>,
    /// Nodes that the message has visited or will visit.
    seen: VisitedNodes,
}

impl<S> Default for Network<S> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            node_names: HashMap::default(),
            sinks: Vec::new(),
            free_sinks: Vec::new(),
            sink_names: HashTable::new(),
            hasher: HashState::default(),
        }
    }
}

impl<S> Network<S> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node; one of that name is replaced, and its bindings are removed.
    pub fn add_node(&mut self, name: &str, kind: &Kind, options: NodeOptions) -> NodeId {
        let name: Arc<str> = Arc::from(name);
        let node = Node { name: Arc::clone(&name), matcher: Matcher::new(kind), options };
        let id = self.node_names.get(&name).copied().or_else(|| self.free_nodes.pop());
        let id = id.unwrap_or_else(|| {
            self.nodes.push(None);
            NodeId((self.nodes.len() - 1) as u32)
        });
        self.nodes[id.0 as usize] = Some(node);
        self.node_names.insert(name, id);
        id
    }

    pub fn set_options(&mut self, id: NodeId, options: NodeOptions) {
        if let Some(node) = self.node_mut(id) {
            node.options = options;
        }
    }

    /// Removes a node, with its bindings to others. The caller first removes the bindings of others to
    /// it.
    pub fn remove_node(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(id.0 as usize).and_then(Option::take) {
            self.node_names.remove(&node.name);
            self.free_nodes.push(id);
        }
    }

    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.node_names.get(name).copied()
    }

    /// Adds a sink; one of that name has its content replaced and keeps its bindings.
    pub fn add_sink(&mut self, name: impl Into<Arc<str>>, content: S) -> SinkId {
        let sink = Sink { name: name.into(), content };
        if let Some(present) = self.sink_named(&sink.name) {
            self.sinks[present.0 as usize] = Some(sink);
            return present;
        }
        let id = self.free_sinks.pop().unwrap_or_else(|| {
            self.sinks.push(None);
            SinkId((self.sinks.len() - 1) as u32)
        });
        let hash = self.hasher.hash_one(&*sink.name);
        self.sinks[id.0 as usize] = Some(sink);
        let Self { sinks, sink_names, hasher, .. } = self;
        sink_names.insert_unique(hash, id, |other| hasher.hash_one(name_of(sinks, *other)));
        id
    }

    /// Removes a sink. The caller first removes its bindings.
    pub fn remove_sink(&mut self, id: SinkId) -> Option<S> {
        let sink = self.sinks.get_mut(id.0 as usize)?.take()?;
        let hash = self.hasher.hash_one(&*sink.name);
        if let Ok(found) = self.sink_names.find_entry(hash, |other| *other == id) {
            found.remove();
        }
        self.free_sinks.push(id);
        Some(sink.content)
    }

    pub fn sink_named(&self, name: &str) -> Option<SinkId> {
        let same = |id: &SinkId| name_of(&self.sinks, *id) == name;
        self.sink_names.find(self.hasher.hash_one(name), same).copied()
    }

    pub fn sink(&self, id: SinkId) -> Option<&S> {
        self.sinks.get(id.0 as usize)?.as_ref().map(|sink| &sink.content)
    }

    pub fn sink_mut(&mut self, id: SinkId) -> Option<&mut S> {
        self.sinks.get_mut(id.0 as usize)?.as_mut().map(|sink| &mut sink.content)
    }

    pub fn sinks(&self) -> impl Iterator<Item = &S> {
        self.sinks.iter().flatten().map(|sink| &sink.content)
    }

    pub fn bind(&mut self, node: NodeId, arguments: Arguments<'_>, target: BindingTarget) {
        if let Some(node) = self.node_mut(node) {
            node.matcher.add(arguments, target);
        }
    }

    /// Returns whether it was present.
    pub fn unbind(
        &mut self,
        node: NodeId,
        arguments: Arguments<'_>,
        target: BindingTarget,
    ) -> bool {
        self.node_mut(node).is_some_and(|node| node.matcher.remove(arguments, target))
    }

    /// Finds the destinations of a message that enters at `start`.
    pub fn route<H: Headers + ?Sized>(
        &self,
        start: NodeId,
        message: &Message<'_, H>,
        route: &mut Route,
    ) {
        let Route { sinks, found, front, waiting, seen } = route;
        sinks.clear();
        seen.clear();
        waiting.clear();
        waiting.push((start, false));
        seen.insert((start, false));
        let (mut visited, mut repeats) = (0_usize, false);
        while let Some((id, deferred)) = waiting.pop() {
            let Some(node) = self.node(id) else { continue };
            visited += 1;
            let deferred = deferred || (node.options.defers && message.deferred);
            found.clear();
            repeats |= node.matcher.route(message, front, found);
            if matches!(node.matcher, Matcher::Names) {
                let named = message.keys.iter().filter_map(|key| self.sink_named(key));
                found.extend(named.map(BindingTarget::Sink));
            }
            if found.is_empty() {
                let alternate = node.options.alternate.as_deref();
                let alternate = alternate.and_then(|name| self.node_named(name));
                found.extend(alternate.map(BindingTarget::Node));
            }
            for target in found.drain(..) {
                match target {
                    BindingTarget::Sink(sink) => sinks.push((sink, deferred)),
                    BindingTarget::Node(node) => {
                        if seen.insert((node, deferred)) {
                            waiting.push((node, deferred));
                        }
                    }
                }
            }
        }
        if sinks.len() > 1 && (repeats || visited > 1) {
            sinks.sort_unstable();
            sinks.dedup();
        }
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id.0 as usize)?.as_mut()
    }
}

fn name_of<S>(sinks: &[Option<Sink<S>>], id: SinkId) -> &str {
    sinks.get(id.0 as usize).and_then(Option::as_ref).map_or("", |sink| &sink.name)
}

/// A set that is nearly always tiny.
#[derive(Clone, Debug, Default)]
struct VisitedNodes {
    few: Vec<(NodeId, bool)>,
    many: HashSet<(NodeId, bool)>,
}

impl VisitedNodes {
    const FEW: usize = 16;

    fn clear(&mut self) {
        self.few.clear();
        self.many.clear();
    }

    /// Returns whether it is new.
    fn insert(&mut self, node: (NodeId, bool)) -> bool {
        if self.few.contains(&node) || (!self.many.is_empty() && self.many.contains(&node)) {
            return false;
        }
        if self.few.len() < Self::FEW {
            self.few.push(node);
        } else {
            self.many.insert(node);
        }
        true
    }
}
