//! A group of the classic protocol: members meet, one of them divides the partitions.
//!
//! A pure state machine: an event and a time go in, the new state and the answers that have become
//! due come out. The semantics are those of Kafka 4's `GroupMetadataManager`. What outlives the coordinator
//! is in [`kept`].
//!
//! Deadlines are fields. The group only keeps a lower bound of the earliest one
//! ([`ClassicGroup::check_at`]), so that a heartbeat costs a store and not a timer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Text;
use crate::error::ErrorKind;
use base::HashMap;
use bytes::Bytes;
use world::Instant;

use crate::member::{Client, Waiter};
use crate::subscription::topics_of_subscription;

mod join;
pub(crate) mod kept;
pub mod member;
mod presence;
mod rebalance;
#[cfg(test)]
mod tests;

pub use member::{Member, Protocol};

/// The protocol type of consumers; others (Connect, stream processors) use the group as they like.
pub const CONSUMER_PROTOCOL_TYPE: &str = "consumer";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Empty,
    /// Waits for members to join (again).
    PreparingRebalance,
    /// Waits for the leader's assignment.
    CompletingRebalance,
    Stable,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// What the node's configuration says about joining.
#[derive(Clone, Copy, Debug)]
pub struct JoinLimits {
    /// How long a first rebalance waits for more members.
    pub initial_delay: Duration,
    pub members_max: usize,
}

/// A JoinGroup request.
#[derive(Clone, Debug)]
pub struct Join {
    pub waiter: Waiter,
    /// Empty: the group is to name the member.
    pub member_id: Text,
    /// What a member that is yet unnamed is called; the group knows no randomness.
    pub fresh_id: Text,
    pub instance_id: Option<Text>,
    pub client: Client,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    pub protocol_type: Text,
    pub protocols: Vec<Protocol>,
    pub reason: String,
    /// The client can be told its id and asked to come again with it (KIP-394).
    pub may_be_sent_back: bool,
    /// The client can be told not to assign although it leads (KIP-814).
    pub may_skip_assignment: bool,
}

/// A SyncGroup request.
#[derive(Clone, Debug)]
pub struct Sync {
    pub waiter: Waiter,
    pub member_id: Text,
    pub instance_id: Option<Text>,
    pub generation: i32,
    pub protocol_type: Option<Text>,
    pub protocol: Option<Text>,
    /// From the leader: who gets what.
    pub assignments: Vec<(Text, Bytes)>,
}

/// One member of a LeaveGroup request.
#[derive(Clone, Debug)]
pub struct Leaver {
    /// Empty: whoever has this instance id.
    pub member_id: Text,
    pub instance_id: Option<Text>,
    pub reason: String,
}

/// The answer to a JoinGroup request of a member that is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    pub generation: i32,
    pub protocol_type: Option<Text>,
    pub protocol: Option<Text>,
    pub leader: Text,
    pub member_id: Text,
    /// It leads, and is not to assign (KIP-814).
    pub skip_assignment: bool,
    /// For the leader: who is in, and what each says.
    pub members: Vec<JoinedMember>,
}

/// See [`Joined::members`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinedMember {
    pub id: Text,
    pub instance_id: Option<Text>,
    pub metadata: Bytes,
}

/// The answer to a JoinGroup request of a member that is not in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRefused {
    /// With [`ErrorKind::MemberIdRequired`], what it is to be called.
    pub member_id: Text,
    pub error: ErrorKind,
}

/// The answer to a SyncGroup request: what the leader assigned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synced {
    pub protocol_type: Option<Text>,
    pub protocol: Option<Text>,
    pub assignment: Bytes,
}

/// When a join phase ends although not everybody is there.
#[derive(Clone, Copy, Debug)]
enum JoinDeadline {
    Rebalance(Instant),
    /// A first rebalance is put off while new members keep coming, up to `left` more.
    Initial {
        at: Instant,
        delay: Duration,
        left: Duration,
        joined_since: bool,
    },
}

impl JoinDeadline {
    fn at(&self) -> Instant {
        match *self {
            Self::Rebalance(at) | Self::Initial { at, .. } => at,
        }
    }
}

#[derive(Debug)]
pub struct ClassicGroup {
    name: Text,
    phase: Phase,
    generation: i32,
    /// How often its members changed without a new generation: a static member took the place of its former self, or a
    /// member has gone.
    revision: u32,
    /// Whether members have gone since the group was stable.
    has_lost_members: bool,
    protocol_type: Option<Text>,
    protocol: Option<Text>,
    leader: Option<Text>,
    members: BTreeMap<Text, Member>,
    /// Member ids of static members.
    instances: HashMap<Text, Text>,
    /// Ids that were given out and have not been used yet, and until when they hold.
    pending: HashMap<Text, Instant>,
    /// How many members know a protocol.
    supporters: HashMap<Text, usize>,
    /// How many members wait for the join phase to end.
    joined: usize,
    join_deadline: Option<JoinDeadline>,
    sync_deadline: Option<Instant>,
    /// What the members of this generation consume; `None` if they do not say it as consumers do.
    subscribed: Option<BTreeSet<String>>,
    check_at: Option<Instant>,
    bytes: usize,
}

// ------------------------------------------------------------------------------------- questions

impl ClassicGroup {
    pub fn new(name: Text) -> Self {
        Self {
            name,
            phase: Phase::Empty,
            generation: 0,
            revision: 0,
            has_lost_members: false,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: HashMap::default(),
            pending: HashMap::default(),
            supporters: HashMap::default(),
            joined: 0,
            join_deadline: None,
            sync_deadline: None,
            subscribed: None,
            check_at: None,
            bytes: 0,
        }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    pub fn is_empty(&self) -> bool {
        self.phase == Phase::Empty
    }

    /// Whether nothing would be lost with it but a number: neither members nor ids given out.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.pending.is_empty()
    }

    pub fn protocol_type(&self) -> Option<&str> {
        self.protocol_type.as_deref()
    }

    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// What a member says under the protocol that was chosen.
    pub fn metadata_of(&self, member: &Member) -> Bytes {
        self.protocol.as_ref().map(|protocol| member.metadata(protocol)).unwrap_or_default()
    }

    /// Which topics a member wants; `None` if it does not say so as consumers do.
    pub fn topics_of(&self, member: &Member) -> Option<Vec<String>> {
        self.is_of_consumers().then(|| topics_of_subscription(&self.metadata_of(member)))?
    }

    pub fn generation(&self) -> i32 {
        self.generation
    }

    pub fn is_of_consumers(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// Whether a member may be consuming the topic now. If the members do not say, they may.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_of_consumers() && !self.is_empty(),
        }
    }

    /// No deadline lies before this; [`ClassicGroup::expire`] is to be called then.
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// What the group weighs in memory.
    pub fn bytes(&self) -> usize {
        const PENDING_BYTES: usize = 160;
        self.bytes + self.pending.len() * PENDING_BYTES
    }

    fn rebalance_timeout(&self) -> Duration {
        let timeouts = self.members.values().map(|member| member.rebalance_timeout);
        timeouts.max().unwrap_or_default()
    }

    fn has_everybody_joined(&self) -> bool {
        self.joined == self.members.len() && self.pending.is_empty()
    }

    fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    /// Whether a member with these protocols would leave the group one that all of them know.
    fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let known_by_all =
            |name: &str| self.supporters.get(name).copied() == Some(self.members.len());
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|protocol| known_by_all(&protocol.name))
    }

    /// Who this is; an instance id belongs to the member that came with it last.
    fn identify(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorKind> {
        if let Some(instance) = instance_id {
            match self.instances.get(instance) {
                None => return Err(ErrorKind::UnknownMemberId),
                Some(holder) if **holder != *member_id => return Err(ErrorKind::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) { Ok(()) } else { Err(ErrorKind::UnknownMemberId) }
    }
}

fn join_refused(member_id: Text, error: ErrorKind) -> Result<Joined, JoinRefused> {
    Err(JoinRefused { member_id, error })
}
