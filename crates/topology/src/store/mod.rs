//! Documents of the topology: one small document for each entity.
//!
//! Bindings are stored in documents of up to [`BINDINGS_PER_DOCUMENT`] for each pair of an exchange and a
//! destination. So a queue with a few bindings is one document and is deleted at once, and a hundred thousand
//! bindings are not rewritten because of one.
//!
//! Dependent documents change by one command of the log: a queue's document with its topic and its lease group, and a
//! removal with the documents of its bindings ([`crate::entities::removal`]).

mod deferred;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use values::Table;

use crate::exchange::Destination;
use crate::policy::PolicyScope;
use crate::queue::QueueKind;
pub(crate) use deferred::{DeferredWork, DocumentId};

// The spaces have a protocol's name because they had it when the first documents were written.
pub(crate) const VHOSTS: &str = "amqp.vhosts";
pub(crate) const VHOST_METADATA: &str = "amqp.vhost-metadata";
pub(crate) const EXCHANGES: &str = "amqp.exchanges";
pub(crate) const QUEUES: &str = "amqp.queues";
pub(crate) const BINDINGS: &str = "amqp.bindings";
pub(crate) const POLICIES: &str = "amqp.policies";
pub(crate) const OPERATOR_POLICIES: &str = "amqp.operator-policies";
pub(crate) const USES: &str = "amqp.queue-uses";

/// All spaces.
pub(crate) const SPACES: &[&str] =
    &[VHOSTS, VHOST_METADATA, POLICIES, OPERATOR_POLICIES, EXCHANGES, QUEUES, USES, BINDINGS];

/// The document spaces of a vhost's contents.
pub(crate) const IN_VHOSTS: [&str; 7] =
    [VHOST_METADATA, POLICIES, OPERATOR_POLICIES, EXCHANGES, QUEUES, USES, BINDINGS];

/// A run of a node; its transient entities are deleted with it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) node: u32,
    pub(crate) boot: u64,
}

/// Owner of a transient entity. Earlier versions had a single node and left it out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct OwnerDocument {
    #[serde(flatten)]
    pub(crate) run: Run,
    /// The connection, or session, of that node which alone may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connection: Option<u64>,
}

/// A node's use of a queue that is deleted when unused. One per queue and node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UseDocument {
    #[serde(flatten)]
    pub(crate) run: Run,
}

pub(crate) fn use_name(vhost: &str, queue: &str, node: u32) -> String {
    documents::join(&[vhost, queue, &node.to_string()])
}

/// Prefix of the document names of one entity: the bindings of an exchange, the uses of a queue.
pub(crate) fn prefix(vhost: &str, name: &str) -> String {
    documents::join(&[vhost, name, ""])
}

pub(crate) const fn policy_space(scope: PolicyScope) -> &'static str {
    match scope {
        PolicyScope::User => POLICIES,
        PolicyScope::Operator => OPERATOR_POLICIES,
    }
}

pub(crate) const BINDINGS_PER_DOCUMENT: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct VirtualHostDocument {}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ExchangeDocument {
    pub(crate) kind: String,
    pub(crate) auto_delete: bool,
    pub(crate) internal: bool,
    #[serde(with = "encoded_table")]
    pub(crate) arguments: Table,
    /// Otherwise it is deleted with its owner's run.
    #[serde(default = "usual::durable", skip_serializing_if = "bool::clone")]
    pub(crate) durable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<OwnerDocument>,
}

/// The machine keeps one in memory for each queue, so default values are left out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct QueueDocument {
    /// Empty: the topic has the queue's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) topic: String,
    /// The topic's UUID as text, which distinguishes it from a later topic of the name.
    pub(crate) uuid: String,
    #[serde(default = "usual::kind", skip_serializing_if = "usual::is_kind")]
    pub(crate) kind: String,
    /// Otherwise it is deleted with its owner.
    #[serde(default = "usual::durable", skip_serializing_if = "bool::clone")]
    pub(crate) durable: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) auto_delete: bool,
    #[serde(
        default = "usual::arguments",
        skip_serializing_if = "usual::is_arguments",
        with = "encoded_table"
    )]
    pub(crate) arguments: Table,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<OwnerDocument>,
}

/// Default values of a queue declared by its name only.
mod usual {
    use super::{QueueKind, Table};
    use crate::arguments::QUEUE_TYPE;

    pub(crate) fn kind() -> String {
        QueueKind::Classic.name().to_owned()
    }

    pub(crate) fn is_kind(kind: &str) -> bool {
        kind == QueueKind::Classic.name()
    }

    pub(crate) const fn durable() -> bool {
        true
    }

    pub(crate) fn arguments() -> Table {
        let mut arguments = Table::new();
        arguments.push(QUEUE_TYPE, QueueKind::Classic.name());
        arguments
    }

    pub(crate) fn is_arguments(given: &Table) -> bool {
        *given == arguments()
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BindingsDocument {
    pub(crate) bindings: Vec<BindingDocument>,
    /// The identity of the document's exchange and destination, so that it does not apply to later ones of the same
    /// names. Versions without it deleted such documents together with their ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ends: Option<BindingEnds>,
}

/// Identity of a binding's ends, which distinguishes them from earlier and later ones of the same names: an
/// exchange's version, and the number of a queue's topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BindingEnds {
    pub(crate) source: u64,
    pub(crate) destination: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BindingDocument {
    pub(crate) key: String,
    #[serde(with = "encoded_table")]
    pub(crate) arguments: Table,
}

/// A table in wire encoding, which preserves the types of its values.
mod encoded_table {
    use serde::de::Error as _;
    use serde::{Deserializer, Serializer};

    use super::{Deserialize, Engine, STANDARD_NO_PAD, Table};

    pub(super) fn serialize<S: Serializer>(table: &Table, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD_NO_PAD.encode(table.to_bytes()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Table, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)?;
        Table::decode(&bytes).map_err(D::Error::custom)
    }
}

pub(crate) fn bindings_name(
    vhost: &str,
    source: &str,
    destination: &Destination,
    chunk: u32,
) -> String {
    let (kind, to) = match destination {
        Destination::Queue(queue) => ("queue", queue),
        Destination::Exchange(exchange) => ("exchange", exchange),
    };
    documents::join(&[vhost, source, kind, to, &chunk.to_string()])
}

impl QueueDocument {
    /// The name of its topic.
    pub(crate) fn topic<'a>(&'a self, queue: &'a str) -> &'a str {
        if self.topic.is_empty() { queue } else { &self.topic }
    }

    pub(crate) fn is_of(&self, topic: &Uuid) -> bool {
        Uuid::parse_str(&self.uuid).is_ok_and(|uuid| uuid == *topic)
    }

    pub(crate) fn kind(&self) -> QueueKind {
        QueueKind::named(&self.kind).unwrap_or(QueueKind::Classic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_of_documents_is_stable() {
        let mut arguments = Table::new();
        arguments.push("x-match", "any");
        arguments.push("n", 5_i64);
        let encoded = "B3gtbWF0Y2hTAAAAA2FueQFubAAAAAAAAAAF";
        let binding = BindingDocument { key: "a.b".to_owned(), arguments: arguments.clone() };
        let text = serde_json::to_string(&BindingsDocument {
            bindings: vec![binding.clone()],
            ends: None,
        })
        .unwrap();
        assert_eq!(text, format!(r#"{{"bindings":[{{"key":"a.b","arguments":"{encoded}"}}]}}"#));
        let exchange = ExchangeDocument {
            kind: "topic".to_owned(),
            auto_delete: true,
            internal: false,
            arguments,
            durable: true,
            owner: None,
        };
        let text = serde_json::to_string(&exchange).unwrap();
        let expected = format!(
            r#"{{"kind":"topic","auto_delete":true,"internal":false,"arguments":"{encoded}"}}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::to_string(&VirtualHostDocument {}).unwrap(), "{}");
        let ends = Some(BindingEnds { source: 7, destination: 3 });
        let text = serde_json::to_string(&BindingsDocument { bindings: vec![], ends }).unwrap();
        assert_eq!(text, r#"{"bindings":[],"ends":{"source":7,"destination":3}}"#);
        let run = Run { node: 2, boot: 9 };
        assert_eq!(serde_json::to_string(&UseDocument { run }).unwrap(), r#"{"node":2,"boot":9}"#);
        let owner = OwnerDocument { run, connection: Some(4) };
        let text = serde_json::to_string(&owner).unwrap();
        assert_eq!(text, r#"{"node":2,"boot":9,"connection":4}"#);
        assert_eq!(serde_json::from_str::<OwnerDocument>(&text).unwrap(), owner);
        assert_eq!((&*use_name("/", "q", 2), &*prefix("/", "q")), ("%2F/q/2", "%2F/q/"));
        let (to, chunk) = (Destination::Queue("q/1".into()), 3);
        assert_eq!(bindings_name("/", "amq.topic", &to, chunk), "%2F/amq.topic/queue/q%2F1/3");
    }

    #[test]
    fn queue_document_omits_defaults_and_reads_older_complete_ones() {
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
        unusual.arguments = Table::new();
        let text = serde_json::to_string(&unusual).unwrap();
        let read: QueueDocument = serde_json::from_str(&text).unwrap();
        assert_eq!((read.topic("q"), read.kind()), ("t", QueueKind::Quorum));
        assert!(!read.durable && read.auto_delete && read.arguments.is_empty());
    }
}
