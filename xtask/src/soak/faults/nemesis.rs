//! Nemeses: kinds of faults, and what each of them does to the cluster.

mod acts;

use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::site::Site;
use super::target::WorkloadContext;
use crate::failure::Outcome;
use crate::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Nemesis {
    /// No fault
    None,
    /// kill -9 of one node at a time
    KillOne,
    /// kill -9 of all nodes at a time
    KillAll,
    /// SIGTERM and start of each node in turn
    Rolling,
    /// SIGSTOP of one node for three seconds
    Pause,
    /// A leader is cut off from the other nodes; clients reach it
    CutLeader,
    /// A leader does not receive from the other nodes, and they receive from it
    CutOneWay,
    /// One link of three is cut
    CutRing,
    /// 5 of 100 pieces between a node and the others are lost once, and all are delayed
    Lossy,
    /// All that passes between a node and the others is delayed by 300 ms
    SlowLink,
    /// No room on one node's disk
    FullDisk,
    /// Writes and syncs of one node's disk hang
    HungDisk,
    /// Each write and sync of one node takes 100 ms longer
    SlowDisk,
    /// One node's wall clock jumps by up to an hour
    Clock,
    /// A node loses its directory, and a new one takes its place
    Wipe,
    /// A copy of a running node's directory is started beside it
    Copy,
    /// An image of a running node is restored while the node that knows what is missing is away
    RollBack,
    /// The same while the other nodes run
    RollBackQuiet,
    /// Bits flip in segments of a running node, and a scrub looks for them
    Flip,
    /// A fourth node joins, is drained and removed
    Members,
    /// A topic's partitions move from shard to shard
    Moves,
    /// Backups are taken while a node is killed
    Backup,
}

impl Nemesis {
    /// Whether nodes are paused or cut off, so that the others release the messages of their consumers.
    pub(super) fn isolates(self) -> bool {
        use Nemesis::{Copy, RollBackQuiet};
        use Nemesis::{CutLeader, CutOneWay, CutRing, Lossy, Pause, RollBack, SlowLink};
        // Images are taken from paused nodes.
        let paused = [Pause, Copy, RollBack, RollBackQuiet];
        paused.contains(&self) || [CutLeader, CutOneWay, CutRing, Lossy, SlowLink].contains(&self)
    }

    /// Longest stall of writes that is allowed (p99), for a client with a request timeout of five seconds.
    pub(super) fn stall_max(self) -> Option<Duration> {
        match self {
            Self::KillOne => Some(Duration::from_secs(1)),
            Self::CutLeader | Self::CutOneWay | Self::FullDisk | Self::HungDisk => {
                Some(Duration::from_secs(3))
            }
            _ => None,
        }
    }
}

/// Time of one fault, in milliseconds since the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FaultTime {
    pub(super) begun: u64,
    pub(super) ended: u64,
}

/// Lets a nemesis act until the deadline. The cluster may have faults on return.
pub(super) fn run(
    nemesis: Nemesis,
    site: &mut Site,
    target: &WorkloadContext,
    random: &mut Random,
    deadline: Instant,
) -> Outcome<Vec<FaultTime>> {
    let mut faults = Vec::new();
    let rest = Duration::from_secs(2);
    std::thread::sleep(rest);
    while Instant::now() < deadline {
        let begun = target.now();
        let goes_on = acts::act(nemesis, site, random)?;
        faults.push(FaultTime { begun, ended: target.now() });
        let left = deadline.saturating_duration_since(Instant::now());
        std::thread::sleep(if goes_on { left.min(random.duration(rest, 2 * rest)) } else { left });
    }
    Ok(faults)
}
