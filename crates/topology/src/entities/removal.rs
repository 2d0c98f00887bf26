//! Deletions that follow from the removal of a queue, an exchange or a last binding: the documents of all bindings to
//! and from it, and auto-delete exchanges without bindings. They are planned from memory and committed by one
//! command. If memory was outdated, the command's conditions fail and the removal is planned again. Pure.

use std::sync::Arc;

use base::{HashMap, HashSet};
use documents::{Change, DocumentRef};

use super::Entities;
use crate::exchange::Destination;
use crate::store::{BINDINGS, EXCHANGES, QUEUES, bindings_name, prefix};

/// Documents to be deleted together.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    pub(crate) documents: Vec<DocumentRef>,
    /// Deleted exchanges, and the number of binding documents from each that are deleted: it must have no others.
    exchanges: Vec<(Arc<str>, usize)>,
}

impl Removal {
    /// Adds the removal to a change of the vhost's documents.
    pub(crate) fn add_to(&self, vhost: &str, change: &mut Change) {
        self.documents.iter().for_each(|stored| change.delete(stored));
        for (exchange, count) in &self.exchanges {
            change.check_under(BINDINGS, prefix(vhost, exchange), *count);
        }
    }
}

/// State of the planning.
struct RemovalPlan<'a> {
    entities: &'a Entities,
    pairs: HashSet<(Arc<str>, Destination)>,
    exchanges: HashSet<Arc<str>>,
    waiting: Vec<Arc<str>>,
    /// Number of destinations still bound to an auto-delete exchange.
    bound: HashMap<Arc<str>, usize>,
    from: HashMap<Arc<str>, usize>,
    removal: Removal,
}

impl Entities {
    /// Returns `None` if there is no such queue.
    pub(crate) fn plan_queue_removal(&self, name: &str) -> Option<Removal> {
        let entry = self.queue_entry(name)?;
        let mut removing = RemovalPlan::of(self);
        if entry.version != 0 {
            let name = documents::join(&[&self.vhost, name]);
            let stored = DocumentRef { space: QUEUES, name, version: entry.version };
            removing.removal.documents.push(stored);
        }
        let destination = Destination::Queue(Arc::clone(&entry.queue.name));
        for source in entry.sources.iter().flat_map(|sources| sources.iter()) {
            removing.remove_pair(source, &destination);
        }
        Some(removing.finish())
    }

    pub(crate) fn plan_exchange_removal(&self, name: &str) -> Option<Removal> {
        let name = &self.exchanges.get(name)?.exchange.name;
        let mut removing = RemovalPlan::of(self);
        removing.waiting.push(Arc::clone(name));
        Some(removing.finish())
    }

    /// Plans the removal of all bindings from an exchange to a destination.
    pub(crate) fn plan_pair_removal(
        &self,
        source: &Arc<str>,
        destination: &Destination,
    ) -> Removal {
        let mut removing = RemovalPlan::of(self);
        removing.remove_pair(source, destination);
        removing.finish()
    }
}

impl<'a> RemovalPlan<'a> {
    fn of(entities: &'a Entities) -> Self {
        Self {
            entities,
            pairs: HashSet::default(),
            exchanges: HashSet::default(),
            waiting: Vec::new(),
            bound: HashMap::default(),
            from: HashMap::default(),
            removal: Removal::default(),
        }
    }

    fn remove_pair(&mut self, source: &Arc<str>, destination: &Destination) {
        let name = (Arc::clone(source), destination.clone());
        let Some(pair) = self.entities.pairs.get(&name) else { return };
        if !self.pairs.insert(name) {
            return;
        }
        *self.from.entry(Arc::clone(source)).or_default() += pair.chunks.len();
        for (number, chunk) in &pair.chunks {
            let name = bindings_name(&self.entities.vhost, source, destination, *number);
            let stored = DocumentRef { space: BINDINGS, name, version: chunk.version };
            self.removal.documents.push(stored);
        }
        let Some(entry) = self.entities.exchanges.get(source) else { return };
        if entry.exchange.auto_delete {
            let bound = self.bound.entry(Arc::clone(source));
            let bound = bound.or_insert(entry.destinations.len());
            *bound = bound.saturating_sub(1);
            if *bound == 0 {
                self.waiting.push(Arc::clone(source));
            }
        }
    }

    fn finish(mut self) -> Removal {
        while let Some(name) = self.waiting.pop() {
            let Some(entry) = self.entities.exchanges.get(&name) else { continue };
            if !self.exchanges.insert(Arc::clone(&name)) {
                continue;
            }
            for destination in &entry.destinations {
                self.remove_pair(&name, destination);
            }
            let destination = Destination::Exchange(Arc::clone(&name));
            for source in &entry.sources {
                self.remove_pair(source, &destination);
            }
            let version = entry.exchange.version;
            if version != 0 {
                let name = documents::join(&[&self.entities.vhost, &name]);
                self.removal.documents.push(DocumentRef { space: EXCHANGES, name, version });
            }
        }
        let Self { exchanges, from, mut removal, .. } = self;
        let counted = |name: Arc<str>| {
            let count = from.get(&name).copied().unwrap_or(0);
            (name, count)
        };
        removal.exchanges = exchanges.into_iter().map(counted).collect();
        // A fixed order, independent of that of the map.
        removal.exchanges.sort();
        removal
    }
}
