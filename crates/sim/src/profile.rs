//! The possible faults of a run. A profile selects the kinds of faults; the seed decides which of them occur,
//! when, and how small the limits are.

use std::time::Duration;

use journal::Options;

use crate::random::Random;

/// The kinds of faults of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// The power fails, and unsynced data is lost.
    Power,
    /// The process is killed; the page cache survives.
    Kill,
    /// Syncs are slow or hang, writes and syncs fail, the disk is full.
    Disk,
    /// The wall clock is set.
    Clock,
    /// The leader is reelected.
    Elections,
    /// All faults of one node.
    All,
    /// Three nodes of a cluster, instead of one: nodes end, links are cut. Not part of `All`.
    Cluster,
    /// As [`Self::Cluster`], with clients that lease records at any node.
    Relays,
    /// As [`Self::Cluster`], with five nodes.
    Five,
    /// As [`Self::Cluster`], and nodes join, are drained, removed and replaced.
    Members,
    /// As [`Self::Cluster`], and each life of a node is of one of two versions, until an operator finalizes the
    /// newer one.
    Upgrade,
    /// As [`Self::Members`], and bits flip on one member's disk at a time.
    Damage,
    /// As [`Self::Cluster`], and partitions move from shard to shard.
    Moves,
    /// As [`Self::Cluster`], and queues are declared, filled and deleted by AMQP at any node.
    Queues,
    /// As [`Self::Cluster`], with clients that commit offsets, and read them and the ends of partitions at any node.
    Registers,
    /// As [`Self::Members`], with each shard on three nodes of many, and disks that are set back to an image of
    /// the running node.
    Images,
    /// Three nodes, of which one leader at a time is cut off or has a full disk: writes soon continue elsewhere.
    Stalls,
    /// As [`Self::Relays`] and [`Self::Members`], with so many nodes that each shard is on only three of them.
    Spread,
}

impl Profile {
    pub const ALL: [Self; 18] = [
        Self::Power,
        Self::Kill,
        Self::Disk,
        Self::Clock,
        Self::Elections,
        Self::All,
        Self::Cluster,
        Self::Relays,
        Self::Five,
        Self::Members,
        Self::Upgrade,
        Self::Damage,
        Self::Moves,
        Self::Queues,
        Self::Registers,
        Self::Images,
        Self::Stalls,
        Self::Spread,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Kill => "kill",
            Self::Disk => "disk",
            Self::Clock => "clock",
            Self::Elections => "elections",
            Self::All => "all",
            Self::Cluster => "cluster",
            Self::Relays => "relays",
            Self::Five => "five",
            Self::Members => "members",
            Self::Upgrade => "upgrade",
            Self::Damage => "damage",
            Self::Moves => "moves",
            Self::Queues => "queues",
            Self::Registers => "registers",
            Self::Images => "images",
            Self::Stalls => "stalls",
            Self::Spread => "spread",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Whether the profile runs the nodes of a cluster.
    pub(crate) fn has_nodes(self) -> bool {
        use Profile::{
            Cluster, Damage, Five, Images, Members, Moves, Queues, Registers, Relays, Spread,
            Stalls, Upgrade,
        };
        let with_clients = matches!(self, Cluster | Relays | Queues | Registers | Upgrade | Moves);
        with_clients || matches!(self, Five | Members | Damage | Images | Stalls | Spread)
    }

    fn has(self, other: Self) -> bool {
        self == other || self == Self::All
    }
}

/// The end of a life of the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeEnd {
    PowerLoss,
    Kill,
    /// It gets a stop request, and time to stop.
    Stop,
}

/// One life of the node.
#[derive(Clone, Debug)]
pub struct Life {
    pub end: LifeEnd,
    /// Limit of its simulated time.
    pub within: Duration,
    /// It ends earlier, in the middle of this number of further disk changes.
    pub after_changes: Option<u64>,
    pub elections_every: Option<Duration>,
    pub clock_steps_every: Option<Duration>,
    pub disk: DiskFaults,
    pub limits: Limits,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct DiskFaults {
    /// The files whose syncs or writes fail.
    pub of: Files,
    /// The n-th sync of one of them fails.
    pub sync_fails: Option<u64>,
    /// The n-th write to one of them fails.
    pub write_fails: Option<u64>,
    /// The disk is full for this long, then not, and so on.
    pub full_every: Option<Duration>,
    /// One in this many disk operations takes 50 ms to a second.
    pub slow_once_in: Option<u64>,
    /// One in this many takes ten seconds.
    pub hangs_once_in: Option<u64>,
}

/// Some of a node's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Files {
    #[default]
    Segments,
    /// All files of the catalog's shard. It writes seldom: a fault that counts the writes of both shards misses
    /// it.
    Catalog,
    /// All files of one of the shards with rows: including votes and snapshots.
    Rows(u32),
}

impl Files {
    /// A part of their paths that other files do not have.
    pub fn path_part(self) -> &'static str {
        match self {
            Self::Segments => ".seg",
            Self::Catalog => "shard-0/",
            Self::Rows(1) => "shard-1/",
            Self::Rows(2) => "shard-2/",
            Self::Rows(_) => "shard-3/",
        }
    }
}

/// Small limits, so that events that are rare on a machine happen every second.
#[derive(Clone, Debug)]
pub struct Limits {
    pub journal: Options,
    /// Log of a shard kept behind snapshots, in a cluster.
    pub kept_log_bytes_max: u64,
    pub housekeeping_interval: Duration,
}

impl Limits {
    fn of(random: &mut Random) -> Self {
        let journal = Options {
            segment_bytes: random.of(&[64 << 10, 128 << 10, 1 << 20]),
            frame_bytes_max: random.of(&[4 << 10, 64 << 10, 1 << 20]),
            tail_cache_bytes: random.of(&[0, 16 << 10, 1 << 20]),
            sidecar_cache_bytes: random.of(&[0, 64 << 10, 16 << 20]),
            disk_reserve_bytes: 0,
            readers: 1,
            keep_log: false,
            ..Options::default()
        };
        let housekeeping_interval = Duration::from_millis(random.of(&[5, 50, 1_000]));
        let kept_log_bytes_max = base::limits::KEPT_LOG_BYTES_MAX;
        Self { journal, kept_log_bytes_max, housekeeping_interval }
    }
}

impl Limits {
    /// Limits of a node in a cluster. Mostly it keeps so little log that a returning member needs a snapshot.
    pub fn for_member(random: &mut Random) -> Self {
        let kept_log_bytes_max = random.of(&[1, 1, 100 << 10, base::limits::KEPT_LOG_BYTES_MAX]);
        Self { kept_log_bytes_max, ..Self::of(random) }
    }
}

impl Life {
    pub fn of(profile: Profile, random: &mut Random) -> Self {
        let mut ends = vec![LifeEnd::Stop];
        if profile.has(Profile::Power) || profile == Profile::Disk {
            ends.extend([LifeEnd::PowerLoss; 3]);
        }
        if profile.has(Profile::Kill) {
            ends.extend([LifeEnd::Kill; 3]);
        }
        let end = random.of(&ends);
        let within = Duration::from_millis(random.between(200, 8_000));
        let crashes = end != LifeEnd::Stop && !random.once_in(3);
        let after_changes = crashes.then(|| random.between(5, 3_000));
        let sometimes = |has: bool, random: &mut Random, from_ms, to_ms| {
            let every_ms = random.between(from_ms, to_ms);
            (has && !random.once_in(3)).then_some(Duration::from_millis(every_ms))
        };
        let elections_every = sometimes(profile.has(Profile::Elections), random, 50, 2_000);
        // A node may notice only the sum of two steps within one second.
        let clock_steps_every = sometimes(profile.has(Profile::Clock), random, 2_200, 5_000);
        let disk = match profile.has(Profile::Disk) {
            true => DiskFaults::of(random),
            false => DiskFaults::default(),
        };
        let limits = Limits::of(random);
        Self { end, within, after_changes, elections_every, clock_steps_every, disk, limits }
    }

    /// The last one, without faults.
    pub fn healed(random: &mut Random) -> Self {
        Self {
            end: LifeEnd::Stop,
            within: Duration::MAX,
            after_changes: None,
            elections_every: None,
            clock_steps_every: None,
            disk: DiskFaults::default(),
            limits: Limits::of(random),
        }
    }

    /// Whether the node may end by itself in it.
    pub fn may_fail(&self) -> bool {
        self.disk.sync_fails.is_some() || self.disk.write_fails.is_some()
    }
}

impl DiskFaults {
    fn of(random: &mut Random) -> Self {
        let of = random.of(&[
            Files::Segments,
            Files::Catalog,
            Files::Rows(1),
            Files::Rows(1),
            Files::Rows(2),
            Files::Rows(3),
        ]);
        let mut faults = Self { of, ..Self::default() };
        match random.below(6) {
            0 => faults.sync_fails = Some(random.below(200)),
            1 => faults.write_fails = Some(random.below(200)),
            2 => faults.full_every = Some(Duration::from_millis(random.between(100, 2_000))),
            3 => faults.slow_once_in = Some(random.between(5, 50)),
            4 => faults.hangs_once_in = Some(random.between(100, 1_000)),
            _ => {}
        }
        faults
    }
}
