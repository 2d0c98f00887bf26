//! Raises the cluster's feature level: the current level, the levels that its nodes support, and the obstacles.
//!
//! The level is raised by a decision like those about nodes. So of two concurrent decisions one is retried, and a node
//! that joins meanwhile is considered. The level is never lowered, since older levels cannot read what is written at a
//! newer one.

use std::time::Duration;

use ::operations::cluster as document;
use base::{Level, Levels};
use broker::Broker;
use broker::level::{LevelDocument, NAME, SPACE};
use cluster::Node;
use documents::{Change, WritePrecondition};
use links::NodeId;
use tokio::time::{sleep, timeout};

use crate::registry::{AGAIN_AFTER, DecideError, Registration, Registry, TRIES};

/// Time limit for this node to reach the raised level.
const REACHED_WITHIN: Duration = Duration::from_secs(5);

/// A node's program, as far as known.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Program {
    node: u64,
    levels: Levels,
    /// Program name with version; empty: not reported.
    name: String,
    live: bool,
}

/// Progress of an upgrade, as seen by this node. `cluster`: set if the node is a member of one.
pub(crate) fn progress(
    broker: &Broker,
    cluster: Option<&Node>,
    registry: &Registry,
) -> document::Upgrade {
    report(registry.level.0.max(broker.level().now()), &programs(broker, cluster, registry))
}

/// Raises the level to the newest one that each node supports.
pub(crate) async fn finalize(
    broker: &Broker,
    cluster: Option<&Node>,
) -> Result<document::Upgrade, DecideError> {
    for _ in 0..TRIES {
        broker.catalog_is_current().await?;
        let registry = Registry::read(broker)?;
        let upgrade = progress(broker, cluster, &registry);
        if upgrade.level == upgrade.possible && upgrade.in_the_way.is_empty() {
            return Ok(upgrade);
        }
        if !upgrade.in_the_way.is_empty() {
            return Err(DecideError::Refused(format!(
                "the cluster stays at feature level {}: {}",
                upgrade.level,
                upgrade.in_the_way.join("; ")
            )));
        }
        let (to, mut change) = (Level(upgrade.possible), Change::new());
        let (name, expected) = (NAME.to_owned(), WritePrecondition::Version(registry.level.1));
        change.put(SPACE, name, &LevelDocument::of(to), expected)?;
        registry.note(&mut change, &format!("the feature level is raised to {to}"))?;
        match change.make(broker).await {
            Err(error) if error.is_conflict() => sleep(AGAIN_AFTER).await,
            made => {
                made?;
                tracing::info!(level = to.0, "the feature level is raised, as an operator asks");
                let reached = async {
                    while broker.level().now() < to {
                        sleep(AGAIN_AFTER).await;
                    }
                };
                // The decision stands either way; the node follows as soon as its disk permits.
                let _ = timeout(REACHED_WITHIN, reached).await;
                return Ok(document::Upgrade {
                    raised: true,
                    ..progress(broker, cluster, &registry)
                });
            }
        }
    }
    Err(DecideError::Overtaken)
}

fn programs(broker: &Broker, cluster: Option<&Node>, registry: &Registry) -> Vec<Program> {
    let here = u64::from(broker.node());
    let own = Program {
        node: here,
        levels: broker.level().can(),
        name: base::level::PROGRAM.to_owned(),
        live: true,
    };
    let Some(cluster) = cluster else { return vec![own] };
    let of = |(node, registration): (u64, &Registration)| {
        if node == here {
            return own.clone();
        }
        let said = &registration.can;
        let live = cluster.connected_for(NodeId(node)).is_some();
        // The node reports its levels at each connection; the catalog learns of them later.
        let told = cluster.levels_of(NodeId(node)).filter(|_| live);
        let levels = told.unwrap_or(said.levels);
        let name = if levels == said.levels { said.program.clone() } else { String::new() };
        Program { node, levels, name, live }
    };
    registry.present().map(of).collect()
}

fn report(level: Level, programs: &[Program]) -> document::Upgrade {
    let maxima = || programs.iter().map(|program| program.levels.max);
    let newest = maxima().max().unwrap_or(level).max(level);
    let possible = maxima().min().unwrap_or(level).max(level);
    let brings = (level.0 + 1..=newest.0).map(|level| {
        let words =
            Level(level).brings().unwrap_or("what this node does not know: ask a newer one");
        format!("level {level}: {words}")
    });
    let model = programs.iter().find(|program| program.levels.max == newest);
    let in_the_way = programs.iter().filter_map(|program| {
        let Program { node, levels, live, .. } = program;
        let is_newest = levels.max >= newest;
        match (live, is_newest) {
            // The level cannot be raised further, so the node's level is irrelevant.
            _ if newest == level => None,
            (true, true) => None,
            (false, _) => Some(format!(
                "node {node} is not connected, so it is not certain what it runs: start it, or if it is lost type \
                 `postroad node remove {node}`"
            )),
            (true, false) => {
                let like = model.map(|model| format!(", as node {} runs", model.node));
                Some(format!(
                    "node {node} supports {levels}{}: stop it, and start it with a program that supports level {newest}{}",
                    named(program),
                    like.unwrap_or_default()
                ))
            }
        }
    });
    let in_the_way: Vec<String> = in_the_way.collect();
    let nodes = programs.iter().map(|Program { node, levels, name, live }| document::Program {
        node: *node,
        name: Some(name.clone()).filter(|name| !name.is_empty()),
        level_min: levels.min.0,
        level_max: levels.max.0,
        live: *live,
    });
    document::Upgrade {
        level: level.0,
        possible: possible.0,
        nodes: nodes.collect(),
        brings: brings.collect(),
        in_the_way,
        raised: false,
    }
}

fn named(program: &Program) -> String {
    match program.name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(node: u64, max: u16, live: bool) -> Program {
        let levels = Levels { min: Level(1), max: Level(max) };
        Program { node, levels, name: format!("postroad {max}"), live }
    }

    #[test]
    fn level_is_possible_once_every_node_supports_it() {
        let mixed = [program(1, 2, true), program(2, 1, true), program(3, 2, true)];
        let upgrade = report(Level(1), &mixed);
        assert_eq!((upgrade.level, upgrade.possible), (1, 1));
        assert_eq!(upgrade.brings.len(), 1);
        let [way] = &upgrade.in_the_way[..] else { panic!("{:?}", upgrade.in_the_way) };
        let expected = "node 2 supports level 1 (postroad 1): stop it, and start it with a program that supports level 2, as \
                        node 1 runs";
        assert_eq!(way, expected);

        let upgrade = report(Level(1), &[program(1, 2, true), program(2, 2, true)]);
        assert_eq!((upgrade.possible, upgrade.in_the_way.len()), (2, 0));
    }

    #[test]
    fn disconnected_node_blocks_the_upgrade() {
        let upgrade = report(Level(1), &[program(1, 2, true), program(2, 2, false)]);
        let [way] = &upgrade.in_the_way[..] else { panic!("{:?}", upgrade.in_the_way) };
        assert!(way.contains("postroad node remove 2"), "{way}");
        // If no node supports more there is nothing to raise.
        let upgrade = report(Level(2), &[program(1, 2, true), program(2, 2, false)]);
        assert_eq!((upgrade.possible, upgrade.in_the_way, upgrade.brings), (2, vec![], vec![]));
    }
}
