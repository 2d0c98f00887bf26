//! The drivers of all shards, and the routes to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{LeaseGroupId, Level, PartitionId, ShardId, TopicId};
use dispatch::{ConsumerId, SessionId, Token};
use machine::catalog::placement::Placement;
use shard::Shard;
use shard::delivery::handle::Handle;
use shard::delivery::history::session_users::SessionUsers;
use shard::delivery::unread::NodeUnread;

use crate::groups::view::find;

/// Low bits of a session or consumer id, which count those of one node since it started. The bits above are the
/// node's id, so that a driver may have sessions of several nodes.
const IDS_OF_NODE_BITS: u32 = 40;

/// Low bits of a token, which count the leases of a group in one term; the bits above are the term.
const TOKENS_PER_TERM_BITS: u32 = 40;

/// First token of a group in a term.
pub(crate) fn first_token(term: u64) -> Token {
    term << TOKENS_PER_TERM_BITS | 1
}

/// The term in which a lease with this token began.
pub(crate) fn term_of(token: Token) -> u64 {
    token >> TOKENS_PER_TERM_BITS
}

/// The node of a session or consumer id.
pub fn node_of(id: u64) -> u64 {
    id >> IDS_OF_NODE_BITS
}

/// Whether a session or consumer id belongs to the node.
pub(crate) fn is_of_node(id: u64, node: u64) -> bool {
    node_of(id) == node
}

/// Access to the drivers for sessions and operators. It allocates session and consumer ids, unique in the
/// cluster at any time.
#[derive(Debug)]
pub struct Drivers {
    catalog: Arc<Shard>,
    /// Drivers of the shards with rows, in the order of their ids; never empty.
    handles: Vec<Handle>,
    users: Arc<SessionUsers>,
    unread: Arc<NodeUnread>,
    last_session: AtomicU64,
    last_consumer: AtomicU64,
}

/// Placement of a lease group's partitions. It never changes for a partition, but partitions may be added.
#[derive(Clone, Debug)]
pub struct Route {
    pub topic: TopicId,
    pub(crate) placement: Placement,
    pub partitions: u32,
}

impl Drivers {
    /// `node`: 0 for a single node.
    pub fn new(
        catalog: Arc<Shard>,
        handles: Vec<Handle>,
        node: u32,
        users: Arc<SessionUsers>,
        unread: Arc<NodeUnread>,
    ) -> Self {
        // Session 0 is a driver's own, and consumer 0 is none.
        let first = || AtomicU64::new(u64::from(node) << IDS_OF_NODE_BITS);
        let (last_session, last_consumer) = (first(), first());
        Self { catalog, handles, users, unread, last_session, last_consumer }
    }

    pub(crate) fn level(&self) -> Level {
        self.catalog.level.now()
    }

    pub fn unread(&self) -> &Arc<NodeUnread> {
        &self.unread
    }

    pub(crate) fn next_session(&self) -> SessionId {
        self.last_session.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The users of its sessions.
    pub(crate) fn users(&self) -> &SessionUsers {
        &self.users
    }

    pub(crate) fn next_consumer(&self) -> ConsumerId {
        self.last_consumer.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The only driver, if there is one shard with rows: then no lookup is needed.
    pub(crate) fn only(&self) -> Option<&Handle> {
        match &self.handles[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    pub fn all(&self) -> &[Handle] {
        &self.handles
    }

    pub fn of(&self, shard: ShardId) -> &Handle {
        // An unknown shard: the first one does not have the rows either, and replies so.
        let place = shard.0.saturating_sub(ShardId::FIRST.0) as usize;
        self.handles.get(place).unwrap_or(&self.handles[0])
    }

    /// `None` if the group does not exist.
    pub fn route(&self, group: LeaseGroupId) -> Option<Route> {
        self.catalog.read(|view| {
            let (_, topic) = find(view.catalog, group)?;
            let (partitions, placement) = (topic.partition_count(), topic.placement.clone());
            Some(Route { topic: topic.id, placement, partitions })
        })
    }

    /// The shard of each partition; the first shard for unknown ones.
    pub(crate) fn shards_of(&self, partitions: impl Iterator<Item = PartitionId>) -> Vec<ShardId> {
        self.catalog.read(|view| {
            let shard = |partition: PartitionId| {
                let topic = view.catalog.topic(partition.topic);
                topic.map_or(ShardId::FIRST, |topic| topic.placement.shard_of(partition.index))
            };
            partitions.map(shard).collect()
        })
    }
}

impl Route {
    pub(crate) fn shard_of(&self, partition: u32) -> ShardId {
        self.placement.shard_of(partition)
    }

    /// The shards with any partition; that of the first partition comes first.
    pub fn shards(&self) -> Vec<ShardId> {
        self.placement.shards_of(self.partitions).collect()
    }

    /// Whether more partitions could be in more shards.
    pub(crate) fn may_grow(&self) -> bool {
        self.partitions < self.placement.shard_count()
    }
}
