//! What of a broker's entities is kept, and how: one small document each, in the catalog.
//!
//! Bindings are documents of up to [`BINDINGS_PER_DOCUMENT`] for each pair of an exchange and a
//! destination: a queue with a few bindings is one document and goes in one piece, and a hundred
//! thousand bindings are never written again because of one.
//!
//! Documents are written before what they describe exists (a topic) and deleted after it is gone;
//! what a crash leaves in between is taken away at the next start ([`super::recovery`]).

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use broker::{Broker, Document, ExecuteError, Refusal};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Destination, QueueKind};
use crate::codec::table::FieldTable;
use crate::errors::{Exception, ReplyCode};

pub(super) const VHOSTS: &str = "amqp.vhosts";
pub(super) const EXCHANGES: &str = "amqp.exchanges";
pub(super) const QUEUES: &str = "amqp.queues";
pub(super) const BINDINGS: &str = "amqp.bindings";
pub(super) const POLICIES: &str = "amqp.policies";
pub(super) const OPERATOR_POLICIES: &str = "amqp.operator-policies";

pub(super) const BINDINGS_PER_DOCUMENT: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct VhostDocument {}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ExchangeDocument {
    pub(super) kind: String,
    pub(super) auto_delete: bool,
    pub(super) internal: bool,
    #[serde(with = "encoded_table")]
    pub(super) arguments: FieldTable,
}

/// Every node keeps one in memory for each queue: what most of them have is left out.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct QueueDocument {
    /// Empty: it has the queue's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) topic: String,
    /// The topic's UUID as text: tells it from a topic that got its name later.
    pub(super) uuid: String,
    #[serde(default = "usual::kind", skip_serializing_if = "usual::is_kind")]
    pub(super) kind: String,
    /// Otherwise it goes when the node starts.
    #[serde(default = "usual::durable", skip_serializing_if = "bool::clone")]
    pub(super) durable: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) auto_delete: bool,
    #[serde(
        default = "usual::arguments",
        skip_serializing_if = "usual::is_arguments",
        with = "encoded_table"
    )]
    pub(super) arguments: FieldTable,
}

/// What a queue has that is declared with nothing but its name.
mod usual {
    use super::{FieldTable, QueueKind};
    use crate::catalog::arguments::QUEUE_TYPE;

    pub(super) fn kind() -> String {
        QueueKind::Classic.name().to_owned()
    }

    pub(super) fn is_kind(kind: &str) -> bool {
        kind == QueueKind::Classic.name()
    }

    pub(super) const fn durable() -> bool {
        true
    }

    pub(super) fn arguments() -> FieldTable {
        let mut arguments = FieldTable::new();
        arguments.push(QUEUE_TYPE, QueueKind::Classic.name());
        arguments
    }

    pub(super) fn is_arguments(given: &FieldTable) -> bool {
        *given == arguments()
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct BindingsDocument {
    pub(super) bindings: Vec<BindingDocument>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BindingDocument {
    pub(super) key: String,
    #[serde(with = "encoded_table")]
    pub(super) arguments: FieldTable,
}

/// A table as it is on the wire: no type of its values is lost.
mod encoded_table {
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Engine, FieldTable, STANDARD_NO_PAD};

    pub(super) fn serialize<S: Serializer>(table: &FieldTable, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD_NO_PAD.encode(table.to_bytes()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FieldTable, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)?;
        FieldTable::decode(&bytes).map_err(D::Error::custom)
    }
}

// -------------------------------------------------------------------------------------- names

/// The parts of a name, so that `/` parts them and nothing else does.
pub(super) fn name(parts: &[&str]) -> String {
    let escaped = parts.iter().map(|part| part.replace('%', "%25").replace('/', "%2F"));
    escaped.collect::<Vec<_>>().join("/")
}

pub(super) fn parts(name: &str) -> Vec<String> {
    name.split('/').map(|part| part.replace("%2F", "/").replace("%25", "%")).collect()
}

pub(super) fn bindings_name(
    vhost: &str,
    source: &str,
    destination: &Destination,
    chunk: u32,
) -> String {
    let (kind, to) = match destination {
        Destination::Queue(queue) => ("queue", queue),
        Destination::Exchange(exchange) => ("exchange", exchange),
    };
    name(&[vhost, source, kind, to, &chunk.to_string()])
}

// -------------------------------------------------------------------------------------- store

/// A document that is there, and its version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    pub(super) space: &'static str,
    pub(super) name: String,
    pub(super) version: u64,
}

/// The version of a document that is there.
pub(super) fn version(broker: &Broker, space: &str, name: &str) -> Option<u64> {
    broker.catalog().document(space, name).map(|document| document.version)
}

/// All documents of a space, by name.
pub(super) fn all(broker: &Broker, space: &str) -> Vec<(String, Document)> {
    let catalog = broker.catalog();
    let documents = catalog.documents(space);
    documents.map(|(name, document)| (name.to_owned(), document.clone())).collect()
}

/// Makes or replaces a document; answers its version once that is durable.
pub(super) async fn put(
    broker: &Broker,
    space: &str,
    name: String,
    body: &impl Serialize,
) -> Result<u64, Exception> {
    let body = serde_json::to_vec(body).map_err(|fault| internal(&fault))?;
    broker.put_document(space, name, body, None).await.map_err(refused)
}

/// Deletes a document unless it has changed meanwhile.
pub(super) async fn delete(broker: &Broker, stored: &Stored) -> Result<(), Exception> {
    let Stored { space, name, version } = stored;
    match broker.delete_document(space, name.clone(), Some(*version)).await {
        Ok(())
        | Err(ExecuteError::Refused(
            Refusal::DocumentConflict { .. } | Refusal::UnknownDocument { .. },
        )) => Ok(()),
        Err(other) => Err(refused(other)),
    }
}

/// All of them in as few log entries as they fit in.
pub(super) async fn delete_all(broker: &Broker, stored: &[Stored]) -> Result<(), Exception> {
    for some in stored.chunks(DELETED_AT_ONCE) {
        let deleted = some.iter().map(|stored| delete(broker, stored));
        futures_util::future::try_join_all(deleted).await?;
    }
    Ok(())
}

const DELETED_AT_ONCE: usize = 1_024;

/// What a client hears when the broker could not do it.
pub(super) fn refused(error: ExecuteError) -> Exception {
    let code = match &error {
        ExecuteError::Refused(
            Refusal::TooManyDocuments { .. }
            | Refusal::TooManyPartitions { .. }
            | Refusal::TooManyLeaseGroups { .. }
            | Refusal::TooManyLeaseGroupPartitions { .. }
            | Refusal::DocumentTooLarge { .. },
        ) => ReplyCode::ResourceError,
        _ => ReplyCode::InternalError,
    };
    Exception::new(code, error.to_string())
}

pub(super) fn internal(fault: &dyn std::fmt::Display) -> Exception {
    Exception::new(ReplyCode::InternalError, fault.to_string())
}

impl QueueDocument {
    /// The name of its topic.
    pub(super) fn topic<'a>(&'a self, queue: &'a str) -> &'a str {
        if self.topic.is_empty() { queue } else { &self.topic }
    }

    pub(super) fn is_of(&self, topic: &Uuid) -> bool {
        Uuid::parse_str(&self.uuid).is_ok_and(|uuid| uuid == *topic)
    }

    pub(super) fn kind(&self) -> QueueKind {
        QueueKind::named(&self.kind).unwrap_or(QueueKind::Classic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_documents_name_is_taken_apart_as_it_was_put_together() {
        for expected in [["/", "a/b", "100%"], ["", "%2F", "/%"], ["%25", "x", ""]] {
            assert_eq!(parts(&name(&expected)), expected);
        }
    }

    #[test]
    fn a_queues_document_says_what_is_unusual_and_older_ones_say_everything() {
        let uuid = "67e55044-10b1-426f-9247-bb680e5fe0c8";
        let usual = format!(r#"{{"uuid":"{uuid}"}}"#);
        let full = format!(
            r#"{{"topic":"q","uuid":"{uuid}","kind":"classic","durable":true,"auto_delete":false,"arguments":"{}"}}"#,
            STANDARD_NO_PAD.encode(usual::arguments().to_bytes()),
        );
        for text in [&usual, &full] {
            let read: QueueDocument = serde_json::from_str(text).unwrap();
            assert_eq!((read.topic("q"), read.kind()), ("q", QueueKind::Classic));
            assert!(read.durable && !read.auto_delete && read.arguments == usual::arguments());
            assert!(read.is_of(&Uuid::parse_str(uuid).unwrap()));
        }
        let mut unusual: QueueDocument = serde_json::from_str(&usual).unwrap();
        assert_eq!(serde_json::to_string(&unusual).unwrap(), usual);
        (unusual.topic, unusual.kind) = ("t".into(), "quorum".into());
        (unusual.durable, unusual.auto_delete) = (false, true);
        unusual.arguments = FieldTable::new();
        let text = serde_json::to_string(&unusual).unwrap();
        let read: QueueDocument = serde_json::from_str(&text).unwrap();
        assert_eq!((read.topic("q"), read.kind()), ("t", QueueKind::Quorum));
        assert!(!read.durable && read.auto_delete && read.arguments.is_empty());
    }
}
