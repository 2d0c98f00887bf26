//! A step of records as a JSON record; its key is the partition.

use std::borrow::Cow;

use base::{LeaseGroupId, Offset, PartitionId, TopicId};
use dispatch::{DeadReason, SessionId, Step, StepKind};
use serde::{Deserialize, Serialize};
use shard::delivery::dead_letter::DeathReason;
use shard::delivery::history::SessionUser;
use shard::delivery::trace_queue::TracedStep;

use super::super::history_query::HistoryEvent;

/// A stored format: names and fields must not change, since later versions and other readers of the topic rely
/// on them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TraceRecord<'a> {
    pub(super) time_ms: i64,
    /// The leader of the partition.
    pub(super) node: u32,
    topic: Cow<'a, str>,
    /// The topic's id: an earlier topic may have had the same name.
    topic_id: u32,
    partition: u32,
    offset: Offset,
    /// Number of consecutive records.
    count: u32,
    group: Cow<'a, str>,
    group_id: u32,
    what: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'a, str>>,
    /// 1: the first delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    protocol: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    user: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    client: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    peer: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    connection: Option<u64>,
}

/// The key of all steps of a partition.
pub(super) fn key(partition: PartitionId) -> String {
    format!("{}/{}", partition.topic.0, partition.index)
}

impl<'a> TraceRecord<'a> {
    /// Some of the records of a step, in the names of the format.
    pub(super) fn of(
        traced: &'a TracedStep,
        (offset, count): (Offset, u32),
        node: u32,
        user: Option<&'a SessionUser>,
    ) -> Self {
        let Step { what, partition, session, attempt, .. } = traced.step;
        let (what, reason) = named(what);
        let text = |of: fn(&SessionUser) -> &str| Cow::Borrowed(user.map_or("", of));
        Self {
            time_ms: traced.at_ms,
            node,
            topic: Cow::Borrowed(&traced.topic_name),
            topic_id: traced.topic.0,
            partition,
            offset,
            count,
            group: Cow::Borrowed(&traced.group_name),
            group_id: traced.group.0,
            what: Cow::Borrowed(what),
            reason: reason.map(Cow::Borrowed),
            attempt: Some(attempt).filter(|attempt| *attempt > 0),
            session: Some(session).filter(|session| *session != 0),
            protocol: text(|user| &user.protocol),
            user: text(|user| &user.user),
            client: text(|user| &user.client),
            peer: text(|user| &user.peer),
            connection: user.map(|user| user.connection).filter(|connection| *connection > 0),
        }
    }

    /// Whether the step includes this record.
    pub(super) fn is_of(&self, partition: PartitionId, offset: Offset) -> bool {
        let here = PartitionId::new(TopicId(self.topic_id), self.partition) == partition;
        here && self.offset <= offset && offset - self.offset < u64::from(self.count)
    }

    /// `None`: a step of a later version, unknown here.
    pub(super) fn event(&self) -> Option<HistoryEvent> {
        Some(HistoryEvent {
            at_ms: self.time_ms,
            node: self.node,
            group: LeaseGroupId(self.group_id),
            what: meant(&self.what, self.reason.as_deref())?,
            session: self.session.unwrap_or_default(),
            attempt: self.attempt.unwrap_or_default(),
        })
    }

    /// The session with its user, if known.
    pub(super) fn session_user(&self) -> Option<(SessionId, SessionUser)> {
        let session = self.session?;
        let user = SessionUser {
            protocol: self.protocol.as_ref().into(),
            user: self.user.as_ref().into(),
            client: self.client.as_ref().into(),
            peer: self.peer.as_ref().into(),
            connection: self.connection.unwrap_or_default(),
        };
        (user != SessionUser::default()).then_some((session, user))
    }
}

/// Names of steps and reasons in the format.
fn named(what: StepKind) -> (&'static str, Option<&'static str>) {
    let name = match what {
        StepKind::Leased => "delivered",
        StepKind::HandedOut => "delivered-and-settled",
        StepKind::Accepted => "accepted",
        StepKind::Released => "released",
        StepKind::Rejected => "rejected",
        StepKind::LeaseEnded => "timed-out",
        StepKind::Left => "session-ended",
        StepKind::Withheld => "accepted-in-transaction",
        StepKind::GivenBack => "given-back",
        StepKind::Voided => "voided",
        StepKind::Died(reason) => return ("died", Some(reason_of(reason).name())),
        StepKind::Ended => "settled",
        StepKind::Removed => "removed",
    };
    (name, None)
}

fn reason_of(reason: DeadReason) -> DeathReason {
    match reason {
        DeadReason::Rejected => DeathReason::Rejected,
        DeadReason::Attempts => DeathReason::Attempts,
        DeadReason::Expired => DeathReason::Expired,
    }
}

/// All steps that have a name.
const ALL: [StepKind; 15] = [
    StepKind::Leased,
    StepKind::HandedOut,
    StepKind::Accepted,
    StepKind::Released,
    StepKind::Rejected,
    StepKind::LeaseEnded,
    StepKind::Left,
    StepKind::Withheld,
    StepKind::GivenBack,
    StepKind::Voided,
    StepKind::Died(DeadReason::Rejected),
    StepKind::Died(DeadReason::Attempts),
    StepKind::Died(DeadReason::Expired),
    StepKind::Ended,
    StepKind::Removed,
];

fn meant(name: &str, reason: Option<&str>) -> Option<StepKind> {
    ALL.into_iter().find(|what| named(*what) == (name, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_read_as_written() {
        let user = SessionUser {
            protocol: "amqp".into(),
            user: "ada".into(),
            client: "client 1".into(),
            peer: "10.0.0.7:51230".into(),
            connection: 4,
        };
        let partition = PartitionId::new(TopicId(3), 2);
        for what in ALL {
            let step = Step { what, partition: 2, first: 5, count: 3, session: 9, attempt: 2 };
            let (topic_name, group_name) = ("orders".into(), "main".into());
            let (topic, group) = (TopicId(3), LeaseGroupId(8));
            let traced = TracedStep {
                at_ms: 7,
                topic,
                topic_name,
                group,
                group_name,
                per_million: 1_000_000,
                step,
            };
            let bytes = serde_json::to_vec(&TraceRecord::of(&traced, (5, 3), 1, Some(&user)))
                .expect("JSON");
            let read: TraceRecord<'_> = serde_json::from_slice(&bytes).expect("is read");
            let event = HistoryEvent { at_ms: 7, node: 1, group, what, session: 9, attempt: 2 };
            assert_eq!((read.event(), read.session_user()), (Some(event), Some((9, user.clone()))));
            let of: Vec<_> = (0..20).filter(|offset| read.is_of(partition, *offset)).collect();
            assert_eq!(of, [5, 6, 7]);
            assert!(!read.is_of(PartitionId::new(TopicId(3), 1), 5));
            assert!(!read.is_of(PartitionId::new(TopicId(4), 2), 5));
        }
    }

    #[test]
    fn unknown_steps_are_ignored_and_fields_may_be_missing_or_new() {
        let bytes =
            br#"{"time_ms":1,"node":2,"topic":"t","topic_id":1,"partition":0,"offset":0,"count":1,
            "group":"g","group_id":1,"what":"delivered","new":[1]}"#;
        let read: TraceRecord<'_> = serde_json::from_slice(bytes).expect("is read");
        assert_eq!(read.event().map(|event| event.what), Some(StepKind::Leased));
        assert_eq!(read.session_user(), None);
        assert_eq!(meant("died", None), None);
        assert_eq!(meant("delivered", Some("rejected")), None);
        assert_eq!(meant("transformed", None), None);
    }
}
