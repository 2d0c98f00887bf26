//! Documents that need later work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::HashMap;
use broker::DocumentNames;
use parking_lot::Mutex;

use super::Run;

/// A document's space and name.
pub(crate) type DocumentId = (&'static str, Arc<str>);

/// Documents that need later work, tracked beside the entities.
#[derive(Debug, Default)]
pub(crate) struct DeferredWork(Mutex<DeferredDocuments>);

#[derive(Debug, Default)]
struct DeferredDocuments {
    /// The run of a node that each transient document belongs to.
    run_of: HashMap<DocumentId, Run>,
    of_run: BTreeMap<Run, BTreeSet<DocumentId>>,
    /// Stale documents, and their versions.
    stale: BTreeMap<DocumentId, u64>,
}

impl DeferredWork {
    pub(crate) fn set_run(&self, id: &DocumentId, run: Option<Run>) {
        let mut noted = self.0.lock();
        let before = match run {
            Some(run) => noted.run_of.insert(id.clone(), run),
            None => noted.run_of.remove(id),
        };
        if before == run {
            return;
        }
        if let Some(before) = before
            && let Some(ids) = noted.of_run.get_mut(&before)
        {
            ids.remove(id);
            if ids.is_empty() {
                noted.of_run.remove(&before);
            }
        }
        if let Some(run) = run {
            noted.of_run.entry(run).or_default().insert(id.clone());
        }
    }

    pub(crate) fn set_stale(&self, id: &DocumentId, version: Option<u64>) {
        let stale = &mut self.0.lock().stale;
        match version {
            Some(version) => stale.insert(id.clone(), version),
            None => stale.remove(id),
        };
    }

    pub(crate) fn run_of(&self, id: &DocumentId) -> Option<Run> {
        self.0.lock().run_of.get(id).copied()
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.0.lock().of_run.keys().copied().collect()
    }

    pub(crate) fn documents_of(&self, run: Run) -> Vec<DocumentId> {
        self.0.lock().of_run.get(&run).into_iter().flatten().cloned().collect()
    }

    pub(crate) fn stale(&self) -> Vec<(DocumentId, u64)> {
        self.0.lock().stale.iter().map(|(id, version)| (id.clone(), *version)).collect()
    }

    /// Version of the stale document of this name; 0: there is none.
    pub(crate) fn stale_version(&self, space: &'static str, name: &str) -> u64 {
        self.0.lock().stale.get(&(space, Arc::from(name))).copied().unwrap_or(0)
    }

    /// Adds the names of all these documents.
    pub(crate) fn add_names_to(&self, names: &mut DocumentNames) {
        let noted = self.0.lock();
        names.extend(noted.run_of.keys().chain(noted.stale.keys()).cloned());
    }
}
