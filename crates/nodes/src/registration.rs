//! Follows the registered nodes, and registers this node's boot.
//!
//! The first founding node writes the documents of all founders before any other node is admitted, because a founder
//! may be lost before it writes its own. Later each node writes its own boot, address and rack at each start. It also
//! restores its rack and its supported levels if a node of an older version has dropped these fields. If the document
//! has another directory or a later boot than this node, the node's directory is wrong. The node then leaves the
//! document alone, and the others reject the node.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use base::Levels;
use broker::{Broker, WeakBroker};
use cluster::{KnownNode, Node};
use documents::{MalformedDocument, StoreError, WritePrecondition};
use futures_util::FutureExt;
use links::NodeId;
use tokio::time::timeout;

use crate::registry::{NodeLifecycle, ProgramLevels, Registration, Registry, SPACE};

/// Delay before the next attempt, while this node or a founding node is not registered.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Reason why a node is not registered.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    #[error(transparent)]
    Malformed(#[from] MalformedDocument),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the list of nodes cannot be kept: {0}")]
    Directory(#[from] cluster::DirectoryError),
}

/// Registers this node, and admits the registered nodes. Ends with the broker. It holds the node only weakly, because
/// the node owns the groups, and with them the catalog that this task waits for.
pub(crate) async fn follow(broker: WeakBroker, cluster: Weak<Node>, rack: Option<String>) {
    let mut known = Vec::new();
    let mut registered = false;
    let Some(watch) = broker.upgrade().map(|broker| broker.watch_documents(&[SPACE])) else {
        return;
    };
    loop {
        watch.take();
        let Some((broker, cluster)) = broker.upgrade().zip(cluster.upgrade()) else { return };
        let seen = match is_registered(&broker, &cluster, &rack, &mut known, registered).await {
            Ok(done) => {
                registered |= done;
                true
            }
            // The catalog may have no leader at the moment.
            Err(error) => {
                tracing::debug!(%error, "the nodes cannot be registered yet");
                false
            }
        };
        drop((broker, cluster));
        let changed = match seen && registered {
            true => watch.changed().await,
            false => timeout(AGAIN_AFTER, watch.changed()).await.unwrap_or(true),
        };
        if !changed {
            return;
        }
    }
}

/// Returns whether this node is registered with its boot.
async fn is_registered(
    broker: &Broker,
    cluster: &Node,
    rack: &Option<String>,
    known: &mut Vec<KnownNode>,
    registered: bool,
) -> Result<bool, RegisterError> {
    let registry = Registry::read(broker)?;
    // Founders are registered one after the other: until all are, no node is rejected.
    let complete = cluster.members().voters.keys().all(|id| registry.nodes.contains_key(id));
    if !complete && !cluster.has_joined() && cluster.all_seen().now_or_never().is_some() {
        let seen = cluster.known().into_iter();
        for node in seen.filter(|node| !registry.nodes.contains_key(&node.id.0)) {
            let KnownNode { id, directory, boot, address } = node;
            // This node does not know the racks of the others; they write their own.
            let rack = rack.clone().filter(|_| id == cluster.identity().at.node);
            let (standing, levels) = (NodeLifecycle::Active, cluster.levels_of(id));
            // This node does not know the programs of the others; they write their own.
            let can = match id == cluster.identity().at.node {
                true => program_levels(broker),
                false => ProgramLevels {
                    levels: levels.unwrap_or(Levels::UNTOLD),
                    ..ProgramLevels::default()
                },
            };
            let node = Registration { directory, boot, address, standing, can, rack };
            put(broker, id, &node, 0).await?;
        }
        return Ok(false);
    }
    if !complete {
        return Ok(registered);
    }
    let stands = |standing: NodeLifecycle| matches!(standing, NodeLifecycle::Active);
    let resting = registry.present().filter(|(_, node)| !stands(node.standing));
    cluster.rest(resting.map(|(id, _)| NodeId(id)).collect::<BTreeSet<_>>());
    cluster.know_former(registry.former());
    let in_catalog = registry.known();
    if *known != in_catalog {
        cluster.know(in_catalog.clone()).await?;
        *known = in_catalog;
    }
    let (at, can) = (cluster.identity().at, program_levels(broker));
    let own = registry.nodes.get(&at.node.0).filter(|own| own.node.directory == at.directory);
    match own {
        Some(own) if own.node.boot < at.boot || differs(&own.node, at.boot, &can, rack) => {
            if let (Some(was), true) = (&own.node.rack, own.node.rack != *rack) {
                let now = rack.as_deref().unwrap_or("none");
                tracing::info!(was, now, "this node is in another rack than before");
            }
            let (address, rack) = (cluster.address().to_owned(), rack.clone());
            let now = Registration { boot: at.boot, address, can, rack, ..own.node.clone() };
            put(broker, at.node, &now, own.version).await?;
            // The next look finds it, unless another write came first.
            Ok(false)
        }
        Some(own) => Ok(registered || own.node.boot == at.boot),
        None => Ok(registered),
    }
}

fn program_levels(broker: &Broker) -> ProgramLevels {
    ProgramLevels::these(broker.level().can())
}

/// Whether the document of this boot has another rack or another program than the node.
fn differs(own: &Registration, boot: u64, can: &ProgramLevels, rack: &Option<String>) -> bool {
    own.boot == boot && (own.rack != *rack || own.can != *can)
}

async fn put(
    broker: &Broker,
    node: NodeId,
    body: &Registration,
    version: u64,
) -> Result<(), StoreError> {
    let (name, expected) = (node.0.to_string(), WritePrecondition::Version(version));
    match documents::store::put(broker, SPACE, name, body, expected).await {
        // Another node wrote it first.
        Err(error) if error.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}
