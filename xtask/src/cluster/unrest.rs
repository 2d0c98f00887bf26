//! Moves leaders, and kills and restarts nodes, while clients work at the first node.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Cluster, NODES, NodeFault};
use crate::failure::{Failure, Outcome};

/// Interval between two faults.
const STEPS_EVERY: Duration = Duration::from_secs(5);
/// One fault in this number kills a node; the others move leaders.
const KILLS_EVERY: u32 = 3;
/// Time from a kill to the restart.
const AWAY: Duration = Duration::from_secs(2);
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A thread that injects faults until [`FaultInjection::end`].
#[derive(Debug)]
pub(crate) struct FaultInjection {
    end: mpsc::Sender<()>,
    thread: JoinHandle<(Cluster, Outcome<FaultCounts>)>,
}

/// Number of faults of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FaultCounts {
    pub(crate) moves: u32,
    pub(crate) kills: u32,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Drains the node at this place and resumes the previously drained one.
    Move(usize),
    Kill(usize),
}

/// Drains all nodes in turn. Kills all nodes in turn except the first, whose address clients have.
fn step(number: u32) -> Step {
    let (round, of_round) = (number / KILLS_EVERY, number % KILLS_EVERY);
    match of_round + 1 == KILLS_EVERY {
        true => Step::Kill(1 + round as usize % (NODES - 1)),
        false => Step::Move((number - round) as usize % NODES),
    }
}

impl FaultInjection {
    pub(crate) fn begin(mut cluster: Cluster) -> FaultInjection {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let done = inject_faults(&mut cluster, &ended);
            (cluster, done)
        });
        FaultInjection { end, thread }
    }

    /// Stops the thread. On return all nodes run and none is drained.
    pub(crate) fn end(self) -> Outcome<(Cluster, FaultCounts)> {
        drop(self.end);
        let ended = self.thread.join();
        let (cluster, done) = ended.map_err(|_| Failure::new("the unrest panicked"))?;
        Ok((cluster, done?))
    }
}

fn inject_faults(cluster: &mut Cluster, ended: &mpsc::Receiver<()>) -> Outcome<FaultCounts> {
    let mut done = FaultCounts::default();
    let mut drained = None;
    for number in 0.. {
        match ended.recv_timeout(STEPS_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
        cluster.still_runs()?;
        match step(number) {
            Step::Move(place) => {
                if let Some(former) = drained.replace(place) {
                    run_node_command(cluster, "resume", former)?;
                }
                run_node_command(cluster, "drain", place)?;
                done.moves += 1;
            }
            Step::Kill(place) => {
                cluster.take_away(place, NodeFault::Kill)?;
                std::thread::sleep(AWAY);
                cluster.bring_back(place, NodeFault::Kill, READY_WITHIN)?;
                done.kills += 1;
            }
        }
    }
    if let Some(drained) = drained {
        run_node_command(cluster, "resume", drained)?;
    }
    Ok(done)
}

fn run_node_command(cluster: &Cluster, what: &str, place: usize) -> Outcome {
    cluster.node(0).run_command(&["node", what, &(place + 1).to_string()]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_are_drained_in_turn_and_the_first_is_never_killed() {
        use Step::{Kill, Move};
        let steps: Vec<Step> = (0..9).map(step).collect();
        let expected =
            [Move(0), Move(1), Kill(1), Move(2), Move(0), Kill(2), Move(1), Move(2), Kill(1)];
        assert_eq!(steps, expected);
    }
}
