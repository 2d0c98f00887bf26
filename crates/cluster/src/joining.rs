//! A node that joins a founded cluster.
//!
//! It has nothing but its directory's id, which it draws first and keeps. With that it repeats a request to a
//! member until the catalog has assigned it a number. An applicant gets one number only, because the document that
//! assigns it has the directory's id. A node that stops in between retries with the same id, and gets the same
//! number.

use std::time::Duration;

use base::Levels;
use base::limits::{LINK_CONNECTS_WITHIN, LINK_HANDSHAKE_WITHIN};
use links::{
    ConnectError, DirectoryIdentity, Identity, JoiningNode, NodeId, PeerListener, Refusal,
    introduce, join,
};
use tokio::time::sleep;
use tracing::info;
use uuid::Uuid;
use world::{Instant, World};

use crate::directory::{Content, Record};
use crate::start_error::{NodeStartError, needs_an_operator};

/// Time limit of one request to a member.
const ASKED_WITHIN: Duration = LINK_CONNECTS_WITHIN.saturating_add(LINK_HANDSHAKE_WITHIN);
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// A node is removed if most of the members that it queries say so for this long.
pub(crate) const REFUSED_FOR: Duration = Duration::from_secs(5);
/// Interval of the log line of a waiting node.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// The reply to a node that joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct JoinReply {
    pub(crate) node: NodeId,
    pub(crate) cluster: Uuid,
    /// The member that replied.
    pub(crate) by: NodeId,
    pub(crate) known: Record,
}

/// Sends requests to members, by their addresses in turn, until one of them has a number for this node. Other
/// peers get no reply meanwhile.
pub(crate) async fn learn_number(
    world: &World,
    listener: &PeerListener,
    content: &Content,
    address: &str,
    members: &[String],
    levels: Levels,
) -> Result<JoinReply, NodeStartError> {
    let Content { directory, boot, .. } = *content;
    let joining = JoiningNode { directory, boot, address: address.to_owned(), levels };
    let asking = request_number(world, listener, &joining, members);
    tokio::select! {
        biased;
        answer = asking => answer,
        never = listener.turn_away() => match never {},
    }
}

async fn request_number(
    world: &World,
    listener: &PeerListener,
    joining: &JoiningNode,
    members: &[String],
) -> Result<JoinReply, NodeStartError> {
    let (run, mut said) = (world.entropy.uuid(), None);
    loop {
        for member in members {
            let asked = join(world, listener.security(), member, joining, run, ASKED_WITHIN).await;
            let error = match asked {
                Ok((by, node)) => {
                    let DirectoryIdentity { cluster, node: by, directory, boot, epoch: _ } = by.at;
                    let directory = Some(directory);
                    let known = Record { address: member.clone(), directory, boot };
                    return Ok(JoinReply { node, cluster, by, known });
                }
                Err(error) => error,
            };
            let is_pending = matches!(&error, ConnectError::Refused(Refusal::JoinPending { .. }));
            if !is_pending && needs_an_operator(&error) {
                return Err(NodeStartError::NotJoined { member: member.clone(), error });
            }
            let is_due = said.is_none_or(|said: Instant| said.elapsed() >= SAID_EVERY);
            if is_due && !is_pending {
                said = Some(Instant::now());
                info!(%member, %error, "waits for a member of the cluster, to join it");
            }
        }
        sleep(AGAIN_AFTER).await;
    }
}

/// Checks the node of this directory against its members, as far as possible before it serves. A copy of the
/// directory of a running node is refused. So is a directory that another cluster has, or that was removed, if
/// `members` are to be joined.
pub(crate) async fn check_directory(
    world: &World,
    listener: &PeerListener,
    content: &Content,
    address: &str,
    members: &[String],
    levels: Levels,
    epoch: u64,
) -> Result<(), NodeStartError> {
    let Content { node, directory, boot, .. } = *content;
    let Some(cluster) = content.cluster else { return Ok(()) };
    let at = DirectoryIdentity { cluster, node, directory, boot, epoch };
    let identity = Identity { at, run: world.entropy.uuid(), levels };
    let refusal =
        async |at: &str| match introduce(world, listener.security(), at, &identity, ASKED_WITHIN)
            .await
        {
            Err(ConnectError::Refused(refusal)) => Some(refusal),
            _ => None,
        };
    let recorded = content.nodes.get(&node).map(|known| known.address.as_str());
    if let Some(recorded) = recorded.filter(|known| *known != address) {
        let is_there = match refusal(recorded).await {
            Some(Refusal::AnotherNode { found, .. }) => found == node,
            Some(Refusal::OldBoot { node: found, .. }) => found == node,
            _ => false,
        };
        if is_there {
            let recorded = recorded.to_owned();
            return Err(NodeStartError::Copied { node: node.0, recorded });
        }
    }
    let deadline = Instant::now() + REFUSED_FOR;
    loop {
        let mut unknown_to = Vec::new();
        for member in members {
            match refusal(member).await {
                // It would be admitted.
                None | Some(Refusal::AnotherNode { .. }) => {}
                // A member that does not know of it yet replies like one that knows of its removal.
                Some(refusal @ Refusal::UnknownNode { .. }) => unknown_to.push((member, refusal)),
                Some(refusal) => {
                    let member = member.clone();
                    return Err(NodeStartError::Foreign { node: node.0, cluster, member, refusal });
                }
            }
        }
        if unknown_to.len() <= members.len() / 2 {
            return Ok(());
        }
        if let Some((member, refusal)) = unknown_to.pop().filter(|_| Instant::now() >= deadline) {
            let member = member.clone();
            return Err(NodeStartError::Foreign { node: node.0, cluster, member, refusal });
        }
        sleep(AGAIN_AFTER).await;
    }
}
