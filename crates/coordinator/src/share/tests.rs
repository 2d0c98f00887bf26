//! Share groups without sockets and clocks: the input is heartbeats, the output reports.

use std::time::Duration;

use crate::error::ErrorKind::{self, *};
use proptest::prelude::*;
use world::Instant;

use super::*;
use crate::reconcile::AssignmentSet;
use crate::subscription::Topics;
use crate::text;

const SESSION: Duration = Duration::from_secs(45);

struct World {
    group: ShareGroup,
    topics: Topics,
    limits: ShareLimits,
    now: Instant,
}

/// A client like Kafka's: a received assignment replaces its own.
#[derive(Clone, Debug, Default)]
struct Consumer {
    id: Text,
    epoch: i32,
    has: Assignment,
}

impl World {
    fn new(topics: &[(&str, u32)]) -> Self {
        let world = Self {
            group: ShareGroup::new(text("g")),
            topics: Topics::default(),
            limits: ShareLimits { members_max: 5, session_timeout: SESSION },
            now: Instant::now(),
        };
        for (name, partitions) in topics {
            world.topics.set(name, *partitions);
        }
        world
    }

    fn send(&mut self, id: &str, epoch: i32, names: Option<&[&str]>) -> Result<Report, ErrorKind> {
        let heartbeat = Heartbeat {
            member_id: text(id),
            epoch,
            rack_id: None,
            names: names.map(|names| names.iter().map(|name| text(name)).collect()),
            client: Client::default(),
        };
        let report = self.group.heartbeat(heartbeat, self.limits, &self.topics, self.now);
        report.map_err(|error| error.kind)
    }

    fn join(&mut self, id: &str, names: &[&str]) -> Consumer {
        let id = text(id);
        let report = self.send(&id, JOINING, Some(names)).expect("joins");
        let has = report.assigned.expect("who joins is told everything");
        Consumer { id, epoch: report.epoch, has }
    }

    fn beat(&mut self, consumer: &mut Consumer) -> Result<bool, ErrorKind> {
        let report = self.send(&consumer.id, consumer.epoch, None)?;
        consumer.epoch = report.epoch;
        let is_news = report.assigned.is_some();
        consumer.has = report.assigned.unwrap_or_else(|| consumer.has.clone());
        Ok(is_news)
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.group.expire(self.now);
    }
}

#[test]
fn joining_member_receives_its_partitions_at_once() {
    let mut world = World::new(&[("t", 3)]);
    let mut a = world.join("a", &["t"]);
    assert_eq!((a.epoch, a.has.len()), (1, 3));
    assert_eq!(world.beat(&mut a), Ok(false), "nothing is new");
    assert_eq!(world.group.state_name(), "Stable");
}

#[test]
fn members_share_partitions_when_there_are_too_few() {
    let mut world = World::new(&[("t", 1)]);
    let a = world.join("a", &["t"]);
    let mut b = world.join("b", &["t"]);
    assert_eq!((a.has.len(), b.has.len()), (1, 1));
    assert_eq!(world.beat(&mut b), Ok(false));
}

#[test]
fn new_target_reaches_the_member_with_its_next_heartbeat() {
    let mut world = World::new(&[("t", 4)]);
    let mut a = world.join("a", &["t"]);
    let b = world.join("b", &["t"]);
    assert_eq!(b.has.len(), 2, "nobody waits for anybody");
    assert_eq!(world.beat(&mut a), Ok(true));
    assert_eq!((a.epoch, a.has.len()), (2, 2));
    world.group.leave(&b.id).expect("leaves");
    assert_eq!(world.beat(&mut a), Ok(true));
    assert_eq!((a.epoch, a.has.len()), (3, 4));
}

#[test]
fn created_grown_and_deleted_topics_change_the_assignment() {
    let mut world = World::new(&[]);
    let mut a = world.join("a", &["t", "later"]);
    assert!(a.has.is_empty());
    let id = world.topics.set("t", 2);
    assert_eq!(world.beat(&mut a), Ok(true));
    assert_eq!(a.has.len(), 2);
    assert!(world.group.topics().any(|topic| topic == id));
    world.topics.set("t", 5);
    assert_eq!(world.beat(&mut a), Ok(true));
    assert_eq!(a.has.len(), 5);
    world.topics.delete("t");
    assert_eq!(world.beat(&mut a), Ok(true));
    assert!(a.has.is_empty());
}

#[test]
fn changed_subscription_changes_the_assignment() {
    let mut world = World::new(&[("t", 2), ("u", 3)]);
    let a = world.join("a", &["t"]);
    let report = world.send(&a.id, a.epoch, Some(&["u"])).expect("is taken");
    assert_eq!(report.assigned.expect("is told").len(), 3);
    let report = world.send(&a.id, report.epoch, Some(&["u"])).expect("is taken");
    assert_eq!((report.epoch, report.assigned.map(|had| had.len())), (2, Some(3)), "repeated");
}

#[test]
fn previous_epoch_is_accepted_after_a_lost_reply() {
    let mut world = World::new(&[("t", 4)]);
    let mut a = world.join("a", &["t"]);
    world.join("b", &["t"]);
    let lost = world.send(&a.id, a.epoch, None).expect("is taken");
    assert_eq!(lost.epoch, 2);
    assert_eq!(world.beat(&mut a), Ok(false), "a full heartbeat follows in a real client");
    assert_eq!(a.epoch, 2);
    assert_eq!(world.send(&a.id, 1, Some(&["t"])).map(|report| report.epoch), Ok(2));
    assert_eq!(world.send(&a.id, 9, None), Err(FencedMemberEpoch));
    world.join("c", &["t"]);
    world.beat(&mut a).expect("is taken");
    assert_eq!(world.send(&a.id, 1, None), Err(FencedMemberEpoch));
}

#[test]
fn unknown_member_is_rejected() {
    let mut world = World::new(&[("t", 1)]);
    assert_eq!(world.send(&text("x"), 3, None), Err(UnknownMemberId));
    let gone = world.group.leave(&text("x")).map_err(|error| error.kind);
    assert_eq!(gone, Err(UnknownMemberId));
}

#[test]
fn silent_member_is_removed_and_can_rejoin() {
    let mut world = World::new(&[("t", 2)]);
    let mut a = world.join("a", &["t"]);
    world.pass(SESSION / 2);
    let mut b = world.join("b", &["t"]);
    world.pass(SESSION / 2);
    assert_eq!(world.beat(&mut a), Err(UnknownMemberId));
    assert_eq!(world.beat(&mut b), Ok(true));
    assert_eq!(b.has.len(), 2);
    let back = world.join("a", &["t"]);
    assert_eq!(back.has.len(), 1);
    world.pass(2 * SESSION);
    assert_eq!(world.group.state_name(), "Empty");
    assert_eq!((world.group.bytes(), world.group.check_at()), (0, None));
}

#[test]
fn full_group_rejects_new_members() {
    let mut world = World::new(&[("t", 1)]);
    for id in ["a", "b", "c", "d", "e"] {
        world.join(id, &["t"]);
    }
    assert_eq!(world.send(&text("f"), JOINING, Some(&["t"])), Err(GroupMaxSizeReached));
    assert_eq!(world.join("a", &["t"]).has.len(), 1, "who is in may join again");
}

proptest! {
    #[test]
    fn every_partition_is_consumed_once_all_members_have_reported(
        steps in proptest::collection::vec((0usize..6, 0u8..5, 0u32..6), 1..60),
    ) {
        const NAMES: [&str; 3] = ["t", "u", "v"];
        let mut world = World::new(&[]);
        let mut consumers: Vec<Consumer> = Vec::new();
        for (who, what, number) in steps {
            match (what, consumers.len()) {
                (0, 0..4) => {
                    let id = format!("m{}", world.group.epoch());
                    consumers.push(world.join(&id, &NAMES[..1 + number as usize % 3]));
                }
                (1, 1..) => {
                    let gone = consumers.remove(who % consumers.len());
                    world.group.leave(&gone.id).expect("is a member");
                }
                (2, _) => drop(world.topics.set(NAMES[who % 3], number)),
                (3, _) => world.topics.delete(NAMES[who % 3]),
                (_, 1..) => {
                    let who = who % consumers.len();
                    world.beat(&mut consumers[who]).expect("is a member");
                }
                _ => {}
            }
        }
        // Twice: the first round may change the targets of the others.
        for _ in 0..2 {
            for consumer in &mut consumers {
                world.beat(consumer).expect("is a member");
            }
        }
        for topic in world.topics.topics() {
            let wanted = world.group.topics().any(|known| known == topic.id);
            for partition in 0..topic.partitions as i32 {
                let has = |consumer: &Consumer| consumer.has.contains(topic.id, partition);
                prop_assert_eq!(consumers.iter().any(has), wanted);
            }
        }
    }
}
