//! How the shards of a node reach one another: by requests to each other's logs, and by nothing else. A shard
//! that another node leads is reached by the same requests ([`crate::remote`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use base::ShardId;
use bytes::Bytes;
use consensus::Role;
use links::{Message, NodeId};
use parking_lot::RwLock;
use tokio::sync::{mpsc, watch};

use crate::barrier::CatalogVersions;
use crate::delivery::history::who::SessionUsers;
use crate::delivery::relay::serving::{Led, Relays};
use crate::delivery::unread::NodeUnread;
use crate::error::Unavailable;
use crate::remote::Remote;
use crate::request::Request;
use crate::shard::Shard;

/// Holds no shard open: its log takes no more requests once everybody else is gone who could make some.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    shards: RwLock<BTreeMap<ShardId, Reach>>,
    /// `None` where there are no other nodes.
    remote: Option<Remote>,
    /// Of other nodes' lease sessions to shards that this one leads.
    relays: Relays,
    /// Whose this node's lease sessions are.
    session_users: Arc<SessionUsers>,
    /// Unread bytes of those sessions.
    unread: Arc<NodeUnread>,
}

/// How a shard is reached.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    requests: mpsc::WeakUnboundedSender<Request>,
    /// What this node is in the shard's group; `None` where it is alone.
    role: Option<watch::Receiver<Role>>,
    shard: Weak<Shard>,
}

impl Peers {
    pub(crate) fn new(remote: Option<Remote>) -> Self {
        Self { remote, ..Self::default() }
    }

    /// The way to the other nodes, if there are any.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    pub(crate) fn unread(&self) -> &Arc<NodeUnread> {
        &self.unread
    }

    pub(crate) fn session_users(&self) -> &Arc<SessionUsers> {
        &self.session_users
    }

    pub(crate) fn add(
        &self,
        requests: &mpsc::UnboundedSender<Request>,
        role: Option<watch::Receiver<Role>>,
        shard: &Arc<Shard>,
    ) {
        let (requests, id) = (requests.downgrade(), shard.role().shard());
        let reach = Reach { requests, role, shard: Arc::downgrade(shard) };
        self.shards.write().insert(id, reach);
    }

    /// Nobody reaches the shard, as while nobody leads it. What [`Self::restore`] takes.
    #[cfg(test)]
    pub(crate) fn cut_off(&self, shard: ShardId) -> Reach {
        self.shards.write().remove(&shard).expect("it was reached until now")
    }

    #[cfg(test)]
    pub(crate) fn restore(&self, shard: ShardId, reach: Reach) {
        self.shards.write().insert(shard, reach);
    }

    /// Goes to the node that leads the shard. Answered as unavailable where the shard is not there, or not yet.
    pub(crate) fn request(&self, shard: ShardId, request: Request) {
        let shards = self.shards.read();
        let Some(reach) = shards.get(&shard) else {
            return request.refuse(&Unavailable::NotLeader);
        };
        let leader = reach.role.as_ref().and_then(|role| role.borrow().other_leader());
        match (leader, &self.remote) {
            (Some(leader), Some(remote)) => {
                remote.request(leader, shard, reach.shard.clone(), request);
            }
            _ => reach.request(request, &Unavailable::Stopping),
        }
    }

    /// What another node asks of a shard that this one leads, as far as that one knows. Who stops tells it to look
    /// for the next leader.
    pub(crate) fn request_here(&self, shard: ShardId, request: Request) {
        match self.shards.read().get(&shard) {
            Some(reach) => reach.request(request, &Unavailable::NotLeader),
            None => request.refuse(&Unavailable::NotLeader),
        }
    }

    /// What another node's relay asks of a shard that this one leads, as far as that one knows. `None`: it is not
    /// understood, or not served.
    pub(crate) async fn relay_here(
        &self,
        shard: ShardId,
        from: NodeId,
        head: Bytes,
        body: Bytes,
    ) -> Option<Message> {
        let led = {
            let shards = self.shards.read();
            let reach = shards.get(&shard)?;
            let shard = reach.shard.upgrade()?;
            let handle = shard.delivery.get()?.clone();
            let node = Arc::clone(self.remote.as_ref()?.node());
            Led { node, shard, handle, role: reach.role.clone()? }
        };
        self.relays.answer(led, from, head, body).await
    }

    /// The newest version of the catalog, as the node says that leads it.
    pub(crate) async fn catalog_versions(
        &self,
        leader: Option<u32>,
    ) -> Result<CatalogVersions, Unavailable> {
        match (&self.remote, leader) {
            (Some(remote), Some(leader)) => remote.catalog_versions(leader).await,
            _ => Err(Unavailable::NotLeader),
        }
    }

    /// Up to where the shard's log is applied at the node that leads it.
    pub(crate) async fn read_index(
        &self,
        leader: Option<u32>,
        shard: ShardId,
    ) -> Result<u64, Unavailable> {
        match (&self.remote, leader) {
            (Some(remote), Some(leader)) => remote.read_index(leader, shard).await,
            _ => Err(Unavailable::NotLeader),
        }
    }

    /// Up to which index the shard's log is applied here.
    pub(crate) fn applied(&self, shard: ShardId) -> u64 {
        let shard = self.shards.read().get(&shard).and_then(|reach| reach.shard.upgrade());
        shard.map_or(0, |shard| shard.applied())
    }
}

impl Reach {
    /// Puts the request in line here. `stopping` is the answer where the log takes no more.
    fn request(&self, request: Request, stopping: &Unavailable) {
        match self.requests.upgrade() {
            Some(requests) => {
                if let Err(mpsc::error::SendError(request)) = requests.send(request) {
                    request.refuse(stopping);
                }
            }
            None => request.refuse(&Unavailable::NotLeader),
        }
    }
}
