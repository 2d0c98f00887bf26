//! Admits joining nodes: the contacted node assigns each of them a number through the catalog.

use std::sync::Weak;
use std::time::Duration;

use crate::limits::NODES_JOINED_MAX;
use base::Level;
use base::limits::NODES_MAX;
use broker::{Broker, Unavailable, WeakBroker};
use cluster::{JoiningNode, Node};
use tokio::time::timeout;

use crate::registry::{
    DecideError, NodeLifecycle, ProgramLevels, Registration, RegistrationChanges, Registry, decide,
};

/// Delay before a failed assignment is retried.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Assigns numbers to nodes that request to join at this node, or rejects them with a reason. Ends with the broker.
pub(crate) async fn run(broker: WeakBroker, cluster: Weak<Node>) {
    let Some(mut applicants) = cluster.upgrade().map(|cluster| cluster.applicants()) else {
        return;
    };
    loop {
        let waiting = applicants.waiting();
        let Some((broker, cluster)) = broker.upgrade().zip(cluster.upgrade()) else { return };
        for joining in &waiting {
            match register(&broker, joining).await {
                Ok(()) => {}
                Err(DecideError::Refused(reason)) => {
                    tracing::warn!(address = joining.address, reason, "a node is not let in");
                    cluster.turn_down(joining.directory, reason);
                }
                Err(error) => tracing::info!(%error, "a node cannot be let in yet"),
            }
        }
        drop((broker, cluster));
        // Wakes up even without a request: the broker may be gone.
        let _ = timeout(AGAIN_AFTER, applicants.changed()).await;
    }
}

async fn register(broker: &Broker, joining: &JoiningNode) -> Result<(), DecideError> {
    let is_founded = broker.groups().iter().all(|group| !group.voters.is_empty());
    if !is_founded && broker.level().now() >= Level::REPLICAS {
        // This node may not know the leader of a group without a replica here, or not at the moment: the joining node
        // waits.
        return Err(Unavailable::NotLeader.into());
    }
    let words = format!("a node at {} joins", joining.address);
    decide(broker, &words, |registry| admit(registry, joining, is_founded)).await?;
    tracing::info!(address = joining.address, "a node joins the cluster");
    Ok(())
}

/// Node limit of a cluster. If each node has all shards, more nodes bring no benefit.
pub(crate) fn nodes_max(level: Level) -> usize {
    if level < Level::REPLICAS { NODES_JOINED_MAX } else { NODES_MAX }
}

/// The document of a joining node; none if it has one already.
fn admit(
    registry: &Registry,
    joining: &JoiningNode,
    is_founded: bool,
) -> Result<RegistrationChanges, DecideError> {
    let JoiningNode { directory, boot, address, levels } = joining.clone();
    let refused = |reason: String| Err(DecideError::Refused(reason));
    if let Some((id, known)) =
        registry.nodes.iter().find(|(_, known)| known.node.directory == directory)
    {
        return match known.node.standing {
            NodeLifecycle::Removed => refused(format!(
                "its data directory is of node {id}, which was removed; start it with an empty data directory"
            )),
            _ => Ok(RegistrationChanges::new()),
        };
    }
    // The level was raised after the request, or a member is behind.
    let (level, _) = registry.level;
    if !levels.has(level) {
        return refused(format!(
            "it is at feature level {level}, and the program of this node supports {levels}: start it with the program \
             that the other nodes run"
        ));
    }
    if !is_founded {
        return refused(
            "not all groups of its shards are founded yet: try again in a minute".into(),
        );
    }
    let stays = |standing| !matches!(standing, NodeLifecycle::Leaving { .. });
    let count = registry.present().filter(|(_, node)| stays(node.standing)).count();
    match nodes_max(registry.level.0) {
        NODES_MAX if count >= NODES_MAX => {
            return refused(format!(
                "it has {count} nodes, and more than {NODES_MAX} are not supported; remove one first, with \
                 `postroad node drain N` and `postroad node remove N`"
            ));
        }
        nodes_max if count >= nodes_max => {
            return refused(format!(
                "it has {count} nodes, and at feature level {level} each has all records, so that more than \
                 {nodes_max} would make writing slower and nothing safer; raise the level with `postroad cluster \
                 upgrade --finalize`, or remove a node first, with `postroad node drain N` and `postroad node remove N`"
            ));
        }
        _ => {}
    }
    // The node registers its own rack once it is a member.
    let can = ProgramLevels { levels, ..ProgramLevels::default() };
    let standing = NodeLifecycle::Active;
    let node = Registration { directory, boot, address, standing, can, rack: None };
    Ok(RegistrationChanges::from([(registry.next_number(), node)]))
}

#[cfg(test)]
mod tests {
    use base::Levels;
    use uuid::Uuid;

    use super::*;
    use crate::registry::RegisteredNode;

    fn joining(directory: u128) -> JoiningNode {
        let (directory, address) = (Uuid::from_u128(directory), "new:1".to_owned());
        JoiningNode { directory, boot: 1, address, levels: Levels::UNTOLD }
    }

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
                can: ProgramLevels::default(),
                rack: None,
            };
            registry.nodes.insert(id.into(), RegisteredNode { version: 1, node });
        }
        registry
    }

    const LEAVING: NodeLifecycle = NodeLifecycle::Leaving { replaced_by: None };

    fn number(standings: &[NodeLifecycle], asks: u128) -> Result<Vec<u64>, String> {
        match admit(&registry(standings), &joining(asks), true) {
            Ok(decided) => Ok(decided.into_keys().collect()),
            Err(DecideError::Refused(reason)) => Err(reason),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn joining_node_gets_the_next_number_once() {
        let (active, removed) = (NodeLifecycle::Active, NodeLifecycle::Removed);
        assert_eq!(number(&[active, active, active], 9), Ok(vec![4]));
        assert_eq!(number(&[active, active, removed], 9), Ok(vec![4]));
        assert_eq!(number(&[active, active, active], 3), Ok(vec![]), "it is node 3 already");
        let error = number(&[active, active, removed], 3).expect_err("removed");
        assert!(error.contains("node 3, which was removed"), "{error}");
    }

    #[test]
    fn node_limit_applies_if_each_node_has_all_shards() {
        let mut five = [NodeLifecycle::Active; 5];
        let error = number(&five, 9).expect_err("too many");
        assert!(error.contains("postroad node remove"), "{error}");
        assert!(error.contains("cluster upgrade --finalize"), "{error}");
        five[2] = LEAVING;
        assert_eq!(number(&five, 9), Ok(vec![6]));
    }

    #[test]
    fn cluster_with_three_replicas_a_shard_admits_many_nodes() {
        let admitted = |count: usize| {
            let mut registry = registry(&vec![NodeLifecycle::Active; count]);
            registry.level = (Level::REPLICAS, 7);
            let levels = Levels { min: Level(1), max: Level::REPLICAS };
            admit(&registry, &JoiningNode { levels, ..joining(99) }, true)
        };
        assert_eq!(admitted(5).expect("it is let in").into_keys().collect::<Vec<_>>(), [6]);
        assert!(admitted(NODES_MAX - 1).is_ok());
        let error = admitted(NODES_MAX).expect_err("too many").to_string();
        assert!(error.contains("more than 64"), "{error}");
    }

    #[test]
    fn joining_node_must_support_the_level_of_the_cluster() {
        let mut registry = registry(&[NodeLifecycle::Active; 3]);
        registry.level = (Level(2), 7);
        let error = admit(&registry, &joining(9), true).expect_err("it cannot");
        assert!(error.to_string().contains("feature level 2"), "{error}");
        let levels = Levels { min: Level(1), max: Level(2) };
        let joining = JoiningNode { levels, ..joining(9) };
        let admitted = admit(&registry, &joining, true).expect("it can");
        assert_eq!(admitted[&4].can.levels, levels);
    }

    #[test]
    fn no_node_joins_before_all_groups_are_founded() {
        let admitted = admit(&registry(&[NodeLifecycle::Active]), &joining(9), false);
        assert!(matches!(admitted, Err(DecideError::Refused(_))), "{admitted:?}");
    }
}
