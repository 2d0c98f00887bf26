//! Membership of the cluster.
//!
//! The catalog has a document for each node: its data directory, its last boot and the address of its peer port. Each
//! node follows these documents and rejects any other node. Client endpoints are not part of them: a running node sends
//! its own to the others.
//!
//! * [`Nodes`]: the live nodes, as gateways name them to clients
//! * [`Endpoint`]: client endpoint of a protocol; `node_gossip`: the status that a node sends to the others
//! * `registry`: the catalog's documents of nodes, and their changes; `registration`: how each node follows them
//! * `admission`: nodes that request to join
//! * `plan`: wanted nodes of each shard, and the next steps; `reconcile`: executes the steps
//! * [`recovery`]: continues with one node after the permanent loss of the majority; [`restore`]: creates a node from a
//!   backup
//! * `operations`, `status`: requests of operators; `moves`: moves of partitions; `upgrade`: the cluster's feature
//!   level

mod admission;
mod endpoint;
mod limits;
mod moves;
mod node_gossip;
mod operations;
mod operator_tokens;
mod placements;
mod plan;
mod reconcile;
pub mod recovery;
mod registration;
mod registry;
pub mod restore;
mod status;
mod upgrade;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use broker::Broker;
use bytes::Bytes;
use cluster::Node;
use links::{Lane, NodeId, Phase};
use tasks::Task;
use tokio::sync::watch;
use world::Instant;

use self::node_gossip::NodeGossip;
use self::operator_tokens::OperatorTokens;

pub use self::operations::Administration;
pub use endpoint::{Endpoint, Endpoints};
pub use registration::RegisterError;
pub use registry::DecideError;

/// A node that clients may connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveNode {
    pub id: u32,
    pub endpoints: Endpoints,
    /// Its disk was found stuck recently: do not send readers there.
    pub is_unwell: bool,
}

/// The nodes of the cluster, as known to this node. Clones share them.
#[derive(Clone, Debug)]
pub struct Nodes {
    own: LiveNode,
    others: Option<OtherNodes>,
    operator_tokens: OperatorTokens,
}

#[derive(Clone, Debug)]
struct OtherNodes {
    cluster: Arc<Node>,
    heard: watch::Receiver<BTreeMap<NodeId, Bytes>>,
}

impl Nodes {
    /// A single node without a cluster.
    pub fn alone(id: u32, endpoints: Endpoints) -> Self {
        let own = LiveNode { id, endpoints, is_unwell: false };
        Self { own, others: None, operator_tokens: OperatorTokens::new(None, None) }
    }

    /// A single node whose operators log in by this token.
    pub fn with_operator_token(self, token: &str) -> Self {
        Self { operator_tokens: OperatorTokens::new(Some(token), self.others.clone()), ..self }
    }

    /// A member of a cluster: sends its client endpoints to the others, and registers itself in the catalog, retrying
    /// until that succeeds. From then on only registered nodes are admitted. All nodes accept its operator token, if it
    /// has one.
    pub fn join(
        broker: &Broker,
        cluster: &Arc<Node>,
        endpoints: Endpoints,
        operator_token: Option<&str>,
    ) -> Self {
        let heard = cluster.groups().latest_gossip();
        let others = OtherNodes { cluster: Arc::clone(cluster), heard: heard.clone() };
        let operator_tokens = OperatorTokens::new(operator_token, Some(others.clone()));
        let operator_token = operator_tokens.own_sha256().map(str::to_owned);
        let told = NodeGossip { operator_token, ..NodeGossip::of(endpoints.clone()) };
        told.tell(cluster);
        let rack = endpoints.rack.clone();
        let following = registration::follow(broker.downgrade(), Arc::downgrade(cluster), rack);
        broker.vital(Task::Registration, following);
        let admitting = admission::run(broker.downgrade(), Arc::downgrade(cluster));
        broker.vital(Task::Admission, admitting);
        let stepping = reconcile::run(broker.downgrade(), Arc::downgrade(cluster), told, heard);
        broker.vital(Task::Membership, stepping);
        let own = LiveNode { id: broker.node(), endpoints, is_unwell: false };
        Self { own, others: Some(others), operator_tokens }
    }

    /// Whether this is the operator token of any node of the cluster.
    pub fn accept_operator_token(&self, token: &str) -> bool {
        self.operator_tokens.accept(token)
    }

    /// This node and the nodes connected to it, ascending by id.
    pub fn live(&self) -> Vec<LiveNode> {
        let mut live = vec![self.own.clone()];
        if let Some(others) = &self.others {
            let heard = others.heard.borrow();
            live.extend(heard.iter().filter_map(|(node, told)| others.live(*node, told)));
            live.sort_unstable_by_key(|node| node.id);
        }
        live
    }

    /// The same, plus nodes whose connection ended less than `within` ago.
    pub fn live_lately(&self, within: Duration) -> Vec<LiveNode> {
        let mut found = vec![self.own.clone()];
        if let Some(others) = &self.others {
            let heard = others.heard.borrow();
            found.extend(heard.iter().filter_map(|(node, told)| {
                others.live(*node, told).or_else(|| others.left_lately(*node, told, within))
            }));
            found.sort_unstable_by_key(|node| node.id);
        }
        found
    }

    /// Returns a node if it is this one or connected to it.
    pub fn get(&self, id: u32) -> Option<LiveNode> {
        if id == self.own.id {
            return Some(self.own.clone());
        }
        let others = self.others.as_ref()?;
        let (node, heard) = (NodeId(id.into()), others.heard.borrow());
        others.live(node, heard.get(&node)?)
    }

    /// Probes the other nodes, for at most `within`: afterwards [`Self::live`] is as recent.
    pub async fn probe(&self, within: Duration) {
        if let Some(OtherNodes { cluster, heard }) = &self.others {
            let nodes: Vec<NodeId> = heard.borrow().keys().copied().collect();
            cluster.probe(nodes, Instant::now() + within).await;
        }
    }

    /// Cluster operations of operators.
    pub fn administration(&self, broker: &Broker) -> Administration {
        let cluster = self.others.as_ref().map(|others| Arc::clone(&others.cluster));
        Administration::new(broker.clone(), cluster)
    }

    /// This node.
    pub fn own(&self) -> &LiveNode {
        &self.own
    }
}

impl OtherNodes {
    fn live(&self, node: NodeId, told: &Bytes) -> Option<LiveNode> {
        let status = self.cluster.links().peer(node)?.status(Lane::Control);
        let id = u32::try_from(node.0).ok()?;
        let NodeGossip { endpoints, is_unwell, .. } = NodeGossip::decode(told)?;
        let connected = matches!(status.phase, Phase::Connected { .. });
        connected.then_some(LiveNode { id, endpoints, is_unwell })
    }

    fn left_lately(&self, node: NodeId, told: &Bytes, within: Duration) -> Option<LiveNode> {
        let status = self.cluster.links().peer(node)?.status(Lane::Control);
        let left_for = Instant::now().saturating_duration_since(status.last?.at);
        let (id, NodeGossip { endpoints, is_unwell, .. }) =
            (u32::try_from(node.0).ok()?, NodeGossip::decode(told)?);
        (left_for < within).then_some(LiveNode { id, endpoints, is_unwell })
    }
}
