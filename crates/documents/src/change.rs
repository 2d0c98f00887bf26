//! Atomic changes of several documents, optionally together with a topic.

use broker::{Broker, Check, DocumentChange, DocumentsChange, TopicChange};
use serde::Serialize;

use crate::store::{DocumentRef, StoreError, WritePrecondition};

/// Writes and deletions of documents, and the conditions under which they are applied.
#[derive(Clone, Debug, Default)]
pub struct Change(DocumentsChange);

impl Change {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates or replaces a document.
    pub fn put(
        &mut self,
        space: &str,
        name: String,
        body: &impl Serialize,
        expect: WritePrecondition,
    ) -> Result<(), StoreError> {
        let (space, body) = (space.to_owned(), Some(crate::store::encode(body)?));
        let expect = expect.version();
        self.0.documents.push(DocumentChange { space, name, body, expect });
        Ok(())
    }

    /// Deletes a document, provided its version is unchanged.
    pub fn delete(&mut self, stored: &DocumentRef) {
        let DocumentRef { space, name, version } = stored;
        let (space, name) = ((*space).to_owned(), name.clone());
        self.0.documents.push(DocumentChange { space, name, body: None, expect: Some(*version) });
    }

    /// Adds a condition on the change.
    pub fn check(&mut self, check: Check) {
        self.0.checks.push(check);
    }

    /// Requires the document to have this version; 0 requires that it does not exist.
    pub fn check_version(&mut self, space: &str, name: String, version: u64) {
        self.check(Check::Document { space: space.to_owned(), name, version });
    }

    /// Requires exactly `count` documents whose names begin with `prefix`.
    pub fn check_under(&mut self, space: &str, prefix: String, count: usize) {
        self.check(Check::Under { space: space.to_owned(), prefix, count: count as u64 });
    }

    /// Sets the topic change that is applied together with the documents.
    pub fn topic(&mut self, change: TopicChange) {
        self.0.topic = change;
    }

    /// The change itself, for callers that reach the catalog without a broker.
    pub fn into_inner(self) -> DocumentsChange {
        self.0
    }

    /// Applies the change. Nothing changes where a condition does not hold ([`StoreError::is_conflict`]).
    pub async fn make(self, broker: &Broker) -> Result<(), StoreError> {
        Ok(broker.change_documents(self.0).await?)
    }
}
