//! A node that belongs to no cluster yet asks another one which it will be part of.
//!
//! It has no links: what it is called in them it only learns by this. So it makes a connection for one question,
//! which leaves no trace on the other side.

use std::time::Duration;

use tokio::time::timeout;
use world::World;

use crate::end::ConnectError;
use crate::handshake;
use crate::identity::Identity;
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
