//! The history of a record: its state in each group, and its events.

use std::collections::BTreeMap;

use access::{AccessTarget, Operation, Rights};
use access_rules::acl::{Action, Resource};
use base::limits::HTTP_PAGE_MAX;
use base::{LeaseGroupId, PartitionId, TopicId};
use broker::Broker;
use broker::delivery::{
    DeadReason, DeathReason, HistoryEvent, RecordHistory as Known, RecordState, SessionId,
    SessionUser, StepKind, UnsettledRecord,
};
use consumer_groups::dead_letters::Route;
use operations::document::RecordPosition;
use operations::history::{
    Event, GroupHistory, GroupState, OffsetGroupSeen, Presence, RecordEvent, RecordHistory,
    SessionSeen, TracedSeen,
};

use crate::AdminError;
use crate::browse::{read_log, stored};
use crate::dead_letters::{death, is_known};
use crate::limits::HISTORY_OFFSET_GROUPS_MAX;
use crate::queues::no_topic;

/// A lease group of the topic, as the catalog has it.
struct TopicLeaseGroup {
    id: LeaseGroupId,
    name: String,
    paused: bool,
    dead_letter_topic: Option<String>,
}

pub(crate) async fn describe(
    broker: &Broker,
    caller: &Rights,
    topic: &str,
    place: RecordPosition,
) -> Result<RecordHistory, AdminError> {
    let (id, groups, mut truncated) = groups(broker, caller, topic)?;
    let RecordPosition { partition, offset } = place;
    let partition = PartitionId::new(id, partition);
    let unknown = || {
        let problem = format!("topic {topic} has no partition {}", place.partition);
        AdminError::UnknownTopic(problem)
    };
    broker.bounds_of(partition).await?.ok_or_else(unknown)?;
    broker.copies_are_current(&[partition]).await?;
    let bounds = broker.bounds_of(partition).await?.ok_or_else(unknown)?;
    let mut found = None;
    if (bounds.log_start..bounds.stable).contains(&offset) {
        found = read_log(broker, partition, offset, 1).await?.pop();
    }
    let found = found.filter(|found| found.offset == offset).map(|found| found.record);
    let presence = match &found {
        Some(_) => Presence::There,
        None if offset >= bounds.stable => Presence::ToCome,
        None => Presence::Deleted,
    };
    let died = found.as_ref().map(|record| death(&record.view().headers));
    let mut history = RecordHistory {
        topic: topic.to_owned(),
        partition: place.partition,
        offset,
        presence,
        start: bounds.log_start,
        end: bounds.stable,
        record: found.map(|record| stored(place.partition, &record.view())),
        death: died.filter(is_known),
        groups: Vec::new(),
        offset_groups: Vec::new(),
        truncated: false,
        remembered_since_ms: None,
        silent_nodes: Vec::new(),
        traced: None,
    };
    if presence != Presence::ToCome {
        let ids = groups.iter().map(|group| group.id).collect();
        let mut known = broker.record_history(partition, offset, ids).await;
        let stored_ms = history.record.as_ref().map(|record| record.timestamp_ms);
        history.traced = match broker.traced_steps(partition, offset, stored_ms).await {
            Ok(traced) => traced.map(|traced| {
                known.add_traced(&traced);
                TracedSeen { cut_short: traced.is_cut_short }
            }),
            // The events in the nodes' memory are returned all the same.
            Err(error) => {
                tracing::warn!(%error, topic, "what was written of a record cannot be read");
                Some(TracedSeen { cut_short: true })
            }
        };
        // As in the list of connections.
        if !caller.would(Operation::Look, AccessTarget::Cluster) {
            known.users.values_mut().for_each(keep_protocol);
        }
        history.groups = in_groups(groups, &known, presence);
        history.remembered_since_ms = known.since_ms;
        history.silent_nodes = known.silent;
    }
    let (offset_groups, more) = in_offset_groups(broker, caller, partition, offset).await?;
    truncated |= more;
    Ok(RecordHistory { offset_groups, truncated, ..history })
}

/// Removes the user, the client's name and its address: only a user who may describe the cluster sees those
/// of others.
fn keep_protocol(user: &mut SessionUser) {
    let protocol = std::mem::take(&mut user.protocol);
    *user = SessionUser { protocol, ..SessionUser::default() };
}

/// Lease groups of the topic that the caller may see, and whether there are more.
fn groups(
    broker: &Broker,
    caller: &Rights,
    name: &str,
) -> Result<(TopicId, Vec<TopicLeaseGroup>, bool), AdminError> {
    let catalog = broker.catalog();
    let topic = catalog.topic_named(name).ok_or_else(|| no_topic(name))?;
    let of_topic = catalog.lease_groups_of(topic.id());
    let mut seen = of_topic.filter(|group| {
        let target = AccessTarget::Group { topic: name, group: group.name() };
        caller.would(Operation::DescribeGroup, target)
    });
    let asked = seen.by_ref().take(HTTP_PAGE_MAX).map(|group| {
        let config = group.config();
        let routed = config.dead_letter_route.as_deref().and_then(Route::parse);
        let by_route = routed.map(|route| route.topic.to_owned());
        TopicLeaseGroup {
            id: group.id(),
            name: group.name().to_string(),
            paused: group.is_paused(),
            dead_letter_topic: by_route.or(config.dead_letter_topic.as_deref().map(str::to_owned)),
        }
    });
    let asked: Vec<TopicLeaseGroup> = asked.collect();
    Ok((topic.id(), asked, seen.next().is_some()))
}

fn in_groups(groups: Vec<TopicLeaseGroup>, known: &Known, presence: Presence) -> Vec<GroupHistory> {
    let mut histories = Vec::with_capacity(groups.len());
    for (index, TopicLeaseGroup { id, name, paused, dead_letter_topic }) in
        groups.into_iter().enumerate()
    {
        let standing = known.standings.as_ref().map(|all| all.get(index).copied().flatten());
        let (state, until_ms) = state(standing, presence);
        let standing = standing.flatten().filter(|_| presence == Presence::There);
        let holder = match standing.map(|standing| standing.state) {
            Some(RecordState::Leased { session, .. }) => Some(seen(session, &known.users)),
            _ => None,
        };
        let events = known.events.iter().filter(|event| event.group == id);
        histories.push(GroupHistory {
            group: name,
            state,
            until_ms,
            attempts: standing.map_or(0, |standing| standing.attempts),
            behind: standing.and_then(|standing| standing.behind),
            session: holder,
            paused,
            dead_letter_topic,
            events: events.map(|event| shown_event(event, &known.users)).collect(),
        });
    }
    histories
}

/// The state, with its end if it has one. `standing`: the outer `None` means that no node reported it, the
/// inner one that the record is settled.
fn state(
    standing: Option<Option<UnsettledRecord>>,
    presence: Presence,
) -> (GroupState, Option<i64>) {
    if presence == Presence::Deleted {
        return (GroupState::Gone, None);
    }
    match standing {
        None => (GroupState::Unknown, None),
        Some(None) => (GroupState::Settled, None),
        Some(Some(standing)) => match standing.state {
            RecordState::Ready => (GroupState::Ready, None),
            RecordState::Blocked => (GroupState::Blocked, None),
            RecordState::Leased { expires_ms, .. } => (GroupState::Leased, expires_ms),
            RecordState::Delayed { due_ms } => (GroupState::Delayed, Some(due_ms)),
            RecordState::DeadLettering => (GroupState::DeadLettering, None),
        },
    }
}

fn shown_event(event: &HistoryEvent, users: &BTreeMap<SessionId, SessionUser>) -> Event {
    let mut reason = None;
    let what = match event.what {
        StepKind::Leased => RecordEvent::Delivered,
        StepKind::HandedOut => RecordEvent::DeliveredAndSettled,
        StepKind::Accepted => RecordEvent::Accepted,
        StepKind::Released => RecordEvent::Released,
        StepKind::Rejected => RecordEvent::Rejected,
        StepKind::LeaseEnded => RecordEvent::TimedOut,
        StepKind::Left => RecordEvent::SessionEnded,
        StepKind::Withheld => RecordEvent::AcceptedInTransaction,
        StepKind::GivenBack => RecordEvent::GivenBack,
        StepKind::Voided => RecordEvent::Voided,
        StepKind::Died(why) => {
            let why = match why {
                DeadReason::Rejected => DeathReason::Rejected,
                DeadReason::Attempts => DeathReason::Attempts,
                DeadReason::Expired => DeathReason::Expired,
            };
            reason = Some(why.name().to_owned());
            RecordEvent::Died
        }
        StepKind::Ended => RecordEvent::Settled,
        StepKind::Removed => RecordEvent::Removed,
    };
    Event {
        at_ms: event.at_ms,
        node: event.node,
        what,
        reason,
        attempt: Some(event.attempt).filter(|attempt| *attempt > 0),
        session: (event.session != 0).then(|| seen(event.session, users)),
    }
}

fn seen(session: SessionId, users: &BTreeMap<SessionId, SessionUser>) -> SessionSeen {
    let user = users.get(&session);
    let text = |of: fn(&SessionUser) -> &str| {
        user.map(of).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    SessionSeen {
        session,
        protocol: text(|user| &user.protocol),
        user: text(|user| &user.user),
        client: text(|user| &user.client),
        peer: text(|user| &user.peer),
        connection: user.map(|user| user.connection).filter(|connection| *connection > 0),
    }
}

async fn in_offset_groups(
    broker: &Broker,
    caller: &Rights,
    partition: PartitionId,
    offset: u64,
) -> Result<(Vec<OffsetGroupSeen>, bool), AdminError> {
    let shards = broker.shards();
    let mut names = shards.offset_groups_after("", HISTORY_OFFSET_GROUPS_MAX + 1).await?;
    let truncated = names.len() > HISTORY_OFFSET_GROUPS_MAX;
    names.truncate(HISTORY_OFFSET_GROUPS_MAX);
    names.retain(|name| caller.allows(Action::Describe, Resource::Group, name));
    let mut seen = Vec::new();
    for group in names {
        let committed = shards.offsets(&group, &[partition]).await?;
        if let Some(committed) = committed.into_iter().next().flatten() {
            let committed = committed.offset;
            seen.push(OffsetGroupSeen { group, offset: committed, read: offset < committed });
        }
    }
    seen.sort_unstable_by(|a, b| a.group.cmp(&b.group));
    Ok((seen, truncated))
}
