//! A node that belongs to no cluster yet asks another one which it will be part of.
//!
//! It has no links: what it is called in them it only learns by this. So it makes a connection for one question,
//! which leaves no trace on the other side.

use std::time::Duration;

use tokio::time::timeout;
use uuid::Uuid;
use world::World;

use crate::end::ConnectError;
use crate::handshake;
use crate::identity::{DirectoryIdentity, Identity, JOINING, Joining, NodeId};
use crate::link::dial;
use crate::security::Security;

/// Who the node at `HOST:PORT` is, in particular of which cluster. `identity` is who asks; its cluster is one that
/// only those who ask the same have, which the other side decides by ([`crate::Admission::admit_newcomer`]).
/// Takes no longer than `within`: then it is [`ConnectError::Unanswered`].
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

/// Asks the node at `HOST:PORT` to join its cluster: answers who it is, and which number this node has from now on.
/// [`crate::Refusal::JoinPending`] says that it is to ask again. `run` is this process's.
pub async fn join(
    world: &World,
    security: &Security,
    address: &str,
    joining: &Joining,
    run: Uuid,
    within: Duration,
) -> Result<(Identity, NodeId), ConnectError> {
    let Joining { directory, boot, levels, .. } = *joining;
    let at = DirectoryIdentity { cluster: JOINING, node: NodeId(0), directory, boot, epoch: 0 };
    let identity = Identity { at, run, levels };
    let asking = async {
        let stream = dial(world.net, address).await?;
        let mut wire = security.connect(stream, address).await?;
        handshake::join(&mut wire, &identity, &joining.address).await
    };
    timeout(within, asking).await.unwrap_or(Err(ConnectError::Unanswered))
}
