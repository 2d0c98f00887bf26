//! The catalog's documents of nodes.
//!
//! The founder writes all that it has seen before anybody else is let in. After that each node writes its own boot
//! and address whenever it is started. A document with another directory, or a later boot, than this node's says
//! that something is wrong with the directory: then it is left alone, and the others refuse this node.

use std::sync::Arc;
use std::time::Duration;

use broker::{Broker, WeakBroker};
use cluster::{KnownNode, Node};
use documents::{Expect, Found, MalformedDocument, StoreError};
use links::NodeId;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use uuid::Uuid;

/// Where the documents are.
const SPACE: &str = "nodes";
/// Before the next try, while this node is not registered or the founder has not written all.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// A node as the catalog has it, by its number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Registration {
    directory: Uuid,
    boot: u64,
    /// `HOST:PORT` of its peer port.
    address: String,
}

/// Why a node is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(transparent)]
    Malformed(#[from] MalformedDocument),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the list of nodes cannot be kept: {0}")]
    Directory(#[from] cluster::DirectoryError),
}

/// Registers this node, and lets in whom the catalog has. Ends with the broker.
pub(crate) async fn follow(broker: WeakBroker, cluster: Arc<Node>) {
    let mut known = Vec::new();
    let mut registered = false;
    let Some(watch) = broker.upgrade().map(|broker| broker.watch_documents(&[SPACE])) else {
        return;
    };
    loop {
        watch.take();
        let Some(broker) = broker.upgrade() else { return };
        let seen = match look(&broker, &cluster, &mut known, registered).await {
            Ok(done) => {
                registered |= done;
                true
            }
            // Nobody may lead the catalog just now.
            Err(error) => {
                tracing::debug!(%error, "the nodes cannot be registered yet");
                false
            }
        };
        drop(broker);
        let changed = match seen && registered {
            true => watch.changed().await,
            false => timeout(AGAIN_AFTER, watch.changed()).await.unwrap_or(true),
        };
        if !changed {
            return;
        }
    }
}

/// Whether this node is registered with its boot.
async fn look(
    broker: &Broker,
    cluster: &Node,
    known: &mut Vec<KnownNode>,
    registered: bool,
) -> Result<bool, RegisterError> {
    let found = documents::store::read_all::<Registration>(broker, SPACE)?;
    let in_catalog: Vec<KnownNode> = found.iter().filter_map(known_node).collect();
    let is_there = |id: u64| in_catalog.iter().any(|node| node.id.0 == id);
    // The founder writes one after the other: until it has written all, nobody is refused.
    let complete = cluster.members().voters.keys().all(|id| is_there(*id));
    if !complete && cluster.is_founder() {
        cluster.all_seen().await;
        for node in cluster.known().into_iter().filter(|node| !is_there(node.id.0)) {
            put(broker, &node, 0).await?;
        }
        return Ok(false);
    }
    if complete && *known != in_catalog {
        cluster.know(in_catalog.clone()).await?;
        *known = in_catalog;
    }
    if registered || !complete {
        return Ok(registered);
    }
    let Some(own) = own(cluster) else { return Ok(false) };
    let place = found.iter().position(|it| known_node(it).is_some_and(|it| it.id == own.id));
    match place.map(|place| &found[place]) {
        Some(there) if there.body.directory == own.directory && there.body.boot < own.boot => {
            put(broker, &own, there.stored.version).await?;
            // The next look finds it, unless somebody else wrote at the same time.
            Ok(false)
        }
        Some(there) => Ok(there.body.directory == own.directory && there.body.boot == own.boot),
        None => Ok(false),
    }
}

async fn put(broker: &Broker, node: &KnownNode, version: u64) -> Result<(), StoreError> {
    let KnownNode { id, directory, boot, address } = node;
    let body = Registration { directory: *directory, boot: *boot, address: address.clone() };
    let name = id.0.to_string();
    let put = documents::store::put(broker, SPACE, name, &body, Expect::Version(version)).await;
    match put {
        // Somebody did it before.
        Err(error) if error.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}

fn own(cluster: &Node) -> Option<KnownNode> {
    let at = cluster.identity().at;
    let known = cluster.known().into_iter().find(|node| node.id == at.node)?;
    Some(KnownNode { directory: at.directory, boot: at.boot, ..known })
}

fn known_node(found: &Found<Registration>) -> Option<KnownNode> {
    let id = NodeId(found.stored.name.parse().ok()?);
    let Registration { directory, boot, address } = found.body.clone();
    Some(KnownNode { id, directory, boot, address })
}
