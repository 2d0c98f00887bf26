//! Requests between the shards of a node: they reach one another through their logs only. A shard led by another node
//! gets the same requests ([`crate::remote`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use base::ShardId;
use cluster::Node;
use consensus::Role;
use parking_lot::RwLock;
use shard::Shard;
use shard::delivery::handle::Handle;
use shard::delivery::history::session_users::SessionUsers;
use shard::delivery::unread::NodeUnread;
use shard::error::Unavailable;
use shard::request::Request;
use tokio::sync::{mpsc, watch};

use crate::remote::Remote;

/// Keeps no shard open: a log closes for requests once all other senders are gone.
#[derive(Debug, Default)]
pub struct Peers {
    shards: RwLock<BTreeMap<ShardId, Reach>>,
    /// `None` where there are no other nodes.
    remote: Option<Remote>,
    /// Users of this node's lease sessions.
    session_users: Arc<SessionUsers>,
    /// Unread bytes of those sessions.
    unread: Arc<NodeUnread>,
}

/// A shard that this node may lead.
#[derive(Debug)]
pub struct ServingShard {
    pub node: Arc<Node>,
    pub shard: Arc<Shard>,
    pub handle: Handle,
    pub role: watch::Receiver<Role>,
}

/// Channel to a shard.
#[derive(Clone, Debug)]
pub struct Reach {
    requests: mpsc::WeakUnboundedSender<Request>,
    /// This node's role in the shard's group; `None` where it is alone.
    role: Option<watch::Receiver<Role>>,
    shard: Weak<Shard>,
}

impl Peers {
    pub fn new(remote: Option<Remote>) -> Self {
        Self { remote, ..Self::default() }
    }

    /// The connection to the other nodes, if there are any.
    pub fn remote(&self) -> Option<&Remote> {
        self.remote.as_ref()
    }

    pub fn unread(&self) -> &Arc<NodeUnread> {
        &self.unread
    }

    pub fn session_users(&self) -> &Arc<SessionUsers> {
        &self.session_users
    }

    pub fn add(
        &self,
        requests: &mpsc::UnboundedSender<Request>,
        role: Option<watch::Receiver<Role>>,
        shard: &Arc<Shard>,
    ) {
        let (requests, id) = (requests.downgrade(), shard.role().shard());
        let reach = Reach { requests, role, shard: Arc::downgrade(shard) };
        self.shards.write().insert(id, reach);
    }

    /// Makes the shard unreachable, as without a leader, for tests. Returns the argument of [`Self::restore`].
    pub fn cut_off(&self, shard: ShardId) -> Reach {
        self.shards.write().remove(&shard).expect("it was reached until now")
    }

    /// Makes the shard reachable again, for tests.
    pub fn restore(&self, shard: ShardId, reach: Reach) {
        self.shards.write().insert(shard, reach);
    }

    /// Sends a request to the shard's leader. A shard that is missing, or not there yet, is unavailable.
    pub fn request(&self, shard: ShardId, request: Request) {
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

    /// Accepts another node's request to a shard that this node leads in that node's view. While stopping, this node
    /// makes the sender look for the next leader.
    pub fn request_here(&self, shard: ShardId, request: Request) {
        match self.shards.read().get(&shard) {
            Some(reach) => reach.request(request, &Unavailable::NotLeader),
            None => request.refuse(&Unavailable::NotLeader),
        }
    }

    /// Returns a shard that this node leads in the view of another one, to serve the lease sessions of that node.
    /// `None` if it is not served.
    pub fn serving_shard(&self, shard: ShardId) -> Option<ServingShard> {
        let shards = self.shards.read();
        let reach = shards.get(&shard)?;
        let shard = reach.shard.upgrade()?;
        let handle = shard.delivery.get()?.clone();
        let node = Arc::clone(self.remote.as_ref()?.node());
        Some(ServingShard { node, shard, handle, role: reach.role.clone()? })
    }

    /// Returns the index up to which the shard's leader has applied its log.
    pub async fn read_index(
        &self,
        leader: Option<u32>,
        shard: ShardId,
    ) -> Result<u64, Unavailable> {
        match (&self.remote, leader) {
            (Some(remote), Some(leader)) => remote.read_index(leader, shard).await,
            _ => Err(Unavailable::NotLeader),
        }
    }

    /// Returns the index up to which the shard's log is applied here.
    pub fn applied(&self, shard: ShardId) -> u64 {
        let shard = self.shards.read().get(&shard).and_then(|reach| reach.shard.upgrade());
        shard.map_or(0, |shard| shard.applied())
    }
}

impl Reach {
    /// Queues the request here. `stopping` is the error once the log is closed for requests.
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
