//! A member of a share group: heartbeats on one pipeline, a share session on another, both served from
//! within the calls of its caller.
//!
//! The decision that shapes it: no task of its own. A member that is not asked for records sends no
//! heartbeats, and its group takes it for gone, as it would a client that hangs. It is for groups
//! whose partitions have one leader.

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_protocol::messages::ShareGroupHeartbeatRequest;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::session::{
    FIRST, LAST, SHARE_ACKNOWLEDGE, SHARE_FETCH, ShareLimits, ShareSession, acknowledged, leased,
};
use super::{Leased, Settle, SharePartition};
use crate::error::{CallError, accepted};
use crate::pipeline::Pipeline;
use crate::requests::topic_name;

const SHARE_GROUP_HEARTBEAT: i16 = 1;
/// How long a fetch waits while nothing is assigned yet.
const UNASSIGNED_WAIT: Duration = Duration::from_millis(50);

/// A member, which asks for records and settles them.
#[derive(Debug)]
pub struct ShareMember {
    /// Heartbeats.
    coordinator: Pipeline,
    epoch: i32,
    beat_every: Duration,
    beat_at: Instant,
    assigned: BTreeSet<SharePartition>,
    /// The share session.
    leader: Pipeline,
    session: ShareSession,
}

impl ShareMember {
    /// Joins. `member` names it within its group, for ever: a random id, from the caller.
    pub async fn join(
        coordinator: Pipeline,
        leader: Pipeline,
        group: &str,
        topics: &[String],
        member: Uuid,
    ) -> Result<Self, CallError> {
        let mut member = Self {
            coordinator,
            epoch: FIRST,
            beat_every: Duration::ZERO,
            beat_at: Instant::now(),
            assigned: BTreeSet::new(),
            leader,
            session: ShareSession::new(group, member),
        };
        member.beat(Some(topics)).await?;
        Ok(member)
    }

    /// `topics`: what to subscribe to; told once.
    async fn beat(&mut self, topics: Option<&[String]>) -> Result<(), CallError> {
        let names = topics.map(|topics| topics.iter().map(|topic| topic_name(topic)).collect());
        let request = ShareGroupHeartbeatRequest::default()
            .with_group_id(self.session.group().clone())
            .with_member_id(self.session.member().clone())
            .with_member_epoch(self.epoch)
            .with_rack_id(None)
            .with_subscribed_topic_names(names);
        let answer = self.coordinator.call(SHARE_GROUP_HEARTBEAT, &request).await?;
        let message = answer.error_message.as_deref();
        accepted(answer.error_code, message, || "cannot be a member of the group".into())?;
        self.epoch = answer.member_epoch;
        self.beat_at = Instant::now();
        let beat_every_ms = u64::try_from(answer.heartbeat_interval_ms).unwrap_or(0);
        self.beat_every = Duration::from_millis(beat_every_ms);
        if let Some(assignment) = answer.assignment {
            let topics = assignment.topic_partitions.into_iter();
            let each = topics.flat_map(|it| {
                let topic = it.topic_id;
                it.partitions.into_iter().map(move |partition| SharePartition { topic, partition })
            });
            self.assigned = each.collect();
        }
        Ok(())
    }

    /// Leases records, after it has settled these, which are confirmed when this returns. While
    /// nothing is assigned and nothing is to be settled it waits a moment and returns nothing.
    pub async fn fetch(
        &mut self,
        limits: ShareLimits,
        settles: &[Settle],
    ) -> Result<Vec<Leased>, CallError> {
        // While nothing is assigned it asks more often: the next answer may bring partitions.
        if self.assigned.is_empty() || self.beat_at.elapsed() >= self.beat_every {
            self.beat(None).await?;
        }
        if self.assigned.is_empty() && settles.is_empty() {
            sleep(limits.wait.min(UNASSIGNED_WAIT)).await;
            return Ok(Vec::new());
        }
        let request = self.session.fetch(&self.assigned, limits, settles);
        leased(self.leader.call(SHARE_FETCH, &request).await?)
    }

    /// Settles; all of it is confirmed when this returns.
    pub async fn acknowledge(&mut self, settles: &[Settle]) -> Result<(), CallError> {
        if settles.is_empty() {
            return Ok(());
        }
        let request = self.session.acknowledge(settles);
        acknowledged(&self.leader.call(SHARE_ACKNOWLEDGE, &request).await?)
    }

    /// Ends the session and leaves the group: what it still has on lease goes to others.
    pub async fn leave(&mut self) -> Result<(), CallError> {
        if self.session.is_begun() {
            let request = self.session.close();
            acknowledged(&self.leader.call(SHARE_ACKNOWLEDGE, &request).await?)?;
        }
        self.epoch = LAST;
        self.beat(None).await
    }
}
