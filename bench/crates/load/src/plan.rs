//! Definition of a load: senders, receivers, rates, destinations and phases.

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
    /// Receivers of each subscription.
    pub receivers: u32,
    pub pace: Pace,
    /// Messages sent together in a closed loop: a random number from this range each time.
    pub batch: RangeInclusive<usize>,
    /// Messages that a receiver requests at a time.
    pub receive_max: usize,
    pub message_bytes: usize,
    pub content: Content,
    /// Lanes of each destination.
    pub lanes: u32,
    /// Share of messages that are sent twice, as by a sender that missed the acknowledgement.
    pub sent_twice: f64,
    pub work: Work,
    /// A stage between senders and receivers: it receives from the senders and sends to the
    /// topology.
    pub relay: Option<Relay>,
    /// Not sent to agents: only the conductor of the load runs phases.
    #[serde(skip)]
    pub phases: Vec<Phase>,
    /// Time limit, after the senders have stopped, for messages in flight.
    pub drain_max: Duration,
    /// Time without any arrival after which no more is expected. A longer redelivery delay takes
    /// precedence.
    pub drain_idle: Duration,
    /// Whether the outcome has the time of each acknowledgement. Such a load runs in one process.
    #[serde(default)]
    pub keeps_acknowledgements: bool,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum Pace {
    /// The next batch is sent once the previous one is safe.
    Closed,
    /// As fast as the system accepts messages, with at most `window` unconfirmed ones for each
    /// sender.
    Flood { window: usize },
    /// One message at a time: the next once a receiver has the previous one.
    PingPong,
    /// A fixed rate of all senders together, whatever the system does. A sender with a full window
    /// falls behind, and that counts as latency.
    Open { per_second: f64, window: usize },
}

/// Work of a receiver on a message before it settles it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Work {
    None,
    /// Leaves this share unsettled, so that it is redelivered after its lease.
    Forget {
        share: f64,
    },
    /// Releases this share once.
    Release {
        share: f64,
    },
    /// Releases every message whose number is a multiple of `every`, counted by its sender, at each
    /// delivery.
    Poison {
        every: u64,
    },
    /// Takes time: each share of messages (they add up to one) a time from this range. Messages
    /// that arrived together are worked on concurrently.
    Take(Vec<(f64, RangeInclusive<Duration>)>),
}

impl Work {
    /// Whether the message with this number, counted by its sender, is never settled.
    pub(crate) fn is_poison(&self, sequence: u64) -> bool {
        matches!(self, Self::Poison { every } if sequence.is_multiple_of(*every))
    }
}

/// A stage between senders and receivers, which works on messages and forwards them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Relay {
    /// Destinations of the senders; as many as those of the plan's topology.
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
    /// Action at its start, with its description.
    pub action: Option<(String, Action)>,
}

pub type Action = Box<dyn FnOnce() -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Receivers {
    Running,
    /// They receive nothing; their received messages are settled.
    Paused,
    /// The receivers of one subscription stop receiving but stay connected; the others continue.
    Stalled {
        subscription: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Until {
    Time(Duration),
    /// Until this many bytes wait for receivers, or the time limit expires.
    Backlog {
        bytes: u64,
        at_most: Duration,
    },
    /// Until no more than this share of the initial backlog is left, or the time limit expires.
    Drained {
        share: f64,
        at_most: Duration,
    },
    /// Until a new confirmation after the phase's action. If there is none within the time limit,
    /// the load ends, since later phases would be meaningless.
    Confirmed {
        at_most: Duration,
    },
    /// Until each sender has a confirmation for a message sent after the action. If one has none,
    /// the load ends, as with [`Confirmed`](Self::Confirmed).
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

    /// Planned length: a wait for a server is not meant to take long.
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
    /// One sender and one receiver, no warm-up, as fast as a closed loop runs.
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

    /// The part of the plan that agents need.
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

    /// Receivers of all subscriptions.
    pub fn all_receivers(&self) -> u32 {
        self.topology.subscriptions * self.receivers
    }

    pub fn all_lanes(&self) -> u32 {
        self.topology.destinations * self.lanes
    }

    /// Destinations of sender or receiver number `one` among `of`. All destinations are covered, as
    /// evenly as possible.
    pub fn share(&self, one: u32, of: u32) -> Vec<u32> {
        let all = self.topology.destinations;
        if of >= all { vec![one % all] } else { (one..all).step_by(of as usize).collect() }
    }

    /// Topology of the senders.
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
    fn shares_cover_every_destination() {
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
