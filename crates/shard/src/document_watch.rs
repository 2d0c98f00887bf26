//! Watches of documents: a component that caches documents of some spaces is notified of changed ones, and reads
//! those again.
//!
//! A name is noted once, however often the document changes before its watcher takes the changes, and the watcher
//! then reads the current version. So it may miss versions in between, but never the last one. Too many names, or a
//! state installed from a snapshot, are noted as "all".

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::limits::DOCUMENT_CHANGES_NOTED_MAX;
use machine::Command;
use machine::outcome::EntryEffects;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Documents by space and name.
pub type DocumentNames = BTreeSet<(&'static str, Arc<str>)>;

/// Changes since the last [`DocumentWatch::take`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DocumentChanges {
    /// Any document of the spaces: all of them have to be read again.
    All,
    /// These were created, replaced or deleted.
    Named(DocumentNames),
}

/// Take the changes, read the documents, and only then wait: so no change is missed in between.
#[derive(Debug)]
pub struct DocumentWatch(Arc<DocumentWatchState>);

#[derive(Debug)]
struct DocumentWatchState {
    spaces: &'static [&'static str],
    changes: Mutex<DocumentChanges>,
    more: Notify,
    is_over: AtomicBool,
}

/// Watches of a catalog's documents.
#[derive(Debug, Default)]
pub struct DocumentWatchers(Mutex<Vec<Weak<DocumentWatchState>>>);

impl DocumentWatch {
    /// Takes the changes since the last call.
    pub fn take(&self) -> DocumentChanges {
        let nothing = DocumentChanges::Named(DocumentNames::new());
        std::mem::replace(&mut *self.0.changes.lock(), nothing)
    }

    /// Whether [`Self::take`] would return no changes.
    pub fn is_empty(&self) -> bool {
        match &*self.0.changes.lock() {
            DocumentChanges::All => false,
            DocumentChanges::Named(names) => names.is_empty(),
        }
    }

    /// Returns when [`Self::take`] has changes; false once the broker is gone.
    pub async fn changed(&self) -> bool {
        while self.is_empty() {
            if self.0.is_over.load(Ordering::Acquire) {
                return false;
            }
            self.0.more.notified().await;
        }
        true
    }
}

impl DocumentWatchers {
    pub fn watch(&self, spaces: &'static [&'static str]) -> DocumentWatch {
        let changes = Mutex::new(DocumentChanges::All);
        let (more, is_over) = (Notify::new(), AtomicBool::new(false));
        let watching = Arc::new(DocumentWatchState { spaces, changes, more, is_over });
        let mut watchers = self.0.lock();
        watchers.retain(|watching| watching.strong_count() > 0);
        watchers.push(Arc::downgrade(&watching));
        DocumentWatch(watching)
    }

    /// Notes applied commands, before their clients get a reply.
    pub(crate) fn note(&self, commands: &[Command], applied: &EntryEffects) {
        let mut names = Vec::new();
        for (command, outcome) in commands.iter().zip(&applied.commands) {
            match command {
                _ if outcome.is_err() => {}
                Command::PutDocument { space, name, .. }
                | Command::DeleteDocument { space, name, .. } => names.push((space, name)),
                Command::ChangeDocuments(change) => {
                    names.extend(change.documents.iter().map(|it| (&it.space, &it.name)));
                }
                _ => {}
            }
        }
        if names.is_empty() {
            return;
        }
        for watching in self.0.lock().iter().filter_map(Weak::upgrade) {
            let watched = names.iter().filter_map(|(space, name)| {
                let space = watching.spaces.iter().find(|watched| *watched == space)?;
                Some((*space, Arc::from(name.as_str())))
            });
            watching.note(watched);
        }
    }

    /// The state was replaced.
    pub(crate) fn note_all(&self) {
        for watching in self.0.lock().iter().filter_map(Weak::upgrade) {
            *watching.changes.lock() = DocumentChanges::All;
            watching.more.notify_one();
        }
    }
}

impl Drop for DocumentWatchers {
    fn drop(&mut self) {
        for watching in self.0.get_mut().iter().filter_map(Weak::upgrade) {
            watching.is_over.store(true, Ordering::Release);
            watching.more.notify_one();
        }
    }
}

impl DocumentWatchState {
    fn note(&self, names: impl Iterator<Item = (&'static str, Arc<str>)>) {
        let mut changes = self.changes.lock();
        let DocumentChanges::Named(noted) = &mut *changes else { return };
        let before = noted.len();
        noted.extend(names);
        if noted.len() > before && before == 0 {
            self.more.notify_one();
        }
        if noted.len() > DOCUMENT_CHANGES_NOTED_MAX {
            *changes = DocumentChanges::All;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use machine::{DocumentChange, DocumentsChange, Outcome, Refusal};

    use super::*;

    fn put(space: &str, name: &str) -> Command {
        let (space, name) = (space.to_owned(), name.to_owned());
        Command::PutDocument { space, name, body: vec![], expect: None }
    }

    fn note(watchers: &DocumentWatchers, commands: &[Command]) {
        let outcomes = commands.iter().map(|_| Ok(Outcome::Done)).collect();
        watchers.note(commands, &EntryEffects { commands: outcomes, ..EntryEffects::default() });
    }

    /// After the initial "all" is taken.
    fn watch(watchers: &DocumentWatchers) -> DocumentWatch {
        let watch = watchers.watch(&["a", "b"]);
        assert_eq!(watch.take(), DocumentChanges::All);
        watch
    }

    fn named(names: &[(&'static str, &str)]) -> DocumentChanges {
        let names = names.iter().map(|(space, name)| (*space, Arc::from(*name)));
        DocumentChanges::Named(names.collect())
    }

    #[test]
    fn changed_document_of_a_watched_space_is_named_once() {
        let watchers = DocumentWatchers::default();
        let watch = watch(&watchers);
        assert!(watch.is_empty() && watch.changed().now_or_never().is_none());
        let deleted = DocumentChange {
            space: "b".to_owned(),
            name: "y".to_owned(),
            body: None,
            expect: None,
        };
        let both = DocumentsChange { documents: vec![deleted], ..DocumentsChange::default() };
        note(&watchers, &[put("a", "x"), put("c", "z"), put("a", "x")]);
        note(&watchers, &[Command::ChangeDocuments(both), put("a", "x")]);
        assert!(watch.changed().now_or_never().is_some());
        assert_eq!(watch.take(), named(&[("a", "x"), ("b", "y")]));
        assert_eq!(watch.take(), named(&[]));
    }

    #[test]
    fn rejected_change_is_not_named() {
        let watchers = DocumentWatchers::default();
        let watch = watch(&watchers);
        let refused =
            EntryEffects { commands: vec![Err(Refusal::NotInUnit)], ..EntryEffects::default() };
        watchers.note(&[put("a", "x")], &refused);
        assert!(watch.is_empty());
    }

    #[test]
    fn too_many_names_and_a_replaced_state_are_noted_as_all() {
        let watchers = DocumentWatchers::default();
        let watch = watch(&watchers);
        watchers.note_all();
        note(&watchers, &[put("a", "x")]);
        assert!(watch.changed().now_or_never().is_some());
        assert_eq!(watch.take(), DocumentChanges::All);
        for first in (0..=DOCUMENT_CHANGES_NOTED_MAX).step_by(1_000) {
            let some: Vec<_> = (first..first + 1_000).map(|n| put("a", &n.to_string())).collect();
            note(&watchers, &some);
        }
        assert_eq!(watch.take(), DocumentChanges::All);
    }

    #[test]
    fn dropped_watcher_is_forgotten() {
        let watchers = DocumentWatchers::default();
        drop(watch(&watchers));
        let _watch = watch(&watchers);
        assert_eq!(watchers.0.lock().len(), 1);
    }

    #[test]
    fn watcher_learns_of_the_end_of_the_catalog() {
        let watchers = DocumentWatchers::default();
        let watch = watch(&watchers);
        note(&watchers, &[put("a", "x")]);
        drop(watchers);
        assert_eq!(watch.changed().now_or_never(), Some(true));
        assert_eq!(watch.take(), named(&[("a", "x")]));
        assert_eq!(watch.changed().now_or_never(), Some(false));
    }
}
