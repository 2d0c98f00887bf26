//! A group of KIP-848's protocol: the group divides the partitions, members are brought there one
//! by one, and nobody stops for anybody else.
//!
//! A pure state machine, driven by its members' heartbeats. Three numbers tell how far it is: the
//! group's epoch grows with every change of members, subscriptions or topics; a target assignment
//! is computed for each such epoch; and each member has the epoch that it has been brought to. The
//! semantics are those of Kafka 4's `ConsumerGroup`; where they differ, it says so.
//!
//! [`ConsumerGroup::holders`] has the one invariant that everything else serves: a partition is
//! held by one member at most.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::HashMap;
use broker::CatalogStamp;
use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;
use regex::Regex;
use tracing::info;
use uuid::Uuid;
use world::Instant;

use crate::errors::Fault;
use crate::groups::assignment::Assignment;
use crate::groups::assignor::Assignor;
use crate::groups::member::Client;
use crate::groups::subscription::Topic;

mod heartbeat;
pub(crate) mod member;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use member::Member;
use member::{LEAVING, PAUSING};

/// What the configuration of node and group says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsumerLimits {
    pub(crate) members_max: usize,
    pub(crate) session_timeout: Duration,
}

/// A ConsumerGroupHeartbeat request of a member that comes or stays. `None` is what it has not
/// changed since its last one.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    pub(crate) member_id: StrBytes,
    pub(crate) epoch: i32,
    pub(crate) instance_id: Option<StrBytes>,
    pub(crate) rack_id: Option<StrBytes>,
    pub(crate) rebalance_timeout: Option<Duration>,
    pub(crate) names: Option<BTreeSet<StrBytes>>,
    /// Empty: no pattern any more.
    pub(crate) pattern: Option<StrBytes>,
    pub(crate) assignor: Option<Assignor>,
    pub(crate) owned: Option<Assignment>,
    pub(crate) client: Client,
}

impl Heartbeat {
    /// Whether it says everything, as a member does that does not know what the group knows.
    fn is_full(&self) -> bool {
        self.epoch == member::JOINING
            || (self.rebalance_timeout.is_some()
                && (self.names.is_some() || self.pattern.is_some())
                && self.owned.is_some())
    }
}

/// The answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    pub(crate) epoch: i32,
    /// What the member may consume now; `None` if that is what it has been told before.
    pub(crate) assigned: Option<Assignment>,
}

/// Topics by a regular expression, which is matched when the catalog changes.
#[derive(Debug)]
struct Pattern {
    regex: Regex,
    topics: BTreeSet<Uuid>,
}

#[derive(Debug)]
pub(crate) struct ConsumerGroup {
    name: StrBytes,
    epoch: i32,
    /// Of the members' targets.
    target_epoch: i32,
    members: BTreeMap<StrBytes, Member>,
    /// Member ids of static members.
    instances: HashMap<StrBytes, StrBytes>,
    /// Who may be consuming a partition.
    holders: HashMap<(Uuid, i32), StrBytes>,
    /// The topics of all subscriptions that exist, as of `stamp`.
    topics: BTreeMap<Uuid, Topic>,
    patterns: HashMap<StrBytes, Pattern>,
    stamp: Option<CatalogStamp>,
    check_at: Option<Instant>,
    bytes: usize,
}

// ------------------------------------------------------------------------------------- questions

impl ConsumerGroup {
    pub(crate) fn new(name: StrBytes) -> Self {
        Self {
            name,
            epoch: 0,
            target_epoch: 0,
            members: BTreeMap::new(),
            instances: HashMap::default(),
            holders: HashMap::default(),
            topics: BTreeMap::new(),
            patterns: HashMap::default(),
            stamp: None,
            check_at: None,
            bytes: 0,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(crate) fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if self.epoch > self.target_epoch {
            "Assigning"
        } else if self.members.values().any(|member| !member.is_reconciled(self.target_epoch)) {
            "Reconciling"
        } else {
            "Stable"
        }
    }

    pub(crate) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(crate) fn target_epoch(&self) -> i32 {
        self.target_epoch
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        self.topics.values().any(|known| known.name.as_str() == topic)
    }

    /// See [`super::classic::ClassicGroup::check_at`].
    pub(crate) fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// What the group weighs in memory.
    pub(crate) fn bytes(&self) -> usize {
        const TOPIC_BYTES: usize = 128;
        const HELD_BYTES: usize = 240;
        self.bytes + self.topics.len() * TOPIC_BYTES + self.holders.len() * HELD_BYTES
    }

    /// The assignor that most members ask for. Ties go by name.
    pub(crate) fn assignor(&self) -> Assignor {
        let mut votes: BTreeMap<Assignor, usize> = BTreeMap::new();
        for assignor in self.members.values().filter_map(|member| member.assignor) {
            *votes.entry(assignor).or_default() += 1;
        }
        let winner = votes.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        winner.map(|(assignor, _)| assignor).unwrap_or_default()
    }

    /// Whether this member may commit offsets of these partitions now. A commit that was under way
    /// while the member was taken to its next epoch is good for what it holds still (KIP-1251).
    pub(crate) fn may_commit(
        &self,
        member_id: &StrBytes,
        epoch: i32,
        mut partitions: impl Iterator<Item = (Uuid, i32)>,
    ) -> Result<(), Fault> {
        if epoch < 0 && self.members.is_empty() {
            // Somebody who uses the group only to keep offsets.
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))?;
        let is_late = (0..member.epoch).contains(&epoch);
        if is_late && partitions.all(|partition| member.has_held_since(partition, epoch)) {
            return Ok(());
        }
        self.check_epoch(member_id, epoch)
    }

    /// Whether whoever this is may read committed offsets now.
    pub(crate) fn may_fetch(&self, member_id: Option<&StrBytes>, epoch: i32) -> Result<(), Fault> {
        match member_id {
            None if epoch < 0 => Ok(()),
            None => Err(self.unknown_member("")),
            Some(member_id) => self.check_epoch(member_id, epoch),
        }
    }

    fn check_epoch(&self, member_id: &StrBytes, epoch: i32) -> Result<(), Fault> {
        let member = self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))?;
        if epoch == member.epoch {
            return Ok(());
        }
        let message = format!("member epoch {epoch} is not {}, the one known here", member.epoch);
        Err(Fault::new(ResponseError::StaleMemberEpoch, message))
    }

    fn unknown_member(&self, member_id: &str) -> Fault {
        let message = format!("{member_id} is not a member of group {}", self.name.as_str());
        Fault::new(ResponseError::UnknownMemberId, message)
    }
}

// -------------------------------------------------------------------------------- leaving, time

impl ConsumerGroup {
    /// A member goes, for good or (static members, with epoch -2) for a while.
    pub(crate) fn leave(
        &mut self,
        member_id: &StrBytes,
        instance_id: Option<&StrBytes>,
        epoch: i32,
    ) -> Result<(), Fault> {
        match instance_id {
            Some(instance) => self.check_instance(member_id, instance)?,
            None if self.members.contains_key(member_id) => {}
            None => return Err(self.unknown_member(member_id)),
        }
        if epoch == PAUSING && instance_id.is_some() {
            info!(group = %self.name, member = %member_id, "static member left for a while");
            self.pause(member_id);
        } else {
            info!(group = %self.name, member = %member_id, "member left");
            self.remove(member_id);
        }
        debug_assert!(epoch == LEAVING || epoch == PAUSING);
        Ok(())
    }

    /// Whether a static member is the one that came with this instance id last.
    fn check_instance(&self, member_id: &StrBytes, instance: &StrBytes) -> Result<(), Fault> {
        match self.instances.get(instance) {
            Some(holder) if holder == member_id => Ok(()),
            Some(holder) => Err(Fault::new(
                ResponseError::FencedInstanceId,
                format!("instance {} belongs to member {}", instance.as_str(), holder.as_str()),
            )),
            None => Err(Fault::new(
                ResponseError::UnknownMemberId,
                format!("instance {} is unknown", instance.as_str()),
            )),
        }
    }

    /// It keeps what it has, until its session ends or it comes back.
    fn pause(&mut self, member_id: &StrBytes) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        member.epoch = PAUSING;
        member.revocation_deadline = None;
        for partition in std::mem::take(&mut member.revoking).iter() {
            self.holders.remove(&partition);
            member.given_in.remove(&partition);
        }
    }

    fn remove(&mut self, member_id: &StrBytes) {
        let Some(member) = self.members.remove(member_id) else { return };
        for partition in member.held() {
            self.holders.remove(&partition);
        }
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        self.bytes -= member.bytes();
        self.bump();
        if self.members.is_empty() {
            self.topics.clear();
            self.patterns.clear();
            self.stamp = None;
        }
    }

    fn bump(&mut self) {
        // A group that rebalanced once a second would be here after 68 years.
        self.epoch = self.epoch.saturating_add(1);
    }

    fn check_by(&mut self, deadline: Instant) {
        self.check_at = Some(self.check_at.map_or(deadline, |at| at.min(deadline)));
    }

    /// Takes out members that were silent for too long, or did not give up partitions in time.
    pub(crate) fn expire(&mut self, now: Instant) {
        let overdue = |member: &&Member| {
            member.session_deadline <= now || member.revocation_deadline.is_some_and(|at| at <= now)
        };
        let fenced: Vec<_> =
            self.members.values().filter(overdue).map(|member| member.id.clone()).collect();
        for member_id in fenced {
            info!(group = %self.name, member = %member_id, "member timed out");
            self.remove(&member_id);
        }
        let sessions = self.members.values().map(|member| member.session_deadline);
        let revocations = self.members.values().filter_map(|member| member.revocation_deadline);
        self.check_at = sessions.chain(revocations).min();
    }
}
