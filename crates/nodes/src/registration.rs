//! How a node follows who is in the cluster, and says which boot of it runs.
//!
//! The nodes that found the cluster write all that they have seen before anybody else is let in: whichever of them comes
//! first, since one may be lost before it did. After that each node writes its own boot, address and rack whenever it is started,
//! and its rack, and which levels its program supports, again where a node of a version that does not know them has left it out. A document with another
//! directory, or a later boot, than this node's says that something is wrong with the directory: then it is left alone,
//! and the others refuse this node.

use std::collections::BTreeSet;
use std::sync::Weak;
use std::time::Duration;

use base::Levels;
use broker::{Broker, WeakBroker};
use cluster::{KnownNode, Node};
use documents::{Expect, MalformedDocument, StoreError};
use futures_util::FutureExt;
use links::NodeId;
use tokio::time::timeout;

use crate::registry::{Can, Registration, Registry, SPACE, Standing};

/// Before the next try, while this node is not registered or not all that founded the cluster are.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

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

/// Registers this node, and lets in whom the catalog has. Ends with the broker, and keeps the node no longer than
/// anybody else does: the node has the groups, and with them the catalog that this waits for.
pub(crate) async fn follow(broker: WeakBroker, cluster: Weak<Node>, rack: Option<String>) {
    let mut known = Vec::new();
    let mut registered = false;
    let Some(watch) = broker.upgrade().map(|broker| broker.watch_documents(&[SPACE])) else {
        return;
    };
    loop {
        watch.take();
        let Some((broker, cluster)) = broker.upgrade().zip(cluster.upgrade()) else { return };
        let seen = match look(&broker, &cluster, &rack, &mut known, registered).await {
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

/// Whether this node is registered with its boot.
async fn look(
    broker: &Broker,
    cluster: &Node,
    rack: &Option<String>,
    known: &mut Vec<KnownNode>,
    registered: bool,
) -> Result<bool, RegisterError> {
    let registry = Registry::read(broker)?;
    // They are written one after the other: until all are, nobody is refused.
    let complete = cluster.members().voters.keys().all(|id| registry.nodes.contains_key(id));
    if !complete && !cluster.has_joined() && cluster.all_seen().now_or_never().is_some() {
        let seen = cluster.known().into_iter();
        for node in seen.filter(|node| !registry.nodes.contains_key(&node.id.0)) {
            let KnownNode { id, directory, boot, address } = node;
            // Of the others it does not know in which rack they are: they say that themselves.
            let rack = rack.clone().filter(|_| id == cluster.identity().at.node);
            let (standing, levels) = (Standing::Active, cluster.levels_of(id));
            // Of the others it does not know which programs they are: they say that themselves.
            let can = match id == cluster.identity().at.node {
                true => own_can(broker),
                false => Can { levels: levels.unwrap_or(Levels::UNTOLD), ..Can::default() },
            };
            let node = Registration { directory, boot, address, standing, can, rack };
            put(broker, id, &node, 0).await?;
        }
        return Ok(false);
    }
    if !complete {
        return Ok(registered);
    }
    let stands = |standing: Standing| matches!(standing, Standing::Active);
    let resting = registry.present().filter(|(_, node)| !stands(node.standing));
    cluster.rest(resting.map(|(id, _)| NodeId(id)).collect::<BTreeSet<_>>());
    cluster.know_former(registry.former());
    let in_catalog = registry.known();
    if *known != in_catalog {
        cluster.know(in_catalog.clone()).await?;
        *known = in_catalog;
    }
    let (at, can) = (cluster.identity().at, own_can(broker));
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
            // The next look finds it, unless somebody else wrote at the same time.
            Ok(false)
        }
        Some(own) => Ok(registered || own.node.boot == at.boot),
        None => Ok(registered),
    }
}

fn own_can(broker: &Broker) -> Can {
    Can::these(broker.level().can())
}

/// Whether the document of this boot has another rack than the node is in, or another program than it runs.
fn differs(own: &Registration, boot: u64, can: &Can, rack: &Option<String>) -> bool {
    own.boot == boot && (own.rack != *rack || own.can != *can)
}

async fn put(
    broker: &Broker,
    node: NodeId,
    body: &Registration,
    version: u64,
) -> Result<(), StoreError> {
    let (name, expected) = (node.0.to_string(), Expect::Version(version));
    match documents::store::put(broker, SPACE, name, body, expected).await {
        // Somebody did it before.
        Err(error) if error.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}
