//! `postroad topic move`: moves partitions to another shard, under load.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{ArgGroup, Args};
use client::Client;
use operations::cluster::{MoveState, Moves, Operation, PartitionMove};
use serde::Serialize;
use tokio::time::sleep;

use crate::cluster::operate;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, count, counted};

/// Poll interval of the node's progress.
const ASKED_EVERY: Duration = Duration::from_millis(200);
/// Polls between two progress lines.
const SAID_EVERY: u32 = 10;
const RANGE_MAX: u32 = 100_000;

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("what").required(true)))]
pub(crate) struct Move {
    topic: String,
    /// Which partitions, such as 3, 3-5 or 0,3-5
    #[arg(short, long, value_name = "LIST", value_parser = partitions)]
    partitions: Partitions,
    /// The shard that they go to; `postroad shard list` says which there are
    #[arg(long, group = "what", value_name = "SHARD")]
    to_shard: Option<u32>,
    /// Leave those that move where they are, unless they were handed over already
    #[arg(long, group = "what")]
    cancel: bool,
    /// Do not wait until it is done: it goes on by itself
    #[arg(long)]
    no_wait: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Partitions(BTreeSet<u32>);

fn partitions(text: &str) -> Result<Partitions, String> {
    let wrong = || format!("write partitions as 3, 3-5 or 0,3-5 and not {text:?}");
    let mut all = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().map_err(|_| wrong())?;
        let last: u32 = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last > RANGE_MAX {
            return Err(wrong());
        }
        all.extend(first..=last);
    }
    Ok(Partitions(all))
}

/// Outcome of a move.
#[derive(Serialize)]
struct MoveOutput {
    topic: String,
    partitions: Vec<PartitionAt>,
    /// Moves still in progress, with `--no-wait`.
    moving: Vec<PartitionMove>,
}

#[derive(Serialize)]
struct PartitionAt {
    partition: u32,
    shard: Option<u32>,
}

impl Move {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let Partitions(wanted) = &self.partitions;
        let (topic, partitions) = (self.topic.clone(), wanted.iter().copied().collect());
        let operation = match self.to_shard {
            Some(to_shard) => Operation::MovePartitions { topic, partitions, to_shard },
            None => Operation::CancelMoves { topic, partitions },
        };
        let mut moves: Moves = operate(client, &operation).await?;
        let mut asked = 0;
        loop {
            let own =
                |it: &&PartitionMove| it.topic == self.topic && wanted.contains(&it.partition);
            let moving: Vec<PartitionMove> = moves.moving.iter().filter(own).cloned().collect();
            if moving.is_empty() || self.no_wait {
                return self.show(&moves, moving, output);
            }
            if asked % SAID_EVERY == 0 && output == OutputFormat::Table {
                eprintln!("{}", progress(&moving));
            }
            asked += 1;
            sleep(ASKED_EVERY).await;
            let topic = Some(self.topic.clone());
            moves = operate(client, &Operation::Moves { topic }).await?;
        }
    }

    fn show(
        &self,
        moves: &Moves,
        moving: Vec<PartitionMove>,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let Partitions(wanted) = &self.partitions;
        let at = |partition: &u32| {
            let shard = moves.shards.get(*partition as usize).copied();
            PartitionAt { partition: *partition, shard }
        };
        let partitions = wanted.iter().map(at).collect();
        let moved = MoveOutput { topic: self.topic.clone(), partitions, moving };
        output.show(&moved, describe)?;
        Ok(())
    }
}

fn describe(moved: &MoveOutput) -> String {
    let mut text = String::new();
    for it in &moved.partitions {
        let moves = moved.moving.iter().find(|moving| moving.partition == it.partition);
        let shard = it.shard.map_or_else(|| "none".to_owned(), |shard| shard.to_string());
        let line = match moves {
            Some(moving) => format!("moves from shard {shard} to {}", moving.to_shard),
            None => format!("is in shard {shard}"),
        };
        text.push_str(&format!("partition {} of topic {} {line}\n", it.partition, moved.topic));
    }
    text
}

/// Progress in one line.
fn progress(moving: &[PartitionMove]) -> String {
    let sum = |of: fn(&PartitionMove) -> u64| moving.iter().map(of).sum::<u64>();
    let (copied, of) = (sum(|it| it.copied), sum(|it| it.of));
    let state = |state| moving.iter().filter(|it| it.state == state).count();
    let mut line = format!(
        "{}: {} of {} records copied",
        counted(moving.len() as u64, "partition"),
        count(copied),
        count(of)
    );
    for (of, words) in [
        (MoveState::Waits, "wait"),
        (MoveState::Frozen, "take no records for a moment"),
        (MoveState::HandedOver, "handed over"),
        (MoveState::Cancelled, "being cancelled"),
    ] {
        match state(of) {
            0 => {}
            some => line.push_str(&format!(", {some} {words}")),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_listed_and_given_as_ranges() {
        let list = |text| partitions(text).map(|it| it.0.into_iter().collect::<Vec<_>>());
        assert_eq!(list("3"), Ok(vec![3]));
        assert_eq!(list("5,0-2, 1"), Ok(vec![0, 1, 2, 5]));
        for wrong in ["", "a", "2-1", "1,", "-1", "0-4000000000"] {
            assert!(list(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn progress_has_copied_records_and_special_states() {
        let moving = |partition, state, copied| PartitionMove {
            topic: "orders".to_owned(),
            partition,
            from_shard: 1,
            to_shard: 2,
            state,
            copied,
            of: 1_000,
        };
        let line = progress(&[moving(0, MoveState::Copies, 300), moving(1, MoveState::Waits, 0)]);
        assert_eq!(line, "2 partitions: 300 of 2,000 records copied, 1 wait");
    }
}
