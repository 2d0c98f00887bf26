//! Cluster operations of operators, accepted by any node: the cluster's status and changes of its nodes. A decision is
//! only a document in the catalog; [`crate::reconcile`] executes it.

mod backups;

use std::sync::Arc;
use std::time::Duration;

use ::operations::cluster as document;
use ::operations::cluster::Operation;
use ::operations::family::{Effect, OperationAnswer, OperationError, OperationFamily};
use broker::Broker;
use cluster::Node;
use links::NodeId;
use serde::Serialize;
use tokio::time::{sleep, timeout};

use crate::admission::nodes_max;
use crate::reconcile::view_of;
use crate::registry::{
    DecideError, NodeLifecycle, Registration, RegistrationChanges, Registry, decide,
};
use crate::status;
use crate::{moves, placements, plan, upgrade};

/// Time limit for a fact that other nodes report, e.g. the members of a shard without a replica on this node.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Description of a change for the audit log; `None`: the operation changes nothing.
fn describe(operation: &Operation) -> Option<String> {
    Some(match operation {
        Operation::Status {}
        | Operation::Scrub { begin: false }
        | Operation::Moves { .. }
        | Operation::Placements {}
        | Operation::Balance { dry_run: true }
        | Operation::Upgrade { finalize: false } => return None,
        Operation::Scrub { begin: true } => "all that is stored is looked through".to_owned(),
        Operation::Upgrade { finalize: true } => "the feature level is raised".to_owned(),
        Operation::MovePartitions { topic, partitions, to_shard } => {
            let (count, topic) = (partitions.len(), topic.as_str());
            format!("{count} partitions of topic {topic:?} move to shard {to_shard}")
        }
        Operation::CancelMoves { topic, partitions } => {
            let (count, topic) = (partitions.len(), topic.as_str());
            format!("{count} partitions of topic {topic:?} stay where they are")
        }
        Operation::PlaceShard { shard, nodes } => {
            format!("shard {shard} is placed on nodes {nodes:?}")
        }
        Operation::Balance { dry_run: false } => "all shards are placed again".to_owned(),
        Operation::DrainNode { node } => format!("node {node} is drained"),
        Operation::ResumeNode { node } => format!("node {node} is resumed"),
        Operation::RemoveNode { node } => format!("node {node} is removed"),
        Operation::ReplaceNode { node, with } => format!("node {node} is replaced by node {with}"),
        Operation::Backup(_) => "a backup is taken".to_owned(),
    })
}

/// Executes operations.
#[derive(Debug)]
pub struct Administration {
    broker: Broker,
    /// `None`: a single node.
    cluster: Option<Arc<Node>>,
}

impl OperationFamily for Administration {
    fn effect(&self, operation: &[u8]) -> Effect {
        match serde_json::from_slice(operation) {
            Ok(operation) => describe(&operation).map_or(Effect::Look, Effect::Change),
            Err(_) => Effect::Change(String::new()),
        }
    }

    fn holds_data(&self, operation: &[u8]) -> bool {
        matches!(serde_json::from_slice(operation), Ok(Operation::Backup(_)))
    }

    fn carry_out(&self, operation: Vec<u8>) -> OperationAnswer<'_> {
        Box::pin(async move {
            let operation = serde_json::from_slice(&operation).map_err(|error| {
                OperationError::Invalid(format!("the document is no operation: {error}"))
            })?;
            self.answer(operation).await
        })
    }
}

impl Administration {
    pub(crate) fn new(broker: Broker, cluster: Option<Arc<Node>>) -> Self {
        Self { broker, cluster }
    }

    /// A single node has no decisions to make.
    fn cluster(&self) -> Result<&Node, OperationError> {
        self.cluster.as_deref().ok_or_else(|| {
            OperationError::Invalid(
                "this node is alone. To form a cluster of its data, take a backup (`postroad backup DIR`), restore it \
                 with `postroad restore --data NEW --from DIR --peer HOST:PORT`, and start other nodes with --join"
                    .into(),
            )
        })
    }

    /// Scrub state of this node; optionally starts a scrub.
    fn stored(&self, begin: bool) -> Result<Vec<u8>, OperationError> {
        if begin && self.broker.scrub() {
            tracing::info!("looks through what is stored, as an operator asks");
        }
        let node = u64::from(self.broker.node());
        written(&status::stored(node, self.broker.stored()))
    }

    async fn upgrade(&self, finalize: bool) -> Result<Vec<u8>, OperationError> {
        let (broker, cluster) = (&self.broker, self.cluster.as_deref());
        if finalize {
            return written(&upgrade::finalize(broker, cluster).await.map_err(refused)?);
        }
        let registry = Registry::read(broker).map_err(|error| refused(error.into()))?;
        written(&upgrade::progress(broker, cluster, &registry))
    }

    async fn answer(&self, operation: Operation) -> Result<Vec<u8>, OperationError> {
        let (node, words) = match operation {
            Operation::Scrub { begin } => return self.stored(begin),
            Operation::Backup(step) => return backups::answer(&self.broker, step).await,
            Operation::Upgrade { finalize } => return self.upgrade(finalize).await,
            Operation::MovePartitions { topic, partitions, to_shard } => {
                let moved = moves::begin(&self.broker, &topic, partitions, to_shard).await;
                return written(&moved?);
            }
            Operation::CancelMoves { topic, partitions } => {
                return written(&moves::cancel(&self.broker, &topic, partitions).await?);
            }
            Operation::Moves { topic } => {
                return written(&moves::status(&self.broker, topic.as_deref()).await?);
            }
            Operation::Placements {} => {
                let placed = placements::read(&self.broker, self.cluster()?);
                return written(&placed.map_err(refused)?);
            }
            Operation::PlaceShard { shard, nodes } => {
                let placed = placements::place(&self.broker, self.cluster()?, shard, &nodes).await;
                return written(&placed.map_err(refused)?);
            }
            Operation::Balance { dry_run } => {
                let placed = placements::balance(&self.broker, self.cluster()?, dry_run).await;
                return written(&placed.map_err(refused)?);
            }
            Operation::Status {} => {
                let status = status::status(&self.broker, self.cluster()?).await;
                return written(&status.map_err(refused)?);
            }
            Operation::DrainNode { node } => (node, format!("node {node} is drained")),
            Operation::ResumeNode { node } => (node, format!("node {node} is resumed")),
            Operation::RemoveNode { node } => (node, format!("node {node} is removed")),
            Operation::ReplaceNode { node, with } => {
                (node, format!("node {node} is replaced by node {with}"))
            }
        };
        let cluster = self.cluster()?;
        match operation {
            Operation::RemoveNode { .. } => self.wait_until(|| self.knows_members()).await,
            Operation::ReplaceNode { with, .. } => {
                self.wait_until(|| self.is_connected(cluster, with) && self.knows_members()).await;
            }
            _ => {}
        }
        let changed = std::sync::atomic::AtomicBool::new(false);
        let decision = |registry: &Registry| {
            let decided = self.decision(cluster, registry, &operation)?;
            let is_new = |(id, node): (&u64, &Registration)| registry.nodes[id].node != *node;
            changed.store(decided.iter().any(is_new), std::sync::atomic::Ordering::Relaxed);
            Ok(decided)
        };
        decide(&self.broker, &words, decision).await.map_err(refused)?;
        let changed = changed.into_inner();
        if changed {
            tracing::info!("{words}, as an operator asks");
        }
        written(&document::NodeDecision { node, changed })
    }

    /// Waits for a fact that other nodes report soon; the decision is rejected if it is still missing.
    async fn wait_until(&self, is_known: impl Fn() -> bool) {
        let known = async {
            while !is_known() {
                sleep(LOOKS_AGAIN_AFTER).await;
            }
        };
        timeout(REPORTED_WITHIN, known).await.ok();
    }

    /// Whether this node is connected to a node, which may have just joined; `true` for an unknown node.
    fn is_connected(&self, cluster: &Node, node: u64) -> bool {
        let registered = Registry::read(&self.broker).map(|it| it.nodes.contains_key(&node));
        cluster.connected_for(NodeId(node)).is_some() || !registered.unwrap_or(false)
    }

    /// Whether this node knows the members of each shard: those of a shard that it does not have are reported by the
    /// shard's leader.
    fn knows_members(&self) -> bool {
        self.broker.groups().iter().all(|group| !group.voters.is_empty())
    }

    /// Result of the operation on the current nodes.
    fn decision(
        &self,
        cluster: &Node,
        registry: &Registry,
        operation: &Operation,
    ) -> Result<RegistrationChanges, DecideError> {
        let view = view_of(cluster, registry, &self.broker.groups());
        let (node, standing) = match *operation {
            Operation::Status {}
            | Operation::Scrub { .. }
            | Operation::Upgrade { .. }
            | Operation::MovePartitions { .. }
            | Operation::CancelMoves { .. }
            | Operation::Moves { .. }
            | Operation::Placements {}
            | Operation::PlaceShard { .. }
            | Operation::Balance { .. }
            | Operation::Backup(_) => {
                return Ok(RegistrationChanges::new());
            }
            Operation::DrainNode { node } => (node, NodeLifecycle::Drained),
            Operation::ResumeNode { node } => (node, NodeLifecycle::Active),
            Operation::RemoveNode { node } => (node, NodeLifecycle::Leaving { replaced_by: None }),
            Operation::ReplaceNode { node, with } => {
                (node, NodeLifecycle::Leaving { replaced_by: Some(with) })
            }
        };
        let known = registry.nodes.get(&node).map(|known| known.node.clone());
        let present = known.filter(|known| known.standing != NodeLifecycle::Removed);
        let Some(known) = present else {
            return Err(DecideError::Refused(match registry.nodes.contains_key(&node) {
                true => format!("node {node} was removed: its number is never used again"),
                false => format!("there is no node {node} in the cluster"),
            }));
        };
        if known.standing == standing {
            return Ok(RegistrationChanges::new());
        }
        match standing {
            NodeLifecycle::Leaving { replaced_by } => {
                let may_leave = plan::may_leave(&view, node, replaced_by);
                may_leave.map_err(|error| DecideError::Refused(error.to_string()))?;
            }
            NodeLifecycle::Drained => may_rest(registry, node)?,
            NodeLifecycle::Active => may_stay(registry, known.standing)?,
            NodeLifecycle::Removed => {}
        }
        Ok(RegistrationChanges::from([(node, Registration { standing, ..known })]))
    }
}

/// At least one node has to be able to lead.
fn may_rest(registry: &Registry, node: u64) -> Result<(), DecideError> {
    let mut others = registry.present().filter(|(id, _)| *id != node);
    if let Some((_, known)) = registry.present().find(|(id, _)| *id == node)
        && matches!(known.standing, NodeLifecycle::Leaving { .. })
    {
        return Err(DecideError::Refused(format!(
            "node {node} leaves the cluster; to have it stay, type `postroad node resume {node}` first"
        )));
    }
    match others.any(|(_, it)| it.standing == NodeLifecycle::Active) {
        true => Ok(()),
        false => Err(DecideError::Refused(format!(
            "all others are drained or leave: resume one of them before node {node} is drained"
        ))),
    }
}

/// Another node may have taken the place of a leaving node.
fn may_stay(registry: &Registry, standing: NodeLifecycle) -> Result<(), DecideError> {
    let stays = |standing| !matches!(standing, NodeLifecycle::Leaving { .. });
    let count = registry.present().filter(|(_, node)| stays(node.standing)).count();
    match stays(standing) || count < nodes_max(registry.level.0) {
        true => Ok(()),
        false => Err(DecideError::Refused(format!(
            "the cluster has {count} other nodes by now, and no room for one more: let this one leave, or remove another"
        ))),
    }
}

fn refused(error: DecideError) -> OperationError {
    match error {
        DecideError::Refused(reason) => OperationError::Invalid(reason),
        error => OperationError::Failed(error.to_string()),
    }
}

fn written<T: Serialize>(answer: &T) -> Result<Vec<u8>, OperationError> {
    let written = serde_json::to_vec(answer);
    written.map_err(|error| OperationError::Failed(format!("the answer is no JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::registry::RegisteredNode;

    const LEAVING: NodeLifecycle = NodeLifecycle::Leaving { replaced_by: None };

    fn registry(standings: &[NodeLifecycle]) -> Registry {
        let mut registry = Registry::default();
        for (id, standing) in (1_u32..).zip(standings) {
            let (directory, address) = (Uuid::from_u128(id.into()), format!("n{id}:1"));
            let standing = *standing;
            let node = Registration {
                directory,
                boot: 1,
                address,
                standing,
                can: Default::default(),
                rack: None,
            };
            registry.nodes.insert(id.into(), RegisteredNode { version: 1, node });
        }
        registry
    }

    #[test]
    fn last_node_that_can_lead_is_not_drained() {
        let registry = registry(&[NodeLifecycle::Active, NodeLifecycle::Drained, LEAVING]);
        assert!(may_rest(&registry, 2).is_ok(), "node 1 leads");
        let error = may_rest(&registry, 1).expect_err("nobody would").to_string();
        assert!(error.contains("resume one of them"), "{error}");
        let error = may_rest(&registry, 3).expect_err("it leaves").to_string();
        assert!(error.contains("postroad node resume 3"), "{error}");
    }

    #[test]
    fn leaving_node_is_resumed_only_below_the_node_limit() {
        let mut standings = [NodeLifecycle::Active; 6];
        standings[5] = LEAVING;
        assert!(may_stay(&registry(&standings), LEAVING).is_err());
        assert!(may_stay(&registry(&standings), NodeLifecycle::Drained).is_ok());
        assert!(may_stay(&registry(&standings[1..]), LEAVING).is_ok());
    }
}
