//! Reads and writes of documents in the broker's catalog.

use std::sync::Arc;

use broker::{Broker, ExecuteError, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Name and version of an existing document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentRef {
    pub space: &'static str,
    pub name: String,
    pub version: u64,
}

/// A document's name, version and decoded body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedDocument<T> {
    pub stored: DocumentRef,
    pub body: T,
}

/// Precondition of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritePrecondition {
    /// Replaces the document, if there is one.
    Anything,
    /// The document has this version; 0: it does not exist.
    Version(u64),
}

impl WritePrecondition {
    pub(crate) fn version(self) -> Option<u64> {
        match self {
            Self::Anything => None,
            Self::Version(version) => Some(version),
        }
    }
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// One of our own types failed to serialize.
    #[error("the document cannot be written as JSON: {0}")]
    Encoding(String),
}

impl StoreError {
    /// The document changed since it was read: read it again.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Execute(ExecuteError::Refused(Refusal::DocumentConflict { .. })))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("document {name:?} in {space} cannot be read: {source}")]
pub struct MalformedDocument {
    pub space: &'static str,
    pub name: String,
    pub source: serde_json::Error,
}

/// A document's version and body.
pub type Raw = (u64, Arc<[u8]>);

/// Decodes a document's JSON body.
pub fn decode<T: DeserializeOwned>(
    space: &'static str,
    name: String,
    (version, body): Raw,
) -> Result<LoadedDocument<T>, MalformedDocument> {
    match serde_json::from_slice(&body) {
        Ok(body) => Ok(LoadedDocument { stored: DocumentRef { space, name, version }, body }),
        Err(source) => Err(MalformedDocument { space, name, source }),
    }
}

/// All documents of a space, sorted by name.
pub fn read_all<T: DeserializeOwned>(
    broker: &Broker,
    space: &'static str,
) -> Result<Vec<LoadedDocument<T>>, MalformedDocument> {
    let raw: Vec<(String, Raw)> = {
        let catalog = broker.catalog();
        let documents = catalog.documents(space);
        documents
            .map(|(name, found)| (name.to_owned(), (found.version, Arc::clone(&found.body))))
            .collect()
    };
    raw.into_iter().map(|(name, raw)| decode(space, name, raw)).collect()
}

/// Reads one document.
pub fn read<T: DeserializeOwned>(
    broker: &Broker,
    space: &'static str,
    name: &str,
) -> Result<Option<LoadedDocument<T>>, MalformedDocument> {
    let raw = {
        let catalog = broker.catalog();
        let found = catalog.document(space, name);
        found.map(|found| (found.version, Arc::clone(&found.body)))
    };
    raw.map(|raw| decode(space, name.to_owned(), raw)).transpose()
}

/// A document's version; `None`: it does not exist.
pub fn version(broker: &Broker, space: &str, name: &str) -> Option<u64> {
    broker.catalog().document(space, name).map(|document| document.version)
}

/// Creates or replaces a document; returns its version once that is durable.
pub async fn put(
    broker: &Broker,
    space: &str,
    name: String,
    body: &impl Serialize,
    expect: WritePrecondition,
) -> Result<u64, StoreError> {
    Ok(broker.put_document(space, name, encode(body)?, expect.version()).await?)
}

pub(crate) fn encode(body: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(body).map_err(|fault| StoreError::Encoding(fault.to_string()))
}

/// Deletes a document. A document that changed meanwhile is kept, without an error.
pub async fn delete(broker: &Broker, stored: &DocumentRef) -> Result<(), StoreError> {
    match delete_expecting(broker, stored).await {
        Err(error) if error.is_conflict() => Ok(()),
        other => other,
    }
}

/// Deletes a document; [`StoreError::is_conflict`] if it has changed or gone meanwhile.
pub async fn delete_expecting(broker: &Broker, stored: &DocumentRef) -> Result<(), StoreError> {
    let DocumentRef { space, name, version } = stored;
    match broker.delete_document(space, name.clone(), Some(*version)).await {
        Ok(()) | Err(ExecuteError::Refused(Refusal::UnknownDocument { .. })) => Ok(()),
        Err(other) => Err(other.into()),
    }
}

/// Deletes all of them, in as few log entries as possible.
pub async fn delete_all(broker: &Broker, stored: &[DocumentRef]) -> Result<(), StoreError> {
    for some in stored.chunks(DELETED_AT_ONCE) {
        let deleted = some.iter().map(|stored| delete(broker, stored));
        futures_util::future::try_join_all(deleted).await?;
    }
    Ok(())
}

const DELETED_AT_ONCE: usize = 1_024;
