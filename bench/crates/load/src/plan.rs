//! What a load is: who sends how much to what, who receives it, and for how long.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use driver::Topology;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::payload::Content;

#[derive(Debug, Serialize, Deserialize)]
pub struct Plan {
    pub topology: Topology,
    pub senders: u16,
    /// Of each subscription.
    pub receivers: u32,
    pub pace: Pace,
    /// Messages that are sent together in a closed loop: a random number of them each time.
    pub batch: RangeInclusive<usize>,
    /// Messages that a receiver asks for at a time.
    pub receive_max: usize,
    pub message_bytes: usize,
    pub content: Content,
    /// Of each destination.
    pub lanes: u32,
    /// The share of messages that are sent twice, as a sender does that never saw the answer.
    pub sent_twice: f64,
    pub work: Work,
    /// A stage in between: senders send to it, and it sends to the topology.
    pub relay: Option<Relay>,
    /// Whoever conducts the load keeps them to himself.
    #[serde(skip)]
    pub phases: Vec<Phase>,
    /// How long to wait, after the senders have stopped, for what is still on its way.
    pub drain_max: Duration,
    /// Nothing came for so long: nothing will. Where what was received and not settled stays away
    /// longer, that counts.
    pub drain_idle: Duration,
    /// When each sender was told that something is safe goes into the outcome. Whoever carries such
    /// a load does so in one process.
    #[serde(default)]
    pub keeps_acknowledgements: bool,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Pace {
    /// The next batch once the one before is safe.
    Closed,
    /// As fast as the system takes them, with at most so many not yet safe, of each sender.
    Flood { window: usize },
    /// One message at a time: the next once the one before has come to a receiver.
    PingPong,
    /// So many a second, of all senders together, whatever the system does; a sender whose window
    /// is full falls behind, and that counts as latency.
    Open { per_second: f64, window: usize },
}

/// What a receiver does with a message before it settles it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Work {
    None,
    /// Leaves this share unsettled, so that it comes again after its lease.
    Forget {
        share: f64,
    },
    /// Gives this share back once.
    Release {
        share: f64,
    },
    /// Gives back every message with such a number, counted by its sender, whenever it comes.
    Poison {
        every: u64,
    },
    /// Takes so long: each share of messages (they add up to one) a time between these. Messages
    /// that came together are worked on side by side.
    Take(Vec<(f64, RangeInclusive<Duration>)>),
}

impl Work {
    /// Whether the message with this number, counted by its sender, is never settled.
    pub(crate) fn is_poison(&self, sequence: u64) -> bool {
        matches!(self, Self::Poison { every } if sequence.is_multiple_of(*every))
    }
}

/// A stage between senders and receivers, which works on messages and sends them on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Relay {
    /// Where the senders send to; with as many destinations as the plan's topology.
    pub from: Topology,
    pub workers: u32,
    pub receive_max: usize,
    pub work: Work,
}

/// A stretch of a run.
pub struct Phase {
    /// `warm-up`, `before`, `during`.
    pub name: String,
    pub until: Until,
    /// Whether its figures are the run's figures.
    pub measured: bool,
    pub receivers: Receivers,
    /// What happens as it begins, with the words for it.
    pub action: Option<(String, Action)>,
}

pub type Action = Box<dyn FnOnce() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Receivers {
    Running,
    /// They take nothing; what they had is settled.
    Paused,
    /// Those of one subscription take nothing, connected as they are; the others go on.
    Stalled {
        subscription: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Until {
    Time(Duration),
    /// So many bytes wait for receivers, or the time is up.
    Backlog {
        bytes: u64,
        at_most: Duration,
    },
    /// No more than this share of what waited when it began is left, or the time is up.
    Drained {
        share: f64,
        at_most: Duration,
    },
    /// Something is confirmed that was not when its action was done. If nothing is for so long, the
    /// phases that follow would say nothing, and the load ends.
    Confirmed {
        at_most: Duration,
    },
    /// Each sender has been told that something is safe that it sent after the action was done. The
    /// load ends if one is not, as with [`Confirmed`](Self::Confirmed).
    ConfirmedToAll {
        at_most: Duration,
    },
}

impl Until {
    pub fn at_most(self) -> Duration {
        match self {
            Self::Time(time) => time,
            Self::Backlog { at_most, .. }
            | Self::Drained { at_most, .. }
            | Self::Confirmed { at_most }
            | Self::ConfirmedToAll { at_most } => at_most,
        }
    }

    /// As long as it is meant to be: who waits for a server does not mean to wait long.
    pub fn planned(self) -> Duration {
        match self {
            Self::Confirmed { .. } | Self::ConfirmedToAll { .. } => Duration::ZERO,
            _ => self.at_most(),
        }
    }
}

impl Phase {
    pub fn warm_up(time: Duration) -> Self {
        Self { measured: false, ..Self::measured("warm-up", time) }
    }

    pub fn measured(name: &str, time: Duration) -> Self {
        Self {
            name: name.to_owned(),
            until: Until::Time(time),
            measured: true,
            receivers: Receivers::Running,
            action: None,
        }
    }
}

impl fmt::Debug for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = self.action.as_ref().map(|(what, _)| what);
        f.debug_struct("Phase")
            .field("name", &self.name)
            .field("until", &self.until)
            .field("measured", &self.measured)
            .field("receivers", &self.receivers)
            .field("action", &action)
            .finish()
    }
}

impl Plan {
    /// One sender and one receiver, no warm-up, as fast as a closed loop goes.
    pub fn new(topology: Topology, message_bytes: usize, time: Duration) -> Self {
        Self {
            topology,
            senders: 1,
            receivers: 1,
            pace: Pace::Closed,
            batch: 1..=1,
            receive_max: 10,
            message_bytes,
            content: Content::default(),
            lanes: 1,
            sent_twice: 0.0,
            work: Work::None,
            relay: None,
            phases: vec![Phase::measured("load", time)],
            drain_max: Duration::from_secs(60),
            drain_idle: Duration::from_secs(5),
            keeps_acknowledgements: false,
        }
    }

    /// What somebody must know of it who does not conduct it.
    pub fn without_phases(&self) -> Self {
        Self {
            topology: self.topology.clone(),
            batch: self.batch.clone(),
            content: self.content.clone(),
            work: self.work.clone(),
            relay: self.relay.clone(),
            phases: Vec::new(),
            ..*self
        }
    }

    /// Of all subscriptions.
    pub fn all_receivers(&self) -> u32 {
        self.topology.subscriptions * self.receivers
    }

    pub fn all_lanes(&self) -> u32 {
        self.topology.destinations * self.lanes
    }

    /// The destinations that a sender or a receiver, one of so many, serves: all of them are
    /// served, as evenly as it goes.
    pub fn share(&self, one: u32, of: u32) -> Vec<u32> {
        let all = self.topology.destinations;
        if of >= all { vec![one % all] } else { (one..all).step_by(of as usize).collect() }
    }

    /// Where the senders send to.
    pub fn sent_to(&self) -> &Topology {
        self.relay.as_ref().map_or(&self.topology, |relay| &relay.from)
    }

    pub fn time(&self) -> Duration {
        self.phases.iter().map(|phase| phase.until.planned()).sum()
    }
}

#[cfg(test)]
mod tests {
    use driver::{Style, Tier};

    use super::*;

    #[test]
    fn every_destination_is_served_by_somebody() {
        for (destinations, of) in [(1, 1), (10, 3), (3, 10), (1000, 8), (7, 7)] {
            let mut topology = Topology::new("t", Style::Queue, Tier::T0);
            topology.destinations = destinations;
            let plan = Plan::new(topology, 100, Duration::from_secs(1));
            let mut served: Vec<u32> = (0..of).flat_map(|one| plan.share(one, of)).collect();
            served.sort_unstable();
            served.dedup();
            assert_eq!(served, (0..destinations).collect::<Vec<_>>());
        }
    }
}
