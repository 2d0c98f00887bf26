//! Another node becomes the coordinator, and restores the group from its stored form.

use super::*;
use crate::{Group, SessionTimeouts};

const SESSIONS: SessionTimeouts = SessionTimeouts { consumer: TIMEOUT, streams: TIMEOUT };

impl World {
    /// Restores the group from its present stored form.
    fn moves(&mut self) {
        let kept = self.group.kept();
        let restored = match kept.is_empty() {
            true => Ok(Group::Streams(StreamsGroup::new(text("app")))),
            false => Group::restored("app", &kept, SESSIONS, self.now),
        };
        let Ok(Group::Streams(group)) = restored else { panic!("{restored:?}") };
        self.group = group;
        assert_eq!(self.group.kept(), kept);
    }
}

#[test]
fn members_keep_their_tasks_after_a_restore() {
    let mut world = World::new(counting());
    world.topics.make("in", 4);
    world.limits.standbys = 1;
    world.joins("a", "p");
    world.joins("b", "q");
    world.settles();
    let did: Vec<_> = world.clients.iter().map(|client| client.tasks.clone()).collect();
    let (id, epoch) = (world.clients[0].id.clone(), world.clients[0].epoch);
    let topology = world.group.topology().expect("it has one");
    world.moves();
    assert_eq!(world.group.state_name(), "Stable");
    assert!(world.group.is_subscribed_to("in") && !world.group.is_subscribed_to("out"));
    let first = did[0].active.first().expect("it does something");
    let topic = if &*first.subtopology == "0" { "in" } else { "app-repartition" };
    let commit = world.group.may_commit(&id, epoch, [(topic, first.partition)].into_iter());
    assert_eq!(commit, Ok(()));
    world.settles();
    let does: Vec<_> = world.clients.iter().map(|client| client.tasks.clone()).collect();
    assert_eq!(does, did);
    assert_eq!(world.group.topology(), Some(topology));
    // A member without heartbeats is removed.
    world.now += TIMEOUT - Duration::from_secs(1);
    world.reports(0).expect("is taken");
    world.now += Duration::from_secs(2);
    world.group.expire(world.now);
    assert_eq!(world.group.members().count(), 1);
}

#[test]
fn no_task_is_active_twice_after_a_restore_at_any_point() {
    for stride in 1..8 {
        let mut world = World::new(counting());
        world.topics.make("in", 5);
        world.limits.standbys = 1;
        let mut step = 0;
        for round in 0..6 {
            let name = format!("{round}");
            world.joins(&name, &name);
            if round == 3 {
                world.leaves(0);
            }
            for client in (0..world.clients.len()).cycle().take(5) {
                step += 1;
                if step % stride == 0 {
                    world.moves();
                }
                world.reports(client).expect("is taken");
            }
        }
        world.settles();
        let tasks: usize = world.clients.iter().map(|client| client.does().0).sum();
        assert_eq!(tasks, 10, "each task is somebody's");
    }
}

#[test]
fn delayed_group_assigns_tasks_after_a_restore() {
    let mut world = World::new(counting());
    world.topics.make("in", 4);
    world.limits.initial_delay = Duration::from_secs(3);
    let first = world.joins("a", "p");
    assert!(world.clients[first].has_status(StatusCode::AssignmentDelayed));
    world.moves();
    world.settles();
    assert_eq!(world.clients[first].does(), (8, 0));
}

#[test]
fn requested_shutdown_survives_a_restore() {
    let mut world = World::new(counting());
    world.topics.make("in", 2);
    world.joins("a", "p");
    world.joins("b", "q");
    world.settles();
    let stored = world.group.stamp();
    let asks = Heartbeat { shutdown: true, ..world.heartbeat(0) };
    world.group.heartbeat(&asks, world.limits, &world.topics, world.now).expect("is taken");
    assert_ne!(world.group.stamp(), stored, "it is stored");
    world.moves();
    world.reports(1).expect("is taken");
    assert!(world.clients[1].has_status(StatusCode::ShutdownApplication));
}

#[test]
fn changed_bytes_are_rejected_or_decode_to_another_group() {
    let mut world = World::new(counting());
    world.topics.make("in", 2);
    world.limits.standbys = 1;
    world.joins("a", "p");
    world.joins("b", "q");
    world.settles();
    let kept = world.group.kept();
    let restored = |bytes: &[u8]| Group::restored("app", bytes, SESSIONS, world.now);
    assert!(restored(&kept).is_ok());
    for cut in 0..kept.len() {
        assert!(restored(&kept[..cut]).is_err(), "cut at {cut}");
    }
    for byte in 0..kept.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = kept.clone();
            changed[byte] = value;
            // Neither the decoding nor a later heartbeat may panic.
            if let Ok(Group::Streams(mut group)) = restored(&changed) {
                let said = world.heartbeat(0);
                let _ = group.heartbeat(&said, world.limits, &world.topics, world.now);
                let _ = (group.topology(), group.state_name());
            }
        }
    }
}
