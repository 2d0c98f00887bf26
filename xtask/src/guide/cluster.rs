//! The sections of docs/user/cluster.md: the cluster that each needs, and the events between its commands that the
//! text describes (a node dies, its disk is lost).

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::Tally;
use super::page::Section;
use super::shell::Shell;
use crate::failure::{Failure, Outcome};

const SETTLES_WITHIN: Duration = Duration::from_secs(120);
/// The demonstration prints this line before the commands for the reader.
const DEMO_SAYS: &str = "In another terminal:";

/// Types the commands of all sections, each with a cluster of its own.
pub(super) fn types(
    sections: &[Section],
    binary: &Path,
    folder: &Path,
    tally: &mut Tally,
) -> Outcome {
    let by_hand = sections
        .iter()
        .find(|section| section.title == "Three nodes by hand")
        .ok_or_else(|| Failure::new("the page does not say how to start three nodes"))?;
    for section in sections.iter().filter(|section| section.has_commands()) {
        println!("\n## {}", section.title);
        let mut shell = Shell::new(binary, &folder.join(section.folder()))?;
        typed(section, by_hand, &mut shell).and_then(|()| shell.all_ready()).map_err(
            |failure| {
                Failure::new(format!("'{}': {failure}", section.title))
                    .remedy(format!("logs of nodes are in {}", shell.folder().display()))
            },
        )?;
        tally.typed += section.commands().len();
        shell.clears()?;
    }
    Ok(())
}

/// Each section begins with a cluster of its own, so that none depends on what an earlier one left.
fn typed(section: &Section, by_hand: &Section, shell: &mut Shell) -> Outcome {
    let commands = section.commands();
    match section.title.as_str() {
        "Try it" => demonstration(section, shell),
        "Three nodes by hand" => {
            commands.iter().try_for_each(|command| shell.types(command))?;
            // "Start the first node again with its line from above".
            shell.types(commands[0])?;
            wait_until_whole(shell)
        }
        "Separate machines" => commands.iter().try_for_each(|command| shell.types(command)),
        "Adding, replacing and removing nodes" => {
            three_nodes(by_hand, shell)?;
            shell.loses("n3")?;
            for command in commands {
                if command.contains(" node drain ") {
                    wait_until_whole(shell)?;
                }
                shell.types(command)?;
                if command.contains(" node replace ") {
                    wait_until_whole(shell)?;
                }
                if command.contains(" node drain ") {
                    shell.wait("the node leads nothing", SETTLES_WITHIN, |status| {
                        status["nodes"][0]["leads"] == 0
                    })?;
                }
            }
            shell.ends("n1", SETTLES_WITHIN).map(drop)
        }
        "Loss of the majority" => {
            three_nodes(by_hand, shell)?;
            shell.loses("n2")?;
            shell.loses("n3")?;
            shell.stops("n1")?;
            for command in commands {
                if command.starts_with("postroad serve") {
                    // "and start the node as before".
                    shell.types(by_hand.commands()[0])?;
                }
                shell.types(command)?;
            }
            Ok(())
        }
        "Racks" => {
            // "Each node is told where it is": the others by the same line with names and ports of their own.
            let line = commands[0];
            shell.types(line)?;
            for (place, rack) in [(2, "zone-b"), (3, "zone-c")] {
                let line = line
                    .replace("--data n1", &format!("--data n{place}"))
                    .replace("zone-a", rack)
                    .replace(":9092", &format!(":{}", 9091 + place))
                    .replace(
                        "--peer 127.0.0.1:7701",
                        &format!("--peer 127.0.0.1:{}", 7700 + place),
                    );
                shell.types(&format!("{line} --amqp off --http off"))?;
            }
            wait_until_whole(shell)
        }
        "More than three nodes" => {
            three_nodes_with(by_hand, " --shards 6", shell)?;
            for place in [4, 5] {
                let [kafka, amqp, http, peer] = [9091, 5671, 15_671, 7700].map(|port| port + place);
                shell.types(&format!(
                    "postroad serve --data n{place} --kafka 127.0.0.1:{kafka} --amqp 127.0.0.1:{amqp} \
                     --http 127.0.0.1:{http} --peer 127.0.0.1:{peer} --join 127.0.0.1:7701"
                ))?;
            }
            shell.wait("five nodes have the shards", SETTLES_WITHIN, |status| {
                let nodes = status["nodes"].as_array().map_or(0, Vec::len);
                // Files of removed replicas stay until the next start.
                let is_left =
                    |it: &Value| it.as_str().is_some_and(|it| it.contains(" given shard"));
                let under_way = status["under_way"].as_array();
                let is_done = under_way.is_some_and(|all| all.iter().all(is_left));
                nodes == 5 && is_done && status["verdict"]["can_lose_a_node"] == true
            })?;
            commands.iter().try_for_each(|command| shell.types(command))
        }
        "Moving partitions" => {
            three_nodes_with(by_hand, " --shards 3", shell)?;
            shell.types("postroad topic create orders --partitions 6")?;
            commands.iter().try_for_each(|command| shell.types(command))
        }
        "Upgrade" | "Cluster status" | "Scrubbing" | "Backup and restore" => {
            three_nodes(by_hand, shell)?;
            commands.iter().try_for_each(|command| shell.types(command))
        }
        _ => Err(Failure::new("the section has commands and no preparation")
            .remedy("add the section to xtask/src/guide/cluster.rs")),
    }
}

fn three_nodes(by_hand: &Section, shell: &mut Shell) -> Outcome {
    three_nodes_with(by_hand, "", shell)
}

/// The same with further arguments for each node.
fn three_nodes_with(by_hand: &Section, more: &str, shell: &mut Shell) -> Outcome {
    let lines = by_hand.commands().into_iter().filter(|it| it.starts_with("postroad serve"));
    lines.into_iter().try_for_each(|line| shell.types(&format!("{line}{more}")))?;
    wait_until_whole(shell)
}

fn wait_until_whole(shell: &mut Shell) -> Outcome {
    shell.wait("the cluster can lose a node", SETTLES_WITHIN, |status| {
        status["verdict"]["can_lose_a_node"] == true
    })
}

/// Starts the demonstration, and types the commands that it prints.
fn demonstration(section: &Section, shell: &mut Shell) -> Outcome {
    let [command] = section.commands()[..] else {
        return Err(Failure::new("it has one command, which says the others"));
    };
    let said = shell.starts(command, "Ctrl-C stops", SETTLES_WITHIN)?;
    let after = said.split_once(DEMO_SAYS).map(|(_, after)| after);
    let after = after.ok_or_else(|| Failure::new(format!("it does not say '{DEMO_SAYS}'")))?;
    let lines = after.lines().skip(1).map_while(|line| line.strip_prefix("  "));
    for line in lines {
        shell.types(line)?;
    }
    shell.interrupts(command, SETTLES_WITHIN)
}
