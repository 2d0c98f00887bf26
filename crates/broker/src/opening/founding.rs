//! Founding of a node's shards, and in a cluster of their groups.
//!
//! A node that is alone creates its shards at start. In a cluster the first seed founds the catalog's group once it
//! has seen all other nodes. The catalog's leader then sets the number of shards. Each shard's group is founded by
//! one node, which is its first leader. All of this is done once, and resumes after an interruption.

use std::sync::Arc;
use std::time::Duration;

use base::limits::REPLICAS;
use base::{Level, Levels, ShardId};
use cluster::Node;
use consensus::{FoundingError, Members};
use futures_util::future::join_all;
use links::NodeId;
use machine::{Command, Refusal, Role};
use shard::error::ExecuteError;
use shard::{LocalShard, Shard};
use tasks::Failure;

use super::level;
use super::local_shard::{OpeningContext, open_shard};
use crate::error::OpenError;
use crate::leadership::leader_balance;
use crate::options::BrokerOptions;

/// Interval of checks for the event being waited for.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Returns the number of shards with rows, once it is known.
pub(crate) async fn shards(
    catalog: &LocalShard,
    options: &BrokerOptions,
) -> Result<u32, OpenError> {
    match &options.cluster {
        None => alone(catalog, options).await,
        Some(node) => in_cluster(node, catalog, options).await,
    }
}

/// Creates the missing shards.
async fn alone(catalog: &LocalShard, options: &BrokerOptions) -> Result<u32, OpenError> {
    let there = catalog.read(|view| view.catalog.shard_count());
    let unsaid = if there == 0 { options.shards_new } else { there };
    let count = options.shards.unwrap_or(unsaid);
    if count == there {
        return Ok(there);
    }
    if count < there {
        return Err(OpenError::FewerShards { there, wanted: count });
    }
    if there == 0 {
        let begun = level::begin(catalog, catalog.shard.level.can().max).await;
        begun.map_err(|error| OpenError::Shards(error.to_string()))?;
    }
    match catalog.execute(Command::SetShards { count }).await {
        Ok(_) => Ok(count),
        Err(error) => Err(OpenError::Shards(error.to_string())),
    }
}

async fn in_cluster(
    node: &Node,
    catalog: &LocalShard,
    options: &BrokerOptions,
) -> Result<u32, OpenError> {
    if node.is_founder() && !is_founded(catalog) {
        node.all_seen().await;
        found(node, catalog).await?;
    }
    let members = node.members().voters.len() as u32;
    let wanted = options.shards.unwrap_or(options.shards_new.saturating_mul(members));
    let mut versions = catalog.shard.versions.subscribe();
    let there = loop {
        versions.borrow_and_update();
        let there = catalog.read(|view| view.catalog.shard_count());
        if there > 0 {
            break there;
        }
        // Shards founded by a former leader may be in the log and not applied here. They must not be founded again,
        // least of all at a level to which no operator has raised the cluster.
        if catalog.is_led_here() && catalog.read_index().await.is_ok() {
            if catalog.read(|view| view.catalog.shard_count()) > 0 {
                continue;
            }
            let begun = level::begin(catalog, newest_of_all(node)).await;
            let founded = match begun {
                Ok(()) => catalog.execute(Command::SetShards { count: wanted }).await,
                Err(error) => Err(error),
            };
            match founded {
                Err(ExecuteError::Refused(refusal @ Refusal::InvalidShardCount { .. })) => {
                    return Err(OpenError::Shards(refusal.to_string()));
                }
                Err(error) => tracing::warn!(%error, "the shards are not founded yet"),
                Ok(_) => {}
            }
        }
        let _ = tokio::time::timeout(CHECK_INTERVAL, versions.changed()).await;
    };
    match options.shards {
        Some(wanted) if wanted != there => Err(OpenError::ShardsOfCluster { there, wanted }),
        _ => Ok(there),
    }
}

/// Returns the newest level that all founding nodes support. A node that has not been connected since this one
/// restarted counts as one that reports no levels.
fn newest_of_all(node: &Node) -> Level {
    let members = node.members().voters;
    let can = members.keys().map(|id| node.levels_of(NodeId(*id)).unwrap_or(Levels::UNTOLD).max);
    can.min().unwrap_or(Level::FIRST)
}

/// Starts a shard with rows, and founds its group if this node is the founder.
pub(crate) async fn shard(
    context: &OpeningContext<'_>,
    shard: ShardId,
    catalog: &Arc<Shard>,
) -> Result<LocalShard, OpenError> {
    let local = open_shard(context, Role::Rows(shard), Some(catalog)).await?;
    group(&local, context.options, context.level.now()).await?;
    Ok(local)
}

/// Founds the group of a shard with rows, if this node is the founder: so leaders are spread over the nodes from the
/// beginning. The founder does not depend on the level: two founders would create two groups.
async fn group(shard: &LocalShard, options: &BrokerOptions, level: Level) -> Result<(), OpenError> {
    let Some(node) = &options.cluster else { return Ok(()) };
    if node.has_joined() {
        // The group exists, or is founded by the nodes that were there before.
        return Ok(());
    }
    let all = node.members();
    let founder = order(&all, shard.id()).first().copied();
    if founder == Some(options.node.into()) && !is_founded(shard) {
        let members = if level < Level::REPLICAS { all } else { spread(&all, shard.id()) };
        found_with(shard, members).await?;
    }
    Ok(())
}

/// Chooses the shard's replicas among the founding nodes: the founder of the group, and two at the same distance from
/// it and from each other. So the load is even.
fn spread(all: &Members, shard: ShardId) -> Members {
    let order = order(all, shard);
    let third = |turn: usize| order.get(turn * order.len() / REPLICAS);
    let has = (0..REPLICAS).filter_map(third);
    let named = has.filter_map(|node| Some((*node, all.voters.get(node)?.clone())));
    Members::voting(named)
}

/// Returns all founding nodes, in the order of preference for the shard's leader.
fn order(all: &Members, shard: ShardId) -> Vec<u64> {
    let nodes: Vec<u64> = all.voters.keys().copied().collect();
    leader_balance::order(&nodes, all, shard, |_| true)
}

fn is_founded(shard: &LocalShard) -> bool {
    !shard.consensus.members().voters.is_empty()
}

async fn found(node: &Node, shard: &LocalShard) -> Result<(), OpenError> {
    found_with(shard, node.members()).await
}

async fn found_with(shard: &LocalShard, members: Members) -> Result<(), OpenError> {
    match shard.consensus.found(members).await {
        Ok(()) => {
            tracing::info!(shard = %shard.id(), "the group of the shard is founded");
            Ok(())
        }
        Err(FoundingError::Founded) => Ok(()),
        Err(error) => Err(OpenError::Shards(error.to_string())),
    }
}

/// Shuts the shards down after one did not open: the node must report this error, and not the ends of other parts.
pub(crate) async fn shut_down_after(
    shards: &[Arc<LocalShard>],
    failure: &Failure,
    error: OpenError,
) -> OpenError {
    failure.expect_ends();
    join_all(shards.iter().map(|shard| shard.shutdown())).await;
    error
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn members(count: u64) -> Members {
        Members::voting((1..=count).map(|id| (id, format!("n{id}:1"))))
    }

    #[test]
    fn founding_spreads_shards_evenly_over_three_nodes_each() {
        for nodes in 3..=12 {
            let all = members(nodes);
            let mut load: BTreeMap<u64, usize> = (1..=nodes).map(|node| (node, 0)).collect();
            for shard in (1..=40).map(ShardId) {
                let has = spread(&all, shard);
                assert_eq!(has.voters.len(), REPLICAS);
                let founder = order(&all, shard)[0];
                assert_eq!(has.voters.get(&founder), Some(&format!("n{founder}:1")));
                for node in has.voters.keys() {
                    *load.entry(*node).or_default() += 1;
                }
                let (most, least) = (load.values().max(), load.values().min());
                assert!(
                    most <= least.map(|least| least + 1).as_ref(),
                    "{nodes}, {shard}: {load:?}"
                );
            }
        }
    }

    #[test]
    fn three_nodes_found_every_shard_together() {
        assert_eq!(spread(&members(3), ShardId(7)), members(3));
    }
}
