//! The cluster's feature level, which limits writes to formats that every node can read.
//!
//! Nodes are upgraded one after the other, so binaries of two versions replay one log and talk to each other. A
//! binary states the levels that it can replay and write ([`Levels`]). The catalog states the level of the
//! cluster, which is raised once every node supports it. Everything stored or sent has a level:
//!
//! * a file's format, a head of an entry, a snapshot: [`Format`], whose table is the one place for their versions
//! * a command, or a message between nodes: [`Levelled`], whose matches name every variant
//!
//! A new version or variant without a level does not compile: the constants of each format are checked against the
//! table, and the matches have no arm for unnamed variants.

use std::fmt;
use std::sync::atomic::{AtomicU16, Ordering};

use serde::{Deserialize, Serialize};

/// The program and its version, as shown to operators.
pub const PROGRAM: &str = concat!("postroad ", env!("CARGO_PKG_VERSION"));

/// A feature level. It only ever rises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(pub u16);

impl Level {
    /// The level before levels were reported. A node or a cluster that reports no level is at this one.
    pub const FIRST: Self = Self(1);
    /// Three nodes have each shard with rows, and every node has a copy of the catalog; below it each node has every
    /// shard.
    pub const REPLICAS: Self = Self(3);
    /// Groups of Kafka Streams are stored for the next coordinator.
    pub const STREAMS: Self = Self(4);
    /// A topic can have the events of its records written to a topic.
    pub const TRACES: Self = Self(4);
    /// Nodes number the appends that they send to a shard's leader, and retry them when a reply is lost.
    pub const NUMBERED: Self = Self(5);
    /// A group of the classic protocol is stored when a member leaves it, and not only once it is stable again.
    pub const DEPARTURES: Self = Self(6);
    /// Ids of records in topics with `dedup.window.ms` are part of a shard's state.
    pub const RECORD_IDS: Self = Self(7);
    /// A node persists an epoch that rises while it runs, and the others refuse an earlier one.
    pub const EPOCHS: Self = Self(7);
    /// Metadata of a committed offset is limited in UTF-16 code units, no longer in bytes.
    pub const METADATA_UNITS: Self = Self(7);
    /// Exchanges may be of the type `x-federation-upstream`.
    pub const FEDERATION: Self = Self(7);
    /// A change of the catalog is answered once all connected nodes follow it.
    pub const PROPAGATION: Self = Self(8);

    /// A message between shards may take commands along, so that a transaction settles records of several shards as
    /// a whole.
    pub const MESSAGE_COMMANDS: Self = Self(9);
    /// Transactions of Kafka's producers.
    pub const TRANSACTIONS: Self = Self(10);

    /// Features that a cluster gains at this level, in words. `None`: this binary does not know the level.
    pub const fn brings(self) -> Option<&'static str> {
        match self.0 {
            1 => Some("everything up to the version that has levels"),
            2 => Some("partitions can be moved to another shard: `postroad topic move`"),
            3 => Some(
                "three nodes have each shard, whichever of up to 64: a cluster that grows takes more",
            ),
            4 => Some(
                "groups of Kafka Streams go on when another node coordinates them; topics can keep what happens to their records: \
                 the configuration `trace`",
            ),
            5 => Some(
                "what is published at a node that does not lead is published once, also where the leader is lost before it \
                 has answered",
            ),
            6 => Some(
                "a member that has left a group of consumers stays gone when its coordinator is lost before the others have \
                 joined again",
            ),
            7 => Some(
                "a record is recognised by its id (`dedup.window.ms`) also after it was settled and deleted, after a restart, \
                 with another leader and in another shard, and a leader reads no log for it before it serves; a node whose \
                 disk was set back to an image taken while it ran is refused by the others",
            ),
            8 => Some(
                "a binding, a right or a configuration that was set through one node is in force on all connected nodes once it \
                 is confirmed",
            ),
            9 => Some(
                "an AMQP transaction over queues of several shards takes effect as a whole or not at all",
            ),
            10 => Some("clients of Kafka can have transactions"),
            // The level of a test binary that acts as the next version.
            next if next == Levels::OURS.max.0 + 1 => Some(
                "entries and snapshots that say their level, and nothing else: it is for tests",
            ),
            _ => None,
        }
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::FIRST
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The levels that a binary can replay and write, both included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Levels {
    pub min: Level,
    pub max: Level,
}

impl Levels {
    /// The levels of this source.
    pub const OURS: Self = Self { min: Level::FIRST, max: Level(10) };
    /// The levels of a binary that reports none.
    pub const UNTOLD: Self = Self { min: Level::FIRST, max: Level::FIRST };

    pub const fn has(self, level: Level) -> bool {
        self.min.0 <= level.0 && level.0 <= self.max.0
    }
}

impl Default for Levels {
    fn default() -> Self {
        Self::OURS
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.min == self.max {
            true => write!(f, "level {}", self.min),
            false => write!(f, "levels {} to {}", self.min, self.max),
        }
    }
}

/// A variant of a growing set that is stored or sent to another node, with the first level that permits it.
///
/// Implementations match every variant by name, so that none is added without a level.
pub trait Levelled {
    fn level(&self) -> Level;
}

/// Implements [`Levelled`] for an enum by a match that names every variant:
/// `base::levels!(Asked { Level::FIRST => Append | Relay; @ Self::Execute { command } => command.level(); })`.
#[macro_export]
macro_rules! levels {
    ($of:ty { $($level:expr => $($variant:ident)|+;)+ $(@ $inner:pat => $within:expr;)* }) => {
        impl $crate::Levelled for $of {
            fn level(&self) -> $crate::Level {
                match self {
                    $($(Self::$variant { .. })|+ => $level,)+
                    $($inner => $within,)*
                }
            }
        }
    };
}

/// Formats in files, in entries or between nodes that have their own version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The head of an entry with the commands that it has: `machine::entry`.
    EntryHead,
    /// The machine's part of a snapshot.
    MachineSnapshot,
    /// The state that consensus stores for itself: votes, members, the head of a snapshot.
    Consensus,
    /// Messages between the members of a group.
    GroupMessage,
    /// The handshake and the frames of a link.
    Link,
    /// The segment's header. Its version also covers everything inside a frame.
    Segment,
    RewrittenSegment,
    SnapshotFile,
    RunTable,
    Vote,
    /// The parts of a snapshot that is sent to a member.
    Transfer,
    /// The stored members of a group of consumers.
    GroupMembers,
    /// The node that a data directory belongs to.
    NodeFile,
    /// The level of the directory's cluster. It must never change: programs of every level read it.
    LevelFile,
    /// The promises of a node in the group of a shard whose replica was removed.
    GivenUp,
    /// The epochs of a node and of its peers.
    EpochFile,
}

impl Format {
    /// The newest version that is written at a level. A version listed here for a later level than the first is
    /// written only where the level permits it. Each format decides for itself which versions it reads.
    pub const fn newest(self, level: Level) -> u32 {
        match self {
            // Version 3 is the same with the level in front. It is written at every level but the first.
            Self::EntryHead => 2,
            Self::MachineSnapshot => {
                if level.0 < 2 {
                    6
                } else if level.0 < Level::NUMBERED.0 {
                    7
                } else if level.0 < Level::RECORD_IDS.0 {
                    8
                } else if level.0 < Level::MESSAGE_COMMANDS.0 {
                    9
                } else if level.0 < Level::TRANSACTIONS.0 {
                    10
                } else {
                    11
                }
            }
            Self::Consensus => 1,
            Self::GroupMessage => 1,
            Self::Link => 1,
            Self::Segment => 2,
            Self::RewrittenSegment => 2,
            Self::SnapshotFile => 1,
            Self::RunTable => 3,
            Self::Vote => 2,
            Self::Transfer => 1,
            Self::GroupMembers => {
                if level.0 < Level::STREAMS.0 {
                    1
                } else if level.0 < Level::DEPARTURES.0 {
                    2
                } else {
                    3
                }
            }
            Self::NodeFile => 1,
            Self::LevelFile => 1,
            Self::GivenUp => 1,
            Self::EpochFile => 1,
        }
    }
}

/// The levels that a node supports, and the level of its cluster as far as the node knows. Shared by all parts of
/// a node.
#[derive(Debug)]
pub struct ClusterLevel {
    can: Levels,
    now: AtomicU16,
}

impl ClusterLevel {
    /// Starts at the first level, until the cluster's level is known.
    pub fn new(can: Levels) -> Self {
        Self { can, now: AtomicU16::new(Level::FIRST.0) }
    }

    pub fn can(&self) -> Levels {
        self.can
    }

    pub fn now(&self) -> Level {
        Level(self.now.load(Ordering::Acquire))
    }

    /// Records that the cluster is at this level at least.
    pub fn raise(&self, level: Level) {
        self.now.fetch_max(level.0, Ordering::AcqRel);
    }

    /// Whether a value that needs this level may be written or sent.
    pub fn permits(&self, needed: &impl Levelled) -> bool {
        needed.level() <= self.now()
    }
}

impl Default for ClusterLevel {
    fn default() -> Self {
        Self::new(Levels::OURS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Since(u16);

    impl Levelled for Since {
        fn level(&self) -> Level {
            Level(self.0)
        }
    }

    #[test]
    fn every_supported_level_has_a_description() {
        let Levels { min, max } = Levels::OURS;
        assert!((min.0..=max.0).all(|level| Level(level).brings().is_some()));
        assert_eq!(Level(max.0 + 9).brings(), None);
    }

    #[test]
    fn cluster_level_only_rises_and_permits_values_up_to_it() {
        let level = ClusterLevel::new(Levels { min: Level(1), max: Level(3) });
        assert!(level.permits(&Since(1)) && !level.permits(&Since(2)));
        level.raise(Level(3));
        level.raise(Level(2));
        assert_eq!(level.now(), Level(3));
        assert!(level.permits(&Since(3)) && !level.permits(&Since(4)));
    }

    #[test]
    fn levels_are_displayed_in_words() {
        assert_eq!(Levels { min: Level(1), max: Level(1) }.to_string(), "level 1");
        assert_eq!(Levels { min: Level(1), max: Level(3) }.to_string(), "levels 1 to 3");
    }
}
