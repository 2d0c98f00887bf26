//! The place of a node, whether or not it has one.

use std::sync::Arc;
use std::time::Duration;

use base::Levels;
use broker::Broker;
use nodes::Nodes;
use world::{RuntimeClock, SimulatedDisk};

use crate::checkers::Observations;
use crate::profile::Limits;
use crate::random::Random;

/// The host's name.
pub(super) fn name(place: usize) -> &'static str {
    ["node-1", "node-2", "node-3", "node-4", "node-5", "node-6", "node-7"][place]
}

/// Name of its disk in the trace.
pub(super) fn disk_name(place: usize) -> &'static str {
    ["node-1's ", "node-2's ", "node-3's ", "node-4's ", "node-5's ", "node-6's ", "node-7's "]
        [place]
}

/// The intended state of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IntendedState {
    /// The place has no node.
    Empty,
    /// The place has a node, which may be down for a while.
    Member,
    /// The node is to leave the cluster.
    Leaving,
    /// Its disk is gone.
    Lost,
}

/// The place of a node, whether or not it runs.
#[derive(Debug)]
pub(crate) struct NodePlace {
    pub(crate) standing: IntendedState,
    /// It joins an existing cluster.
    pub(crate) joins: bool,
    /// The operator's request that [`super::chaos`] has not carried out yet.
    pub(crate) asked: Option<PlaceRequest>,
    /// The node's number, once it has one.
    pub(crate) number: Option<u32>,
    pub(crate) disk: SimulatedDisk,
    pub(crate) trouble: DiskTrouble,
    /// The disk is an image of an earlier time, and no node may start from it.
    pub(crate) is_set_back: bool,
    /// The clock of its process.
    pub(crate) clock: Option<Arc<RuntimeClock>>,
    /// Total steps of the machine's wall clock.
    pub(crate) clock_set_ms: i64,
    /// Levels of the program that runs there, or ran last.
    pub(crate) levels: Levels,
    /// While the node runs and is open.
    pub(crate) broker: Option<Broker>,
    pub(crate) nodes: Option<Nodes>,
    pub(crate) limits: Limits,
    /// One in this many disk operations is slow.
    pub(crate) slow_once_in: Option<u64>,
    /// State that its disk reads.
    pub(crate) knowledge: Observations,
}

/// Faults of the disk of a place.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct DiskTrouble {
    /// A write or a sync was to fail in this life: the node may end.
    pub(crate) fails: bool,
    /// It is full: a starting node may end.
    pub(crate) is_full: bool,
    /// It was full since the node's start: the node may report the error after there is room again.
    pub(crate) was_full: bool,
    /// Each of its operations takes long.
    pub(crate) is_slow: bool,
    /// The machine's power fails next, unless it is off.
    pub(crate) lose_power: bool,
    /// Bits flipped in this life.
    pub(crate) flipped: bool,
    /// The node has ended by itself, and is not restarted yet.
    pub(crate) has_ended: bool,
    /// The node does not start, because of damage that it found.
    pub(crate) is_refused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlaceRequest {
    /// A node with an empty disk is to start here.
    Start,
    /// The node here is to end, and its disk is lost.
    Lose,
    /// The node here is to end, and starts from the operator's image of its disk.
    SetBack,
    /// The node is cut off from the others for this time.
    CutOff(Duration),
}

impl NodePlace {
    pub(crate) fn new(is_seed: bool, random: &mut Random) -> Self {
        Self {
            standing: if is_seed { IntendedState::Member } else { IntendedState::Empty },
            joins: !is_seed,
            asked: None,
            number: None,
            disk: SimulatedDisk::new(),
            trouble: DiskTrouble::default(),
            is_set_back: false,
            clock: None,
            levels: Levels::OURS,
            clock_set_ms: 0,
            broker: None,
            nodes: None,
            limits: Limits::for_member(random),
            slow_once_in: random.once_in(4).then(|| random.between(5, 100)),
            knowledge: Observations::default(),
        }
    }

    /// Whether the place has a node that is to stay.
    pub(crate) fn is_member(&self) -> bool {
        self.standing == IntendedState::Member
    }

    pub(crate) fn is_node(&self, node: u64) -> bool {
        self.number.map(u64::from) == Some(node)
    }

    /// Whether its process runs when it is started.
    pub(crate) fn may_run(&self) -> bool {
        matches!(self.standing, IntendedState::Member | IntendedState::Leaving)
    }

    /// Its process is gone.
    pub(crate) fn ended(&mut self) {
        self.nodes = None;
        self.broker = None;
        self.clock = None;
    }

    /// Replaces its disk by an empty one.
    pub(crate) fn emptied(&mut self) {
        self.ended();
        self.number = None;
        self.disk = SimulatedDisk::new();
        self.trouble = DiskTrouble::default();
        self.is_set_back = false;
    }

    /// Whether its disk has damage.
    pub(crate) fn is_damaged(&self) -> bool {
        self.trouble.is_refused || self.is_set_back || !self.disk.corrupted_files().is_empty()
    }

    pub(crate) fn set_clock(&mut self, by_ms: i64) {
        self.clock_set_ms += by_ms;
        if let Some(clock) = &self.clock {
            clock.step_ms(by_ms);
        }
    }
}
