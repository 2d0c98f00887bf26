//! A group of the Streams protocol (KIP-1071): the group knows the application's topology, makes
//! the topics between its parts, and gives its members tasks.
//!
//! A pure state machine beside [`super::consumer`], of the same make: the group's epoch grows with
//! every change of members, topology or topics, a target is computed for each, and the members are
//! brought there one by one by their heartbeats. What Kafka 4.3 refuses is refused here too: static
//! members, source topics by pattern, offsets of tasks, and so warm-up tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ErrorKind;
use crate::subscription::CatalogStamp;
use crate::{Text, text};
use tracing::info;
use world::Instant;

use crate::error::GroupError;
use crate::member::Client;

mod assignor;
mod heartbeat;
mod member;
mod status;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod topology;

pub use member::Member;
pub use status::{Endpoint, EndpointPartitions, Status, StatusCode};
use tasks::{Task, Tasks};
use topology::{Configured, InternalTopic, Topology};

/// What the configuration of node and group says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamsLimits {
    pub members_max: usize,
    pub session_timeout: Duration,
    /// How many copies there are to be of each task with state.
    pub standbys: usize,
    /// How long a new group waits for more members before it gives out tasks.
    pub initial_delay: Duration,
}

/// A heartbeat of a member that comes or stays. `None` is what it has not changed since its last.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    pub member_id: Text,
    pub epoch: i32,
    pub endpoint_epoch: i32,
    pub rack_id: Option<Text>,
    pub rebalance_timeout: Option<Duration>,
    pub topology: Option<Topology>,
    pub owned: Option<Tasks>,
    pub process_id: Option<Text>,
    pub endpoint: Option<Endpoint>,
    pub tags: Option<Vec<(Text, Text)>>,
    pub shutdown: bool,
    pub client: Client,
}

/// The answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub epoch: i32,
    /// What the member is to do now; `None` if that is what it has been told before.
    pub tasks: Option<Tasks>,
    pub statuses: Vec<Status>,
    pub endpoint_epoch: i32,
    /// `None` if the member knows them.
    pub endpoints: Option<Vec<EndpointPartitions>>,
    /// Topics that the group needs and that are not there, to be made before the next heartbeat.
    pub missing: Vec<InternalTopic>,
}

#[derive(Debug)]
pub struct StreamsGroup {
    name: Text,
    epoch: i32,
    /// Of the members' targets.
    target_epoch: i32,
    topology: Option<Topology>,
    configured: Configured,
    stamp: Option<CatalogStamp>,
    members: BTreeMap<Text, Member>,
    /// No tasks are given out before.
    delayed_until: Option<Instant>,
    /// As of the last target.
    standbys: usize,
    endpoint_epoch: i32,
    /// Who asked that all members shut down.
    shutdown_by: Option<Text>,
    check_at: Option<Instant>,
    bytes: usize,
}

// ------------------------------------------------------------------------------------- questions

impl StreamsGroup {
    pub fn new(name: Text) -> Self {
        Self {
            name,
            epoch: 0,
            target_epoch: 0,
            topology: None,
            configured: Configured::default(),
            stamp: None,
            members: BTreeMap::new(),
            delayed_until: None,
            standbys: 0,
            endpoint_epoch: 0,
            shutdown_by: None,
            check_at: None,
            bytes: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if !self.configured.is_ready() {
            "NotReady"
        } else if self.epoch > self.target_epoch || self.delayed_until.is_some() {
            "Assigning"
        } else if self.members.values().any(|member| !member.state.is_reconciled(self.target_epoch))
        {
            "Reconciling"
        } else {
            "Stable"
        }
    }

    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        let reads = |topology: &Topology| {
            let mut topics = topology.subtopologies.iter().flat_map(|it| it.reads());
            topics.any(|name| name.as_ref() == topic)
        };
        !self.members.is_empty() && self.topology.as_ref().is_some_and(reads)
    }

    /// See [`super::classic::ClassicGroup::check_at`].
    pub fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// What the group weighs in memory.
    pub fn bytes(&self) -> usize {
        self.bytes + self.topology.as_ref().map_or(0, |topology| 2 * topology.bytes())
    }

    /// Whether this member may commit offsets of these partitions now. A commit that was under way
    /// while the member was taken to its next epoch is good for what it does still.
    pub fn may_commit<'a>(
        &self,
        member_id: &str,
        epoch: i32,
        mut partitions: impl Iterator<Item = (&'a str, i32)>,
    ) -> Result<(), GroupError> {
        if epoch < 0 && self.members.is_empty() {
            // Somebody who uses the group only to keep offsets.
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))?;
        let is_late = (0..member.state.epoch).contains(&epoch);
        let still_does = |(topic, partition): (&str, i32)| {
            self.subtopologies_reading(topic)
                .any(|id| member.state.has_held_since(&Task::new(id, partition), epoch))
        };
        if is_late && partitions.all(still_does) {
            return Ok(());
        }
        self.check_epoch(member_id, epoch)
    }

    fn subtopologies_reading(&self, topic: &str) -> impl Iterator<Item = &Text> {
        let subtopologies = self.topology.iter().flat_map(|topology| &topology.subtopologies);
        subtopologies
            .filter(move |it| it.reads().any(|name| name.as_ref() == topic))
            .map(|subtopology| &subtopology.id)
    }

    /// Whether whoever this is may read committed offsets now.
    pub fn may_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), GroupError> {
        match member_id {
            None if epoch < 0 => Ok(()),
            None => Err(self.unknown_member("")),
            Some(member_id) => self.check_epoch(member_id, epoch),
        }
    }

    fn check_epoch(&self, member_id: &str, epoch: i32) -> Result<(), GroupError> {
        let member = self.members.get(member_id).ok_or_else(|| self.unknown_member(member_id))?;
        if epoch == member.state.epoch {
            return Ok(());
        }
        let message =
            format!("member epoch {epoch} is not {}, the one known here", member.state.epoch);
        Err(GroupError::new(ErrorKind::StaleMemberEpoch, message))
    }

    pub fn member_epoch(&self, member_id: &str) -> Option<i32> {
        self.members.get(member_id).map(|member| member.state.epoch)
    }

    fn unknown_member(&self, member_id: &str) -> GroupError {
        let message = format!("Member {member_id} is not a member of group {}.", &*self.name);
        GroupError::new(ErrorKind::UnknownMemberId, message)
    }

    pub fn epoch(&self) -> i32 {
        self.epoch
    }

    pub fn target_epoch(&self) -> i32 {
        self.target_epoch
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// The topology as it is described: internal topics have the partitions that were worked out.
    pub fn topology(&self) -> Option<Topology> {
        Some(self.topology.as_ref()?.with_counts(&self.configured.counts))
    }
}

// -------------------------------------------------------------------------------- leaving, time

impl StreamsGroup {
    pub fn leave(&mut self, member_id: &str, shutdown: bool) -> Result<(), GroupError> {
        if !self.members.contains_key(member_id) {
            return Err(self.unknown_member(member_id));
        }
        if shutdown {
            self.shutdown_by = Some(text(member_id));
        }
        info!(group = %self.name, member = %member_id, "member left");
        self.remove(member_id);
        Ok(())
    }

    fn remove(&mut self, member_id: &str) {
        let Some(member) = self.take(member_id) else { return };
        if member.endpoint.is_some() {
            self.endpoint_epoch += 1;
        }
        self.bump();
        if self.members.is_empty() {
            self.shutdown_by = None;
            self.delayed_until = None;
        }
    }

    fn bump(&mut self) {
        // A group that rebalanced once a second would be here after 68 years.
        self.epoch = self.epoch.saturating_add(1);
    }

    fn check_by(&mut self, deadline: Instant) {
        self.check_at = Some(self.check_at.map_or(deadline, |at| at.min(deadline)));
    }

    /// A member is changed outside of the map, so that its weight stays right.
    fn take(&mut self, member_id: &str) -> Option<Member> {
        let member = self.members.remove(member_id)?;
        self.bytes -= member.bytes();
        Some(member)
    }

    fn insert(&mut self, member: Member) {
        self.bytes += member.bytes();
        self.members.insert(member.id.clone(), member);
    }

    /// Takes out members that were silent for too long, or did not give up tasks in time.
    pub fn expire(&mut self, now: Instant) {
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
