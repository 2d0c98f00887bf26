//! A group of the Streams protocol (KIP-1071): the group knows the application's topology, creates its internal
//! topics, and assigns tasks to its members.
//!
//! A pure state machine, driven by its members' heartbeats: an [`EpochGroup`], whose epoch grows with every change
//! of members, topology or topics. Features that Kafka 4.3 rejects are rejected here too: static members, source
//! topics by pattern, offsets of tasks, and so warm-up tasks.

use std::time::Duration;

use tracing::info;
use world::Instant;

use crate::client::Client;
use crate::epochs::{EpochGroup, Protocol};
use crate::error::GroupError;
use crate::subscription::CatalogStamp;
use crate::{Text, text};

mod assignor;
mod heartbeat;
mod member;
mod status;
pub(crate) mod stored_group;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod topology;

pub use member::Member;
pub use status::{Endpoint, EndpointPartitions, Status, StatusCode};
use tasks::{Task, Tasks};
use topology::{ConfiguredTopology, InternalTopic, Topology};

/// The configuration of node and group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamsLimits {
    pub members_max: usize,
    pub session_timeout: Duration,
    /// Number of standby copies of each stateful task.
    pub standbys: usize,
    /// How long a new group waits for more members before it assigns tasks.
    pub initial_delay: Duration,
}

/// A heartbeat of a member that joins or stays. `None` means unchanged since its last one.
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

/// The reply to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub epoch: i32,
    /// The member's tasks; `None` if it has received them before.
    pub tasks: Option<Tasks>,
    pub statuses: Vec<Status>,
    pub endpoint_epoch: i32,
    /// `None` if the member knows them.
    pub endpoints: Option<Vec<EndpointPartitions>>,
    /// Required topics that do not exist, to be created before the next heartbeat.
    pub missing: Vec<InternalTopic>,
}

pub type StreamsGroup = EpochGroup<StreamsProtocol>;

#[derive(Debug, Default)]
pub struct StreamsProtocol {
    topology: Option<Topology>,
    configured: ConfiguredTopology,
    stamp: Option<CatalogStamp>,
    /// No tasks are assigned before.
    delayed_until: Option<Instant>,
    /// The value used for the last target.
    standbys: usize,
    endpoint_epoch: i32,
    /// The member that requested a shutdown of all members.
    shutdown_by: Option<Text>,
}

impl Protocol for StreamsProtocol {
    type Member = Member;

    const NAME: &str = "streams";

    fn bytes(&self) -> usize {
        self.topology.as_ref().map_or(0, |topology| 2 * topology.bytes())
    }

    fn left(&mut self, member: &Member, was_last: bool) {
        if member.endpoint.is_some() {
            self.endpoint_epoch += 1;
        }
        if was_last {
            self.shutdown_by = None;
            self.delayed_until = None;
        }
    }
}

// ------------------------------------------------------------------------------------- questions

impl StreamsGroup {
    pub fn state_name(&self) -> &'static str {
        if self.members.is_empty() {
            "Empty"
        } else if !self.own.configured.is_ready() {
            "NotReady"
        } else if self.members.needs_targets() || self.own.delayed_until.is_some() {
            "Assigning"
        } else if self.members().any(|member| !member.state.is_reconciled(self.target_epoch())) {
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
        !self.members.is_empty() && self.own.topology.as_ref().is_some_and(reads)
    }

    /// Whether this member may commit offsets of these partitions now.
    pub fn may_commit<'a>(
        &self,
        member_id: &str,
        epoch: i32,
        mut partitions: impl Iterator<Item = (&'a str, i32)>,
    ) -> Result<(), GroupError> {
        self.check_commit(member_id, epoch, |member| {
            partitions.all(|(topic, partition)| {
                self.subtopologies_reading(topic)
                    .any(|id| member.state.has_held_since(&Task::new(id, partition), epoch))
            })
        })
    }

    fn subtopologies_reading(&self, topic: &str) -> impl Iterator<Item = &Text> {
        let subtopologies = self.own.topology.iter().flat_map(|topology| &topology.subtopologies);
        subtopologies
            .filter(move |it| it.reads().any(|name| name.as_ref() == topic))
            .map(|subtopology| &subtopology.id)
    }

    pub fn member_epoch(&self, member_id: &str) -> Option<i32> {
        self.members.get(member_id).map(|member| member.state.epoch)
    }

    /// The topology for descriptions: internal topics have their computed partition counts.
    pub fn topology(&self) -> Option<Topology> {
        Some(self.own.topology.as_ref()?.with_counts(&self.own.configured.counts))
    }
}

// -------------------------------------------------------------------------------------- leaving

impl StreamsGroup {
    pub fn leave(&mut self, member_id: &str, shutdown: bool) -> Result<(), GroupError> {
        self.member(member_id)?;
        if shutdown {
            self.own.shutdown_by = Some(text(member_id));
        }
        info!(group = %self.name, member = %member_id, "member left");
        self.remove(member_id);
        Ok(())
    }
}
