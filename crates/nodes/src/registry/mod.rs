//! Documents of nodes in the catalog: identity and wanted state of each node, and of pinned shards ([`placements`]).
//!
//! A removed node keeps its document, so that its number is never reused and its directory never returns. Every
//! decision of an operator is based on all documents, and fails if another decision is made meanwhile: each decision
//! also changes one common document, at the version that it has read.

pub(crate) mod placements;

use std::collections::BTreeMap;
use std::time::Duration;

use base::level::PROGRAM;
use base::{Level, Levels};
use broker::level::{self, LevelDocument};
use broker::{Broker, Unavailable};
use cluster::KnownNode;
use documents::{Change, LoadedDocument, MalformedDocument, StoreError, WritePrecondition};
use links::NodeId;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use uuid::Uuid;

use placements::Placements;

/// Name space of the documents.
pub(crate) const SPACE: &str = "nodes";
/// Name space of the document that each decision changes.
pub(crate) const DECISIONS: &str = "membership";
pub(crate) const LAST_DECISION: &str = "last";
/// Attempts of a decision that conflicts with other ones.
pub(crate) const TRIES: u32 = 20;
pub(crate) const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// A node in the catalog; its number is the document's name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) directory: Uuid,
    pub(crate) boot: u64,
    /// `HOST:PORT` of its peer port.
    pub(crate) address: String,
    #[serde(default)]
    pub(crate) standing: NodeLifecycle,
    /// Levels that its program supports, as of its last start.
    #[serde(default, skip_serializing_if = "ProgramLevels::is_untold")]
    pub(crate) can: ProgramLevels,
    /// Rack that the node was started with; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rack: Option<String>,
}

/// Levels that a node's program can replay and write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ProgramLevels {
    pub(crate) levels: Levels,
    /// Program name with version.
    pub(crate) program: String,
}

impl ProgramLevels {
    /// This program, with these levels.
    pub(crate) fn these(levels: Levels) -> Self {
        Self { levels, program: PROGRAM.to_owned() }
    }

    fn is_untold(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for ProgramLevels {
    /// A program that has not reported its levels.
    fn default() -> Self {
        Self { levels: Levels::UNTOLD, program: String::new() }
    }
}

/// Wanted state of a node.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NodeLifecycle {
    #[default]
    Active,
    /// It keeps its replicas, and leads no shard.
    Drained,
    /// It releases all replicas. If it is replaced, it does so once the replacement has them.
    Leaving { replaced_by: Option<u64> },
    /// It was a node of the cluster.
    Removed,
}

#[derive(Serialize)]
pub(crate) struct Decision<'a> {
    pub(crate) was: &'a str,
}

/// All documents at one point in time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    pub(crate) nodes: BTreeMap<u64, RegisteredNode>,
    /// Version of the document that each decision changes; 0: no decision yet.
    decided: u64,
    /// Feature level of the cluster, and the version of its document; 0: there is none.
    pub(crate) level: (Level, u64),
    /// Shards pinned by operators.
    pub(crate) placements: Placements,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RegisteredNode {
    pub(crate) version: u64,
    pub(crate) node: Registration,
}

impl Registry {
    pub(crate) fn read(broker: &Broker) -> Result<Self, MalformedDocument> {
        let found = documents::store::read_all::<Registration>(broker, SPACE)?;
        let nodes = found.into_iter().filter_map(|LoadedDocument { stored, body }| {
            let registered = RegisteredNode { version: stored.version, node: body };
            Some((stored.name.parse().ok()?, registered))
        });
        let nodes = nodes.collect();
        let decided = documents::store::version(broker, DECISIONS, LAST_DECISION).unwrap_or(0);
        let level = documents::store::read::<LevelDocument>(broker, level::SPACE, level::NAME)?;
        let level =
            level.map_or((Level::FIRST, 0), |found| (found.body.level, found.stored.version));
        let placements = placements::read(broker)?;
        Ok(Self { nodes, decided, level, placements })
    }

    /// Makes concurrent decisions conflict, so that one of two is retried.
    pub(crate) fn note(&self, change: &mut Change, words: &str) -> Result<(), StoreError> {
        let (last, expected) = (LAST_DECISION.to_owned(), WritePrecondition::Version(self.decided));
        change.put(DECISIONS, last, &Decision { was: words }, expected)
    }

    /// Nodes that are not removed.
    pub(crate) fn present(&self) -> impl Iterator<Item = (u64, &Registration)> {
        let nodes = self.nodes.iter().map(|(id, registered)| (*id, &registered.node));
        nodes.filter(|(_, node)| node.standing != NodeLifecycle::Removed)
    }

    /// Removed nodes.
    pub(crate) fn removed(&self) -> impl Iterator<Item = u64> {
        let removed =
            self.nodes.iter().filter(|(_, it)| it.node.standing == NodeLifecycle::Removed);
        removed.map(|(id, _)| *id)
    }

    /// Nodes that are not removed, in the form that links use.
    pub(crate) fn known(&self) -> Vec<KnownNode> {
        let known = |(id, node): (u64, &Registration)| {
            let Registration { directory, boot, address, .. } = node.clone();
            KnownNode { id: NodeId(id), directory, boot, address }
        };
        self.present().map(known).collect()
    }

    /// Directories of removed nodes.
    pub(crate) fn former(&self) -> BTreeMap<Uuid, NodeId> {
        let removed =
            self.nodes.iter().filter(|(_, it)| it.node.standing == NodeLifecycle::Removed);
        removed.map(|(id, it)| (it.node.directory, NodeId(*id))).collect()
    }

    /// A number that no node has or had.
    pub(crate) fn next_number(&self) -> u64 {
        self.nodes.keys().next_back().map_or(1, |last| last + 1)
    }
}

/// Reason why a decision was not made.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    #[error(transparent)]
    Malformed(#[from] MalformedDocument),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "nobody leads the catalog just now, and without that nothing is decided ({0}); look at `postroad cluster \
         status`"
    )]
    Unavailable(#[from] Unavailable),
    #[error("other decisions are made all the time: try again")]
    Overtaken,
    /// The current state does not permit it.
    #[error("{0}")]
    Refused(String),
}

/// New documents of some nodes.
pub(crate) type RegistrationChanges = BTreeMap<u64, Registration>;

/// Decides on the current state and writes the decision. Retries with fresh state if another decision was made
/// meanwhile. `words` are stored with the decision. Nothing is written if nothing changes.
pub(crate) async fn decide(
    broker: &Broker,
    words: &str,
    decision: impl Fn(&Registry) -> Result<RegistrationChanges, DecideError>,
) -> Result<(), DecideError> {
    for _ in 0..TRIES {
        broker.catalog_is_current().await?;
        let registry = Registry::read(broker)?;
        let mut decided = decision(&registry)?;
        let is_so = |id: &u64, node: &Registration| {
            registry.nodes.get(id).is_some_and(|there| there.node == *node)
        };
        decided.retain(|id, node| !is_so(id, node));
        if decided.is_empty() {
            return Ok(());
        }
        let mut change = Change::new();
        for (id, node) in &decided {
            let version = registry.nodes.get(id).map_or(0, |there| there.version);
            change.put(SPACE, id.to_string(), node, WritePrecondition::Version(version))?;
        }
        registry.note(&mut change, words)?;
        match change.make(broker).await {
            Err(error) if error.is_conflict() => sleep(AGAIN_AFTER).await,
            made => return Ok(made?),
        }
    }
    Err(DecideError::Overtaken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_of_an_earlier_version_means_an_active_node() {
        let earlier =
            r#"{"directory":"00000000-0000-0000-0000-000000000001","boot":2,"address":"a:1"}"#;
        let node: Registration = serde_json::from_str(earlier).expect("a document");
        assert_eq!((node.standing, &node.rack), (NodeLifecycle::Active, &None));
        assert_eq!(node.can.levels, Levels::UNTOLD);
        let leaving =
            Registration { standing: NodeLifecycle::Leaving { replaced_by: Some(4) }, ..node };
        let written = serde_json::to_string(&leaving).expect("written");
        assert!(written.ends_with(r#""standing":{"leaving":{"replaced_by":4}}}"#), "{written}");
        assert_eq!(serde_json::from_str::<Registration>(&written).expect("read"), leaving);
        let in_rack = Registration { rack: Some("r1".to_owned()), ..leaving };
        let written = serde_json::to_string(&in_rack).expect("written");
        assert_eq!(serde_json::from_str::<Registration>(&written).expect("read"), in_rack);
        let levels = Levels { min: Level(2), max: Level(3) };
        let can = ProgramLevels { levels, program: "postroad 3".to_owned() };
        let told = Registration { can, ..in_rack };
        let written = serde_json::to_string(&told).expect("written");
        let expected = r#""can":{"levels":{"min":2,"max":3},"program":"postroad 3"}"#;
        assert!(written.contains(expected), "{written}");
        assert_eq!(serde_json::from_str::<Registration>(&written).expect("read"), told);
    }

    #[test]
    fn node_number_is_not_reused() {
        let node = Registration {
            directory: Uuid::from_u128(7),
            boot: 1,
            address: "a:1".to_owned(),
            standing: NodeLifecycle::Removed,
            can: ProgramLevels::default(),
            rack: None,
        };
        let mut registry = Registry::default();
        assert_eq!(registry.next_number(), 1);
        registry.nodes.insert(5, RegisteredNode { version: 1, node });
        assert_eq!(registry.next_number(), 6);
        assert_eq!(registry.former(), BTreeMap::from([(Uuid::from_u128(7), NodeId(5))]));
        assert_eq!(registry.known(), []);
    }
}
