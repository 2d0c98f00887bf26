//! Operations on the placement of shards: pinning a shard to nodes, and releasing it to the plan.
//!
//! A decision is checked against the current state, as any decision about nodes; [`crate::reconcile`] executes it.

use std::collections::{BTreeMap, BTreeSet};

use ::operations::cluster as document;
use base::limits::REPLICAS;
use base::{Level, ShardId};
use broker::Broker;
use cluster::Node;
use documents::{Change, WritePrecondition};
use tokio::time::sleep;

use crate::plan::{self, View};
use crate::reconcile::view_of;
use crate::registry::placements::{Placement, Placements, SPACE};
use crate::registry::{AGAIN_AFTER, DecideError, NodeLifecycle, Registry, TRIES};

/// Current and wanted nodes of each shard.
pub(crate) fn read(broker: &Broker, cluster: &Node) -> Result<document::Placements, DecideError> {
    let registry = Registry::read(broker)?;
    let view = view_of(cluster, &registry, &broker.groups());
    let by_hand = view.placed.keys().copied().collect();
    Ok(report(&view, &by_hand))
}

/// Pins a shard to these nodes. Without nodes the cluster places it again.
pub(crate) async fn place(
    broker: &Broker,
    cluster: &Node,
    shard: u32,
    nodes: &[u64],
) -> Result<document::Placements, DecideError> {
    let (shard, nodes) = (ShardId(shard), nodes.iter().copied().collect::<BTreeSet<u64>>());
    let wanted = if nodes.is_empty() { None } else { Some(nodes) };
    let words = match &wanted {
        Some(nodes) => format!("{shard} is put on nodes {nodes:?}"),
        None => format!("{shard} is placed by the cluster"),
    };
    change(broker, cluster, &words, |view, _| {
        may_be_placed(view, shard, wanted.as_ref())?;
        Ok(BTreeMap::from([(shard, wanted.clone())]))
    })
    .await
}

/// Removes all pins, so that the cluster places all shards again. A dry run only returns the result.
pub(crate) async fn balance(
    broker: &Broker,
    cluster: &Node,
    dry_run: bool,
) -> Result<document::Placements, DecideError> {
    if dry_run {
        broker.catalog_is_current().await?;
        let registry = Registry::read(broker)?;
        let mut view = view_of(cluster, &registry, &broker.groups());
        spreads(&view)?;
        let by_hand = std::mem::take(&mut view.placed);
        return Ok(report(&view, &by_hand.into_keys().collect()));
    }
    change(broker, cluster, "all shards are placed by the cluster", |view, placements| {
        spreads(view)?;
        Ok(placements.keys().map(|shard| (*shard, None)).collect())
    })
    .await
}

type PlacementChanges = BTreeMap<ShardId, Option<BTreeSet<u64>>>;

/// Decides on the current state and writes the decision. Retries with fresh state if another decision was made
/// meanwhile.
async fn change(
    broker: &Broker,
    cluster: &Node,
    words: &str,
    decision: impl Fn(&View, &Placements) -> Result<PlacementChanges, DecideError>,
) -> Result<document::Placements, DecideError> {
    for _ in 0..TRIES {
        broker.catalog_is_current().await?;
        let registry = Registry::read(broker)?;
        let placements = &registry.placements;
        let mut view = view_of(cluster, &registry, &broker.groups());
        let mut decided = decision(&view, placements)?;
        decided
            .retain(|shard, nodes| placements.get(shard).map(|(there, _)| there) != nodes.as_ref());
        let mut change = Change::new();
        for (shard, nodes) in &decided {
            let version = placements.get(shard).map_or(0, |(_, version)| *version);
            match nodes {
                Some(nodes) => {
                    let placement = Placement { nodes: nodes.clone() };
                    let expected = WritePrecondition::Version(version);
                    change.put(SPACE, shard.0.to_string(), &placement, expected)?;
                    view.placed.insert(*shard, nodes.clone());
                }
                None => {
                    let name = shard.0.to_string();
                    change.delete(&documents::DocumentRef { space: SPACE, name, version });
                    view.placed.remove(shard);
                }
            }
        }
        if !decided.is_empty() {
            registry.note(&mut change, words)?;
            match change.make(broker).await {
                Err(error) if error.is_conflict() => {
                    sleep(AGAIN_AFTER).await;
                    continue;
                }
                made => made?,
            }
            tracing::info!("{words}, as an operator asks");
        }
        let by_hand = view.placed.keys().copied().collect();
        return Ok(report(&view, &by_hand));
    }
    Err(DecideError::Overtaken)
}

fn refused(reason: impl Into<String>) -> DecideError {
    DecideError::Refused(reason.into())
}

fn spreads(view: &View) -> Result<(), DecideError> {
    let count = plan::staying(&view.nodes).len();
    match (view.spreads, count > REPLICAS) {
        (true, true) => Ok(()),
        (true, false) => Err(refused(format!(
            "each of the {count} nodes has every shard: with more than {REPLICAS} nodes a shard is on {REPLICAS} of them"
        ))),
        (false, _) => Err(refused(format!(
            "each node has every shard below feature level {}: `postroad cluster upgrade --finalize` raises it",
            Level::REPLICAS.0
        ))),
    }
}

fn may_be_placed(
    view: &View,
    shard: ShardId,
    nodes: Option<&BTreeSet<u64>>,
) -> Result<(), DecideError> {
    if shard == ShardId::CATALOG {
        return Err(refused("shard 0 is the catalog, of which every node has a copy"));
    }
    if !view.groups.iter().any(|group| group.shard == shard) {
        return Err(refused(format!(
            "there is no {shard}: `postroad cluster status` says which there are"
        )));
    }
    let Some(nodes) = nodes else { return Ok(()) };
    spreads(view)?;
    if nodes.len() != REPLICAS {
        return Err(refused(format!("a shard is on {REPLICAS} nodes: name so many")));
    }
    for node in nodes {
        match view.nodes.get(node) {
            None => return Err(refused(format!("there is no node {node} in the cluster"))),
            Some(known) if matches!(known.standing, NodeLifecycle::Leaving { .. }) => {
                return Err(refused(format!("node {node} leaves the cluster")));
            }
            Some(known) if !known.is_live => {
                return Err(refused(format!("node {node} is not connected: start it first")));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Current and wanted nodes of shards with rows.
fn report(view: &View, by_hand: &BTreeSet<ShardId>) -> document::Placements {
    let wanted = plan::wanted(view);
    let rows = || view.groups.iter().filter(|group| group.shard != ShardId::CATALOG);
    let placement = |group: &plan::Group| document::Placement {
        shard: group.shard.0,
        nodes: group.voters.iter().copied().collect(),
        wanted: wanted.get(&group.shard).into_iter().flat_map(|it| &it.voters).copied().collect(),
        by_hand: by_hand.contains(&group.shard),
    };
    let shards: Vec<_> = rows().map(placement).collect();
    let count = |has: fn(&document::Placement) -> &Vec<u64>, node: u64| {
        shards.iter().filter(|shard| has(shard).contains(&node)).count() as u64
    };
    let load = |node: &u64| document::Load {
        node: *node,
        shards: count(|it| &it.nodes, *node),
        wanted: count(|it| &it.wanted, *node),
    };
    let nodes = view.nodes.keys().map(load).collect();
    document::Placements { shards, nodes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Group, Node as Seen};

    fn view(count: u64) -> View {
        let active = Seen { standing: NodeLifecycle::Active, is_live: true };
        let group = |shard| Group {
            shard: ShardId(shard),
            leader: Some(1),
            voters: BTreeSet::from([1, 2, 3]),
            learners: BTreeSet::new(),
            is_changing: false,
            caught_up: BTreeSet::new(),
        };
        View {
            nodes: (1..=count).map(|node| (node, active)).collect(),
            groups: (0..=3).map(group).collect(),
            spreads: true,
            ..View::default()
        }
    }

    fn error(view: &View, shard: u32, nodes: &[u64]) -> String {
        let nodes = nodes.iter().copied().collect();
        let refused = may_be_placed(view, ShardId(shard), Some(&nodes)).expect_err("refused");
        refused.to_string()
    }

    #[test]
    fn shard_is_pinned_to_three_present_nodes() {
        let five = view(5);
        assert!(may_be_placed(&five, ShardId(1), Some(&BTreeSet::from([1, 4, 5]))).is_ok());
        assert!(error(&five, 0, &[1, 2, 3]).contains("the catalog"));
        assert!(error(&five, 9, &[1, 2, 3]).contains("cluster status"));
        assert!(error(&five, 1, &[1, 2]).contains("3 nodes"));
        assert!(error(&five, 1, &[1, 2, 6]).contains("no node 6"));
        let mut away = five.clone();
        away.nodes.get_mut(&4).expect("there").is_live = false;
        assert!(error(&away, 1, &[1, 2, 4]).contains("start it first"));
        let leaving = NodeLifecycle::Leaving { replaced_by: None };
        away.nodes.get_mut(&5).expect("there").standing = leaving;
        assert!(error(&away, 1, &[1, 2, 5]).contains("leaves"));
        assert!(error(&view(3), 1, &[1, 2, 3]).contains("every shard"));
        let before = View { spreads: false, ..view(5) };
        assert!(error(&before, 1, &[1, 2, 3]).contains("--finalize"));
    }

    #[test]
    fn report_has_current_and_wanted_nodes_of_shards() {
        let mut five = view(5);
        five.placed.insert(ShardId(2), BTreeSet::from([1, 4, 5]));
        let by_hand = five.placed.keys().copied().collect();
        let report = report(&five, &by_hand);
        let second = &report.shards[1];
        assert_eq!((second.shard, second.by_hand), (2, true));
        assert_eq!((&*second.nodes, &*second.wanted), (&[1, 2, 3][..], &[1, 4, 5][..]));
        assert!(report.shards.iter().all(|shard| shard.wanted.len() == REPLICAS));
        let (now, then): (Vec<u64>, Vec<u64>) =
            report.nodes.iter().map(|load| (load.shards, load.wanted)).unzip();
        assert_eq!(now, [3, 3, 3, 0, 0]);
        assert_eq!(then.iter().sum::<u64>(), 9);
        assert!(then.iter().all(|shards| (1..=2).contains(shards)), "{then:?}");
    }
}
