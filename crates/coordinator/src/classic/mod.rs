//! A group of the classic protocol: members join, and the leader among them divides the partitions.
//!
//! A pure state machine: its input is an event and a time, its output the new state and the replies that are due.
//! The semantics are those of Kafka 4's `GroupMetadataManager`. The state that outlives the coordinator is in
//! [`stored_group`].
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

use crate::client::Client;
use crate::subscription::topics_of_subscription;

pub mod assignment;
mod join;
pub mod member;
mod presence;
mod rebalance;
mod replies;
pub(crate) mod stored_group;
#[cfg(test)]
mod tests;

pub use member::{Member, Protocol};
pub use replies::{
    Effects, JoinGroupReply, JoinRefused, JoinedMember, Reply, SyncGroupReply, Waiter,
};

/// The protocol type of consumers; other clients (Connect, stream processors) use their own types.
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

/// The node's configuration of joining.
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
    /// Empty: the group assigns a member id.
    pub member_id: Text,
    /// The id for a member without one; the group has no randomness.
    pub fresh_id: Text,
    pub instance_id: Option<Text>,
    pub client: Client,
    pub session_timeout: Duration,
    pub rebalance_timeout: Duration,
    pub protocol_type: Text,
    pub protocols: Vec<Protocol>,
    pub reason: String,
    /// The client supports being sent its id and rejoining with it (KIP-394).
    pub may_be_sent_back: bool,
    /// The client supports leading without assigning (KIP-814).
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
    /// From the leader: the assignment of each member.
    pub assignments: Vec<(Text, Bytes)>,
}

/// One member of a LeaveGroup request.
#[derive(Clone, Debug)]
pub struct LeavingMember {
    /// Empty: the member with this instance id.
    pub member_id: Text,
    pub instance_id: Option<Text>,
    pub reason: String,
}

/// The end of a join phase that not all members have joined.
#[derive(Clone, Copy, Debug)]
enum JoinDeadline {
    Rebalance(Instant),
    /// A first rebalance is delayed while new members keep joining, up to `left` more.
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
    /// Number of changes of its members without a new generation: a static member rejoined, or a member left.
    revision: u32,
    /// Whether members have left since the group was stable.
    has_lost_members: bool,
    protocol_type: Option<Text>,
    protocol: Option<Text>,
    leader: Option<Text>,
    members: BTreeMap<Text, Member>,
    /// Member ids of static members.
    instances: HashMap<Text, Text>,
    /// Issued member ids that were not used yet, with their expiry.
    pending: HashMap<Text, Instant>,
    /// Number of members that support each protocol.
    supporters: HashMap<Text, usize>,
    /// Number of members that wait for the end of the join phase.
    joined: usize,
    join_deadline: Option<JoinDeadline>,
    sync_deadline: Option<Instant>,
    /// Topics that the members of this generation consume; `None` if their metadata is not that of consumers.
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

    /// Whether dropping the group would lose nothing but its generation: it has neither members nor issued ids.
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

    /// A member's metadata under the selected protocol.
    pub fn metadata_of(&self, member: &Member) -> Bytes {
        self.protocol.as_ref().map(|protocol| member.metadata(protocol)).unwrap_or_default()
    }

    /// Topics of a member's subscription; `None` if its metadata is not that of a consumer.
    pub fn topics_of(&self, member: &Member) -> Option<Vec<String>> {
        self.is_of_consumers().then(|| topics_of_subscription(&self.metadata_of(member)))?
    }

    pub fn generation(&self) -> i32 {
        self.generation
    }

    pub fn is_of_consumers(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER_PROTOCOL_TYPE)
    }

    /// Whether a member may be consuming the topic now. If the members' topics are unknown, they may.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_of_consumers() && !self.is_empty(),
        }
    }

    /// No deadline is before this time, at which [`ClassicGroup::expire`] is to be called.
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Memory of the group.
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

    /// Whether a member with these protocols would leave at least one protocol that all support.
    fn supports(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let known_by_all =
            |name: &str| self.supporters.get(name).copied() == Some(self.members.len());
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols.iter().any(|protocol| known_by_all(&protocol.name))
    }

    /// Validates a member's identity; an instance id belongs to the member that last joined with it.
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

fn join_refused(member_id: Text, error: ErrorKind) -> Result<JoinGroupReply, JoinRefused> {
    Err(JoinRefused { member_id, error })
}
