//! Documents that change together, and a topic with them: all of it, or nothing.

use broker::{Broker, Check, DocumentChange, DocumentsChange, TopicChange};
use serde::Serialize;

use crate::store::{Expect, StoreError, Stored};

/// What is to change, and under which conditions.
#[derive(Clone, Debug, Default)]
pub struct Change(DocumentsChange);

impl Change {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes or replaces a document.
    pub fn put(
        &mut self,
        space: &str,
        name: String,
        body: &impl Serialize,
        expect: Expect,
    ) -> Result<(), StoreError> {
        let (space, body) = (space.to_owned(), Some(crate::store::encode(body)?));
        let expect = expect.version();
        self.0.documents.push(DocumentChange { space, name, body, expect });
        Ok(())
    }

    /// Deletes a document that has not changed meanwhile.
    pub fn delete(&mut self, stored: &Stored) {
        let Stored { space, name, version } = stored;
        let (space, name) = ((*space).to_owned(), name.clone());
        self.0.documents.push(DocumentChange { space, name, body: None, expect: Some(*version) });
    }

    /// Only while this is so.
    pub fn check(&mut self, check: Check) {
        self.0.checks.push(check);
    }

    /// Only while the document has this version; 0: while it is not there.
    pub fn check_version(&mut self, space: &str, name: String, version: u64) {
        self.check(Check::Document { space: space.to_owned(), name, version });
    }

    /// Only while there are so many documents whose names begin so.
    pub fn check_under(&mut self, space: &str, prefix: String, count: usize) {
        self.check(Check::Under { space: space.to_owned(), prefix, count: count as u64 });
    }

    /// What happens to a topic.
    pub fn topic(&mut self, change: TopicChange) {
        self.0.topic = change;
    }

    /// The change itself, for whoever has the catalog without a broker.
    pub fn into_inner(self) -> DocumentsChange {
        self.0
    }

    /// Makes the change; [`StoreError::is_conflict`]: a condition does not hold, and nothing changed.
    pub async fn make(self, broker: &Broker) -> Result<(), StoreError> {
        Ok(broker.change_documents(self.0).await?)
    }
}
