//! Requests for shards that another node leads: sends them to that node, and returns its replies.
//!
//! A request without a reply may have been executed: the caller gets [`Unavailable::Unanswered`] and decides whether
//! to retry. Channels do, since their messages are numbered. Requests arrive in the order in which they were made,
//! unless one waits for a connection or for room.
//!
//! [`crate::wire`] has the encoding of requests and replies; `proxy` of the broker serves them.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::limits::REMOTE_ANSWERED_WITHIN;
use base::ShardId;
use base::limits::BARRIER_WITHIN;
use bytes::Bytes;
use cluster::Node;
use dispatch::SessionId;
use futures_util::FutureExt;
use links::{NodeId, RequestError};
use tasks::Task;
use tokio::time::timeout;
use world::Instant;

use crate::backup_parts::{BackupError, BackupPart, BackupStep};
use crate::group_status::GroupStatus;
use crate::shard_query::{ShardQuery, ShardQueryReply};
use crate::stored_status::StoredStatus;
use crate::wire::{self, ExecutedCommand, PendingRemoteRequest};

use shard::Shard;
use shard::delivery::history::{HistoryQuery, HistoryReply, SessionUser};
use shard::error::{FetchError, Unavailable};
use shard::request::Request;

/// Longest wait for another node's change of the catalog in this node's copy.
const SEEN_WITHIN: Duration = Duration::from_secs(5);
/// Time for the other node to have the last entries, and to be elected.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(5);
const WOULD_LEAD_WITHIN: Duration = Duration::from_millis(200);

/// Connection to the leaders among the other nodes.
#[derive(Clone, Debug)]
pub struct Remote {
    node: Arc<Node>,
}

impl Remote {
    pub fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node) }
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Sends a request from a task of its own. `copy` is this node's replica of the shard.
    pub(crate) fn request(&self, leader: u64, shard: ShardId, copy: Weak<Shard>, request: Request) {
        let (message, awaiting) = match wire::encode(request) {
            Ok(encoded) => encoded,
            Err(request) => return request.refuse(&Unavailable::NotLeader),
        };
        let node = Arc::clone(&self.node);
        let mut asking = async move {
            let deadline = Instant::now() + REMOTE_ANSWERED_WITHIN;
            match node.ask(NodeId(leader), shard, message, deadline).await {
                Ok(reply) => answer(shard, &copy, awaiting, &reply.head).await,
                Err(error) => awaiting.fail(&unanswered(&error)),
            }
        }
        .boxed();
        // Sent here if there is room, and not when the task begins: messages of a channel keep their order.
        if (&mut asking).now_or_never().is_none() {
            tasks::spawn(Task::RemoteRequest, asking);
        }
    }

    /// Queries a shard's leader for the index up to which its log is applied.
    pub(crate) async fn read_index(&self, leader: u32, shard: ShardId) -> Result<u64, Unavailable> {
        let deadline = Instant::now() + BARRIER_WITHIN;
        let asking = self.node.ask(
            NodeId(leader.into()),
            shard,
            wire::encode_read_index_request(),
            deadline,
        );
        let reply = asking.await.map_err(|error| unanswered(&error))?;
        wire::read_index(&reply.head)
    }

    /// Requests a node to follow the catalog's log up to `index`. Returns true once it does, or knows that it is
    /// behind; false if it did not reply.
    pub async fn follow_catalog(&self, node: NodeId, index: u64, deadline: Instant) -> bool {
        let message = wire::encode_follow_catalog_request(index);
        let reply = self.node.ask(node, ShardId::CATALOG, message, deadline).await;
        reply.is_ok_and(|reply| wire::follows_catalog(&reply.head))
    }

    /// Whether a node would lead well: it replies at once, and its disk is well.
    pub async fn would_lead(&self, node: u64) -> bool {
        self.has_well_disk(node).await == Some(true)
    }

    /// Whether the disk of a node is well; `None` if the node does not reply at once.
    pub async fn has_well_disk(&self, node: u64) -> Option<bool> {
        let deadline = Instant::now() + WOULD_LEAD_WITHIN;
        let reply = self.node.ask(
            NodeId(node),
            ShardId::CATALOG,
            wire::encode_would_lead_request(),
            deadline,
        );
        wire::would_lead(&reply.await.ok()?.head)
    }

    /// Requests a shard's leader to transfer leadership; the error is the reason why it still leads, or may do so.
    pub async fn hand_over(&self, leader: u32, shard: ShardId, to: u32) -> Result<(), String> {
        let deadline = Instant::now() + HANDED_OVER_WITHIN;
        let (asked, leader) = (wire::encode_hand_over_request(to.into()), NodeId(leader.into()));
        match self.node.ask(leader, shard, asked, deadline).await {
            Ok(reply) => wire::hand_over(&reply.head)
                .unwrap_or_else(|| Err("its leader does not understand that".to_owned())),
            Err(error) => Err(format!("its leader did not say whether it does so: {error}")),
        }
    }

    /// Queries a node for the findings about its stored data.
    pub async fn stored(&self, node: u32, within: Duration) -> Result<StoredStatus, Unavailable> {
        let (message, deadline) = (wire::encode_stored_request(), Instant::now() + within);
        let asking = self.node.ask(NodeId(node.into()), ShardId::CATALOG, message, deadline);
        let reply = asking.await.map_err(|error| unanswered(&error))?;
        wire::stored(&reply.head)
    }

    /// Queries a node about a record of a shard.
    pub async fn history(
        &self,
        node: u32,
        shard: ShardId,
        look: &HistoryQuery,
        within: Duration,
    ) -> Result<HistoryReply, Unavailable> {
        let (message, deadline) =
            (wire::encode_look_request(look.clone()), Instant::now() + within);
        let asking = self.node.ask(NodeId(node.into()), shard, message, deadline);
        let reply = asking.await.map_err(|error| unanswered(&error))?;
        wire::looked(&reply.head)
    }

    /// Queries a shard's leader about its rows.
    pub async fn query_rows(
        &self,
        leader: u32,
        shard: ShardId,
        question: &ShardQuery,
        deadline: Instant,
    ) -> Result<(ShardQueryReply, Bytes), FetchError> {
        let message = wire::encode_rows_request(question);
        let asking = self.node.ask(NodeId(leader.into()), shard, message, deadline);
        let reply = asking.await.map_err(|error| unanswered(&error))?;
        wire::decode_rows_reply(reply)
    }

    /// Queries a shard's leader for the committed and pending members of the group.
    pub async fn members(&self, leader: u32, shard: ShardId) -> Result<BTreeSet<u64>, Unavailable> {
        let (message, deadline) = (wire::encode_members_request(), Instant::now() + BARRIER_WITHIN);
        let asking = self.node.ask(NodeId(leader.into()), shard, message, deadline);
        let reply = asking.await.map_err(|error| unanswered(&error))?;
        wire::members(&reply.head)
    }

    /// Requests a part of a backup from a member of a shard's group.
    pub async fn back_up(
        &self,
        node: u32,
        shard: ShardId,
        backup: u64,
        step: &BackupStep,
        within: Duration,
    ) -> Result<(BackupPart, Bytes), BackupError> {
        let (message, deadline) =
            (wire::encode_backup_request(backup, step), Instant::now() + within);
        let asking = self.node.ask(NodeId(node.into()), shard, message, deadline);
        let reply = asking.await.map_err(|error| unanswered(&error))?;
        wire::backed_up(reply)
    }

    /// Queries a node for the users of its lease sessions.
    pub async fn session_users(
        &self,
        node: u32,
        shard: ShardId,
        sessions: &[SessionId],
        within: Duration,
    ) -> Result<Vec<Option<SessionUser>>, Unavailable> {
        let (message, deadline) =
            (wire::encode_session_users_request(sessions), Instant::now() + within);
        let asking = self.node.ask(NodeId(node.into()), shard, message, deadline);
        let reply = asking.await.map_err(|error| unanswered(&error))?;
        wire::session_users(&reply.head)
    }

    /// Queries a node for the state of its shards' groups.
    pub async fn groups(
        &self,
        node: u32,
        within: Duration,
    ) -> Result<Vec<GroupStatus>, Unavailable> {
        let (message, deadline) = (wire::encode_groups_request(), Instant::now() + within);
        let asking = self.node.ask(NodeId(node.into()), ShardId::CATALOG, message, deadline);
        let reply = asking.await.map_err(|error| unanswered(&error))?;
        wire::groups(&reply.head)
    }
}

/// Replies to a change of the catalog once this node's copy has it: the client may look for it here next.
async fn answer(shard: ShardId, copy: &Weak<Shard>, awaiting: PendingRemoteRequest, reply: &[u8]) {
    let Some(ExecutedCommand { index, reply, result }) = awaiting.answered(reply) else { return };
    if shard == ShardId::CATALOG
        && let Some(catalog) = copy.upgrade()
        && timeout(SEEN_WITHIN, catalog.applied_to(index)).await.is_err()
    {
        tracing::warn!(index, "this node's copy of the catalog is behind");
    }
    // The client may be gone.
    let _ = reply.send(result);
}

pub fn unanswered(error: &RequestError) -> Unavailable {
    match error.is_not_sent() {
        true => Unavailable::NotLeader,
        false => Unavailable::Unanswered,
    }
}
