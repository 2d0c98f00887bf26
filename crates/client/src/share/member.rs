//! A member of a share group: heartbeats on one pipeline, a share session on another, both within the calls of its
//! caller.
//!
//! It has no task of its own. A member whose caller fetches no records sends no heartbeats, and is removed from its
//! group, like a hanging client. It is for groups whose partitions have one leader.

use std::collections::BTreeSet;
use std::time::Duration;

use kafka_protocol::messages::ShareGroupHeartbeatRequest;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::session::{
    FIRST, LAST, SHARE_ACKNOWLEDGE, SHARE_FETCH, ShareLimits, ShareSession, acknowledged, leased,
};
use super::{LeasedRecord, Settle, SharePartition};
use crate::error::{CallError, accepted};
use crate::pipeline::Pipeline;
use crate::requests::topic_name;

const SHARE_GROUP_HEARTBEAT: i16 = 1;
/// Wait of a fetch without assigned partitions.
const UNASSIGNED_WAIT: Duration = Duration::from_millis(50);

/// A member that leases records and settles them.
#[derive(Debug)]
pub struct ShareMember {
    /// For heartbeats.
    coordinator: Pipeline,
    epoch: i32,
    beat_every: Duration,
    beat_at: Instant,
    assigned: BTreeSet<SharePartition>,
    /// For the share session.
    leader: Pipeline,
    session: ShareSession,
}

impl ShareMember {
    /// Joins. `member` is its permanent id within the group, chosen at random by the caller.
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

    /// Sends a heartbeat. `topics`: the subscription, sent once.
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

    /// Leases records after settling `settles`, which are confirmed when this returns. Without assigned partitions
    /// and settles it waits a moment and returns nothing.
    pub async fn fetch(
        &mut self,
        limits: ShareLimits,
        settles: &[Settle],
    ) -> Result<Vec<LeasedRecord>, CallError> {
        // Without assigned partitions it sends more heartbeats: the next reply may bring an assignment.
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

    /// Settles records; all are confirmed when this returns.
    pub async fn acknowledge(&mut self, settles: &[Settle]) -> Result<(), CallError> {
        if settles.is_empty() {
            return Ok(());
        }
        let request = self.session.acknowledge(settles);
        acknowledged(&self.leader.call(SHARE_ACKNOWLEDGE, &request).await?)
    }

    /// Ends the session and leaves the group: its leased records are redelivered to other members.
    pub async fn leave(&mut self) -> Result<(), CallError> {
        if self.session.is_begun() {
            let request = self.session.close();
            acknowledged(&self.leader.call(SHARE_ACKNOWLEDGE, &request).await?)?;
        }
        self.epoch = LAST;
        self.beat(None).await
    }
}
