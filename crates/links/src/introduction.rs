//! A node without a cluster asks another node which cluster it will be part of.
//!
//! It has no links yet: its identity in them follows from the reply. So it opens a connection for one request,
//! which leaves no trace on the other side.

use std::time::Duration;

use tokio::time::timeout;
use uuid::Uuid;
use world::World;

use crate::end::ConnectError;
use crate::handshake;
use crate::identity::{DirectoryIdentity, Identity, JOINING, JoiningNode};
use crate::link::dial;
use crate::node_id::NodeId;
use crate::security::Security;

/// Returns the identity of the node at `HOST:PORT`, in particular its cluster. `identity` is the caller's; its
/// cluster is provisional, shared only by nodes with the same request, and the other side decides by it
/// ([`crate::Admission::admit_newcomer`]). Takes no longer than `within`: then it is [`ConnectError::Unanswered`].
pub async fn introduce(
    world: &World,
    security: &Security,
    address: &str,
    identity: &Identity,
    within: Duration,
) -> Result<Identity, ConnectError> {
    let asking = async {
        let stream = dial(world.net, address).await?;
        let mut wire = security.connect(stream, address).await?;
        handshake::introduce(&mut wire, identity).await
    };
    timeout(within, asking).await.unwrap_or(Err(ConnectError::Unanswered))
}

/// Joins the cluster of the node at `HOST:PORT`: returns that node's identity, and the number of this node from
/// now on. [`crate::Refusal::JoinPending`] means that it has to retry. `run` is this process's.
pub async fn join(
    world: &World,
    security: &Security,
    address: &str,
    joining: &JoiningNode,
    run: Uuid,
    within: Duration,
) -> Result<(Identity, NodeId), ConnectError> {
    let JoiningNode { directory, boot, levels, .. } = *joining;
    let at = DirectoryIdentity { cluster: JOINING, node: NodeId(0), directory, boot, epoch: 0 };
    let identity = Identity { at, run, levels };
    let asking = async {
        let stream = dial(world.net, address).await?;
        let mut wire = security.connect(stream, address).await?;
        handshake::join(&mut wire, &identity, &joining.address).await
    };
    timeout(within, asking).await.unwrap_or(Err(ConnectError::Unanswered))
}
