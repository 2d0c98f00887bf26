//! KIP-848's protocol without sockets and clocks: its input is heartbeats, its output reports.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::error::ErrorKind::{self, *};
use crate::{Group, SessionTimeouts, Text, text};
use uuid::Uuid;
use world::Instant;

use super::{ConsumerGroup, ConsumerLimits, Heartbeat, Report};
use crate::assignment::Assignment;
use crate::assignor::Assignor;
use crate::client::Client;
use crate::members::{JOINING, LEAVING, PAUSING};
use crate::reconcile::AssignmentSet;
use crate::subscription::{Catalog, Topics};

mod histories;

const SESSION: Duration = Duration::from_secs(45);
const SESSIONS: SessionTimeouts = SessionTimeouts { consumer: SESSION, streams: SESSION };
const REBALANCE: Duration = Duration::from_secs(60);

/// A client like Kafka's: it revokes partitions outside its assignment, and reports its owned ones.
#[derive(Clone, Debug)]
struct Consumer {
    id: Text,
    instance_id: Option<Text>,
    names: Vec<String>,
    epoch: i32,
    owned: Assignment,
}

struct World {
    group: ConsumerGroup,
    topics: Topics,
    limits: ConsumerLimits,
    now: Instant,
}

impl World {
    fn new(topics: &[(&str, u32)]) -> Self {
        let world = Self {
            group: ConsumerGroup::new(text("g")),
            topics: Topics::default(),
            limits: ConsumerLimits { members_max: 10, session_timeout: SESSION },
            now: Instant::now(),
        };
        for (name, partitions) in topics {
            world.topics.set(name, *partitions);
        }
        world
    }

    /// Another node becomes the coordinator, and restores the group from these bytes.
    fn moves(&mut self, kept: &[u8]) {
        let restored = match kept.is_empty() {
            true => Ok(Group::Consumer(ConsumerGroup::new(text("g")))),
            false => Group::restored("g", kept, SESSIONS, self.now),
        };
        let Ok(Group::Consumer(group)) = restored else { panic!("{restored:?}") };
        self.group = group;
        check(&self.group);
    }

    fn send(&mut self, heartbeat: Heartbeat) -> Result<Report, ErrorKind> {
        let result = self.group.heartbeat(heartbeat, self.limits, &self.topics, self.now);
        check(&self.group);
        result.map_err(|error| error.kind)
    }

    fn join(&mut self, consumer: &mut Consumer) -> Result<(), ErrorKind> {
        let mut heartbeat = heartbeat(&consumer.id, JOINING);
        heartbeat.instance_id = consumer.instance_id.clone();
        heartbeat.rebalance_timeout = Some(REBALANCE);
        heartbeat.names = Some(consumer.names.iter().map(|name| text(name)).collect());
        heartbeat.owned = Some(Assignment::default());
        consumer.owned = Assignment::default();
        let report = self.send(heartbeat)?;
        consumer.take(report);
        Ok(())
    }

    /// Reports its owned partitions and adopts the assignment.
    fn beat(&mut self, consumer: &mut Consumer) -> Result<(), ErrorKind> {
        let mut heartbeat = heartbeat(&consumer.id, consumer.epoch);
        heartbeat.instance_id = consumer.instance_id.clone();
        heartbeat.owned = Some(consumer.owned.clone());
        let report = self.send(heartbeat)?;
        consumer.take(report);
        Ok(())
    }

    /// Commits offsets of these partitions of `t`.
    fn commit(&self, member: &str, epoch: i32, partitions: &[i32]) -> Result<(), ErrorKind> {
        let topic = self.topics.topic("t").expect("exists").id;
        let partitions = partitions.iter().map(|&partition| (topic, partition));
        self.group.may_commit(member, epoch, partitions).map_err(|error| error.kind)
    }

    /// Adds a member that subscribes to these topics.
    fn consumer(&mut self, id: &str, names: &[&str]) -> Consumer {
        let mut consumer = Consumer::new(id, names);
        self.join(&mut consumer).expect("joins");
        consumer
    }

    /// All members report until nothing changes any more.
    fn settle(&mut self, consumers: &mut [&mut Consumer]) {
        for _ in 0..10 {
            for consumer in consumers.iter_mut() {
                self.beat(consumer).expect("is a member");
            }
        }
        assert_eq!(self.group.state_name(), "Stable");
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.group.check_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.group.expire(self.now);
            check(&self.group);
        }
        self.now = until;
    }
}

impl Consumer {
    fn new(id: &str, names: &[&str]) -> Self {
        Self {
            id: text(id),
            instance_id: None,
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            epoch: JOINING,
            owned: Assignment::default(),
        }
    }

    fn take(&mut self, report: Report) {
        self.epoch = report.epoch;
        if let Some(assigned) = report.assigned {
            self.owned = assigned;
        }
    }
}

fn heartbeat(id: &str, epoch: i32) -> Heartbeat {
    Heartbeat {
        member_id: text(id),
        epoch,
        instance_id: None,
        rack_id: None,
        rebalance_timeout: None,
        names: None,
        pattern: None,
        assignor: None,
        owned: None,
        client: Client::default(),
    }
}

/// Invariants after any event.
fn check(group: &ConsumerGroup) {
    let held: Vec<_> = group
        .members()
        .flat_map(|member| member.held().map(|partition| (partition, member.enrolment.id.clone())))
        .collect();
    let count = held.len();
    let by_partition: BTreeMap<_, _> = held.into_iter().collect();
    assert_eq!(by_partition.len(), count, "a partition is held twice");
    let holders: BTreeMap<_, _> =
        group.own.holders.iter().map(|(&partition, id)| (partition, id.clone())).collect();
    assert_eq!(by_partition, holders);
    for member in group.members() {
        assert!(!member.state.assigned.overlaps(&member.state.revoking));
        let held: BTreeSet<_> = member.held().collect();
        assert!(held.iter().eq(member.state.given_in.keys()));
        assert!(
            member.state.epoch <= group.target_epoch() && group.target_epoch() <= group.epoch()
        );
    }
    for (instance, id) in &group.own.instances {
        assert_eq!(group.members[id].instance_id.as_ref(), Some(instance));
    }
}

#[test]
fn first_member_gets_all_partitions_at_once() {
    let mut world = World::new(&[("t", 3)]);
    let consumer = world.consumer("a", &["t", "missing"]);
    assert_eq!((consumer.epoch, consumer.owned.len()), (1, 3));
    assert_eq!(world.group.state_name(), "Stable");
}

#[test]
fn partitions_are_revoked_before_they_are_reassigned() {
    let mut world = World::new(&[("t", 4)]);
    let mut a = world.consumer("a", &["t"]);
    let mut b = world.consumer("b", &["t"]);
    assert_eq!((b.epoch, b.owned.len()), (2, 0), "a still has them all");
    let before = a.clone();
    world.beat(&mut a).unwrap();
    assert_eq!((a.epoch, a.owned.len()), (1, 2), "is asked to give two up");
    world.beat(&mut b).unwrap();
    assert_eq!(b.owned.len(), 0, "a has not said that it did");
    // While it reports that it owns the revoked partitions, it gets no new ones.
    world.beat(&mut before.clone()).unwrap();
    assert_eq!(world.group.state_name(), "Reconciling");
    world.beat(&mut a).unwrap();
    assert_eq!(a.epoch, 2);
    world.beat(&mut b).unwrap();
    assert_eq!((b.epoch, b.owned.len()), (2, 2));
    assert_eq!(world.group.state_name(), "Stable");
}

#[test]
fn reply_contains_the_assignment_only_when_it_changed() {
    let mut world = World::new(&[("t", 1)]);
    let a = world.consumer("a", &["t"]);
    let report = world.send(heartbeat(&a.id, a.epoch)).unwrap();
    assert_eq!(report, Report { epoch: 1, assigned: None });
    let mut full = heartbeat(&a.id, a.epoch);
    full.rebalance_timeout = Some(REBALANCE);
    full.names = Some([text("t")].into());
    full.owned = Some(a.owned.clone());
    assert_eq!(world.send(full).unwrap().assigned, Some(a.owned));
}

#[test]
fn created_grown_and_deleted_topics_take_effect_at_the_next_heartbeat() {
    let mut world = World::new(&[("t", 1)]);
    let mut a = world.consumer("a", &["t", "u"]);
    let mut b = world.consumer("b", &["t", "u"]);
    world.settle(&mut [&mut a, &mut b]);
    assert_eq!(a.owned.len() + b.owned.len(), 1);
    world.topics.set("t", 4);
    world.settle(&mut [&mut a, &mut b]);
    assert_eq!((a.owned.len(), b.owned.len()), (2, 2));
    world.topics.set("u", 2);
    world.topics.delete("t");
    let t_again = world.topics.set("t", 2);
    world.settle(&mut [&mut a, &mut b]);
    assert_eq!((a.owned.len(), b.owned.len()), (2, 2));
    let of_t = a.owned.partitions_of(t_again).count() + b.owned.partitions_of(t_again).count();
    assert_eq!(of_t, 2, "a topic of the same name is another topic");
}

#[test]
fn pattern_matches_whole_names_and_is_reevaluated_when_topics_change() {
    let mut world = World::new(&[("orders-eu", 1), ("orders-us", 1), ("my-orders-eu", 1)]);
    let mut a = Consumer::new("a", &[]);
    let mut joining = heartbeat(&a.id, JOINING);
    joining.pattern = Some(text("orders-.*"));
    joining.owned = Some(Assignment::default());
    joining.rebalance_timeout = Some(REBALANCE);
    let report = world.send(joining.clone()).unwrap();
    a.take(report);
    assert_eq!(a.owned.len(), 2);
    world.topics.set("orders-asia", 3);
    world.settle(&mut [&mut a]);
    assert_eq!(a.owned.len(), 5);
    joining.pattern = Some(text("("));
    joining.member_id = text("b");
    assert_eq!(world.send(joining), Err(InvalidRegularExpression));
    assert_eq!(world.group.members().count(), 1);
    // An empty pattern is no pattern.
    let mut without = heartbeat(&a.id, a.epoch);
    without.pattern = Some(Text::default());
    without.owned = Some(a.owned.clone());
    let report = world.send(without).unwrap();
    a.take(report);
    world.settle(&mut [&mut a]);
    assert_eq!(a.owned.len(), 0);
}

#[test]
fn assignor_selected_by_most_members_is_used() {
    let mut world = World::new(&[("t", 2), ("u", 2)]);
    let mut joined = Vec::new();
    for (id, assignor) in [("a", Assignor::Range), ("b", Assignor::Range), ("c", Assignor::Uniform)]
    {
        let mut joining = heartbeat(&text(id), JOINING);
        joining.names = Some(BTreeSet::from([text("t"), text("u")]));
        joining.owned = Some(Assignment::default());
        joining.rebalance_timeout = Some(REBALANCE);
        joining.assignor = Some(assignor);
        let mut consumer = Consumer::new(id, &[]);
        let report = world.send(joining).unwrap();
        consumer.take(report);
        joined.push(consumer);
    }
    world.settle(&mut joined.iter_mut().collect::<Vec<_>>());
    assert_eq!(world.group.assignor(), Assignor::Range);
    let sizes: Vec<_> = joined.iter().map(|consumer| consumer.owned.len()).collect();
    assert_eq!(sizes, [2, 2, 0], "partition 0 of both, partition 1 of both, nothing");
}

#[test]
fn wrong_epoch_is_fenced_but_not_after_a_lost_reply() {
    let mut world = World::new(&[("t", 2)]);
    let mut a = world.consumer("a", &["t"]);
    let mut b = world.consumer("b", &["t"]);
    world.settle(&mut [&mut a, &mut b]);
    let mut ahead = a.clone();
    ahead.epoch += 1;
    assert_eq!(world.beat(&mut ahead), Err(FencedMemberEpoch));
    // The reply that moved a to epoch 2 was lost.
    let mut behind = a.clone();
    behind.epoch = 1;
    assert_eq!(world.beat(&mut behind), Ok(()));
    assert_eq!(behind.epoch, 2);
    let mut greedy = a.clone();
    greedy.epoch = 1;
    greedy.owned.extend(b.owned.iter());
    assert_eq!(world.beat(&mut greedy), Err(FencedMemberEpoch));
    assert_eq!(world.beat(&mut Consumer::new("c", &["t"])).err(), None, "it joins");
    let mut stranger = Consumer::new("d", &["t"]);
    stranger.epoch = 2;
    assert_eq!(world.beat(&mut stranger), Err(UnknownMemberId));
}

#[test]
fn fenced_member_can_rejoin_without_partitions() {
    let mut world = World::new(&[("t", 2)]);
    let mut a = world.consumer("a", &["t"]);
    world.join(&mut a).unwrap();
    assert_eq!((a.epoch, a.owned.len()), (1, 2));
}

#[test]
fn partitions_of_a_silent_member_go_to_the_others() {
    let mut world = World::new(&[("t", 4)]);
    let mut a = world.consumer("a", &["t"]);
    let mut b = world.consumer("b", &["t"]);
    world.settle(&mut [&mut a, &mut b]);
    world.pass(SESSION / 2);
    world.beat(&mut a).unwrap();
    world.pass(SESSION / 2);
    assert_eq!(world.beat(&mut b), Err(UnknownMemberId));
    world.settle(&mut [&mut a]);
    assert_eq!(a.owned.len(), 4);
}

#[test]
fn member_that_does_not_revoke_in_time_is_fenced() {
    let mut world = World::new(&[("t", 2)]);
    let a = world.consumer("a", &["t"]);
    let mut b = world.consumer("b", &["t"]);
    world.beat(&mut a.clone()).unwrap();
    for _ in 0..6 {
        world.pass(REBALANCE / 6);
        // It is alive and still reports that it owns both.
        let _ = world.beat(&mut a.clone());
        world.beat(&mut b).unwrap();
    }
    assert_eq!(world.beat(&mut a.clone()), Err(UnknownMemberId));
    world.settle(&mut [&mut b]);
    assert_eq!(b.owned.len(), 2);
}

#[test]
fn leaving_member_frees_its_partitions_at_once() {
    let mut world = World::new(&[("t", 2)]);
    let mut a = world.consumer("a", &["t"]);
    let mut b = world.consumer("b", &["t"]);
    world.settle(&mut [&mut a, &mut b]);
    world.group.leave(&a.id, None, LEAVING).unwrap();
    check(&world.group);
    world.beat(&mut b).unwrap();
    assert_eq!(b.owned.len(), 2);
    assert_eq!(world.group.leave(&a.id, None, LEAVING).unwrap_err().kind, UnknownMemberId);
    world.group.leave(&b.id, None, LEAVING).unwrap();
    assert_eq!((world.group.state_name(), world.group.bytes()), ("Empty", 0));
}

#[test]
fn returning_static_member_finds_its_partitions() {
    let mut world = World::new(&[("t", 4)]);
    let mut a = Consumer::new("a", &["t"]);
    a.instance_id = Some(text("i"));
    world.join(&mut a).unwrap();
    let mut b = world.consumer("b", &["t"]);
    world.settle(&mut [&mut a, &mut b]);
    let (owned, epoch) = (a.owned.clone(), world.group.epoch());
    let mut again = Consumer::new("a2", &["t"]);
    again.instance_id = Some(text("i"));
    assert_eq!(world.join(&mut again), Err(UnreleasedInstanceId));
    world.group.leave(&a.id, a.instance_id.as_deref(), PAUSING).unwrap();
    check(&world.group);
    world.beat(&mut b).unwrap();
    assert_eq!(b.owned.len(), 2, "its partitions wait for it");
    world.join(&mut again).unwrap();
    assert_eq!((&again.owned, world.group.epoch()), (&owned, epoch), "nothing moved");
    assert_eq!(world.beat(&mut a), Err(FencedInstanceId));
    // Its session ends while it is away.
    world.group.leave(&again.id, again.instance_id.as_deref(), PAUSING).unwrap();
    world.pass(SESSION / 2);
    world.beat(&mut b).unwrap();
    world.pass(SESSION / 2);
    world.settle(&mut [&mut b]);
    assert_eq!(b.owned.len(), 4);
}

#[test]
fn full_group_rejects_new_members() {
    let mut world = World::new(&[("t", 1)]);
    world.limits.members_max = 1;
    let mut a = world.consumer("a", &["t"]);
    assert_eq!(world.join(&mut Consumer::new("b", &["t"])), Err(GroupMaxSizeReached));
    world.beat(&mut a).unwrap();
}

#[test]
fn offset_commit_requires_a_member_in_its_epoch() {
    let mut world = World::new(&[("t", 1)]);
    let nobody = Text::default();
    assert_eq!(world.commit(&nobody, -1, &[]), Ok(()));
    let a = world.consumer("a", &["t"]);
    assert_eq!(world.commit(&nobody, -1, &[]), Err(UnknownMemberId));
    assert_eq!(world.commit(&a.id, a.epoch, &[0]), Ok(()));
    assert_eq!(world.commit(&a.id, a.epoch - 1, &[0]), Err(StaleMemberEpoch));
    assert_eq!(world.commit(&a.id, a.epoch + 1, &[0]), Err(StaleMemberEpoch));
    let fetch =
        |id: Option<&str>, epoch| world.group.may_fetch(id, epoch).map_err(|error| error.kind);
    assert_eq!(fetch(None, -1), Ok(()));
    assert_eq!(fetch(Some(&a.id), 7), Err(StaleMemberEpoch));
}

#[test]
fn commit_of_the_previous_epoch_is_valid_for_kept_partitions() {
    let mut world = World::new(&[("t", 2)]);
    let mut a = world.consumer("a", &["t"]);
    let mut b = world.consumer("b", &["t"]);
    world.beat(&mut a).unwrap();
    let kept = a.owned.iter().next().unwrap().1;
    assert_eq!(world.commit(&a.id, 1, &[0, 1]), Ok(()), "it has not let go yet");
    world.settle(&mut [&mut a, &mut b]);
    assert_eq!(a.epoch, 2);
    assert_eq!(world.commit(&a.id, 1, &[kept]), Ok(()));
    assert_eq!(world.commit(&a.id, 1, &[0, 1]), Err(StaleMemberEpoch));
    world.group.leave(&b.id, None, LEAVING).unwrap();
    world.settle(&mut [&mut a]);
    assert_eq!(a.owned.len(), 2);
    assert_eq!(world.commit(&a.id, 2, &[kept]), Ok(()));
    assert_eq!(world.commit(&a.id, 2, &[1 - kept]), Err(StaleMemberEpoch), "given in epoch 3");
}
