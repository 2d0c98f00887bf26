//! Moves leaders, and kills nodes and starts them again, while clients work at the first node.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Cluster, Going, NODES};
use crate::failure::{Failure, Outcome};

/// The time between two steps.
const STEPS_EVERY: Duration = Duration::from_secs(5);
/// One step in so many kills a node; the others move leaders.
const KILLS_EVERY: u32 = 3;
/// A killed node is started again after this time.
const AWAY: Duration = Duration::from_secs(2);
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Runs in a thread of its own until [`Unrest::end`].
#[derive(Debug)]
pub(crate) struct Unrest {
    end: mpsc::Sender<()>,
    thread: JoinHandle<(Cluster, Outcome<Done>)>,
}

/// How many steps of each kind were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) moves: u32,
    pub(crate) kills: u32,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Drains the node at this place, and resumes the one that was drained before.
    Move(usize),
    Kill(usize),
}

/// Drains all nodes in turn, and kills in turn those that clients were not told of.
fn step(number: u32) -> Step {
    let (round, of_round) = (number / KILLS_EVERY, number % KILLS_EVERY);
    match of_round + 1 == KILLS_EVERY {
        true => Step::Kill(1 + round as usize % (NODES - 1)),
        false => Step::Move((number - round) as usize % NODES),
    }
}

impl Unrest {
    pub(crate) fn begin(mut cluster: Cluster) -> Unrest {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let done = go_on(&mut cluster, &ended);
            (cluster, done)
        });
        Unrest { end, thread }
    }

    /// All nodes run on return, and each may lead.
    pub(crate) fn end(self) -> Outcome<(Cluster, Done)> {
        drop(self.end);
        let ended = self.thread.join();
        let (cluster, done) = ended.map_err(|_| Failure::new("the unrest panicked"))?;
        Ok((cluster, done?))
    }
}

fn go_on(cluster: &mut Cluster, ended: &mpsc::Receiver<()>) -> Outcome<Done> {
    let mut done = Done::default();
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
                    decide(cluster, "resume", former)?;
                }
                decide(cluster, "drain", place)?;
                done.moves += 1;
            }
            Step::Kill(place) => {
                cluster.take_away(place, Going::Kill)?;
                std::thread::sleep(AWAY);
                cluster.bring_back(place, Going::Kill, READY_WITHIN)?;
                done.kills += 1;
            }
        }
    }
    if let Some(drained) = drained {
        decide(cluster, "resume", drained)?;
    }
    Ok(done)
}

fn decide(cluster: &Cluster, what: &str, place: usize) -> Outcome {
    cluster.node(0).ask(&["node", what, &(place + 1).to_string()]).map(drop)
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
