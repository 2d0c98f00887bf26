//! How the shards of a node, and in a cluster their groups, come to be.
//!
//! Alone a node makes them when it is started. In a cluster the first seed founds the catalog's group once it has
//! seen all others; whoever leads the catalog then says how many shards there are, and each shard's group is
//! founded by one node, which so leads it first. All of this is done once, and goes on where it ended.

use std::sync::Arc;
use std::time::Duration;

use base::{Level, Levels, ShardId};
use cluster::Node;
use consensus::FoundError;
use futures_util::future::join_all;
use links::NodeId;
use machine::{Command, Refusal, Role};
use tasks::Failure;

use crate::error::{ExecuteError, OpenError};
use crate::leading;
use crate::level;
use crate::local_shard::{Common, LocalShard};
use crate::options::BrokerOptions;
use crate::shard::Shard;

/// How often a node looks at what it waits for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How many shards with rows there are, once that is known.
pub(crate) async fn shards(
    catalog: &LocalShard,
    options: &BrokerOptions,
) -> Result<u32, OpenError> {
    match &options.cluster {
        None => alone(catalog, options).await,
        Some(node) => in_cluster(node, catalog, options).await,
    }
}

/// Makes those that are missing.
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
        if catalog.is_led_here() {
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
        let _ = tokio::time::timeout(LOOK_EVERY, versions.changed()).await;
    };
    match options.shards {
        Some(wanted) if wanted != there => Err(OpenError::ShardsOfCluster { there, wanted }),
        _ => Ok(there),
    }
}

/// The newest level that all nodes can which found the cluster. One that has not been connected to this node, which
/// was started again meanwhile, counts as a node that tells no levels.
fn newest_of_all(node: &Node) -> Level {
    let members = node.members().voters;
    let can = members.keys().map(|id| node.levels_of(NodeId(*id)).unwrap_or(Levels::UNTOLD).max);
    can.min().unwrap_or(Level::FIRST)
}

/// Starts a shard with rows, and founds its group if that is this node's to do.
pub(crate) async fn shard(
    common: &Common<'_>,
    shard: ShardId,
    catalog: &Arc<Shard>,
) -> Result<LocalShard, OpenError> {
    let local = LocalShard::start(common, Role::Rows(shard), Some(catalog)).await?;
    group(&local, common.options).await?;
    Ok(local)
}

/// Founds the group of a shard with rows, if that is this node's to do. So leaders are spread over the nodes from
/// the beginning.
async fn group(shard: &LocalShard, options: &BrokerOptions) -> Result<(), OpenError> {
    let Some(node) = &options.cluster else { return Ok(()) };
    if node.has_joined() {
        // The group is there, or is founded by those who were there before.
        return Ok(());
    }
    let founder = leading::preferred(&node.members(), shard.id(), |_| true);
    if founder == Some(options.node.into()) && !is_founded(shard) {
        found(node, shard).await?;
    }
    Ok(())
}

fn is_founded(shard: &LocalShard) -> bool {
    !shard.consensus.members().voters.is_empty()
}

async fn found(node: &Node, shard: &LocalShard) -> Result<(), OpenError> {
    match shard.consensus.found(node.members()).await {
        Ok(()) => {
            tracing::info!(shard = %shard.id(), "the group of the shard is founded");
            Ok(())
        }
        Err(FoundError::Founded) => Ok(()),
        Err(error) => Err(OpenError::Shards(error.to_string())),
    }
}

/// One of the shards did not open: the error is what the node ends of, and not the end of the others' parts.
pub(crate) async fn give_up(
    shards: &[Arc<LocalShard>],
    failure: &Failure,
    error: OpenError,
) -> OpenError {
    failure.expect_ends();
    join_all(shards.iter().map(|shard| shard.shutdown())).await;
    error
}
