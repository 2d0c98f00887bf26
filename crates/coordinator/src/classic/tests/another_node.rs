//! Another node becomes the coordinator, and restores the group from its stored form.

use base::{Level, Levels};

use super::*;
use crate::stored_fields::KeptError;
use crate::{Group, SessionTimeouts};

const SESSIONS: SessionTimeouts = SessionTimeouts { consumer: SESSION, streams: SESSION };

impl World {
    /// The stored form of the present state; `None`: the stored form does not change.
    pub(super) fn kept(&self) -> Option<Vec<u8>> {
        self.group.kept(Levels::OURS.max)
    }

    /// Another node becomes the coordinator, and restores the group from these bytes.
    pub(super) fn moves(&mut self, kept: &[u8]) {
        let restored = match kept.is_empty() {
            true => Ok(Group::Classic(ClassicGroup::new(text("g")))),
            false => self.restored(kept),
        };
        let Ok(Group::Classic(group)) = restored else { panic!("{restored:?}") };
        self.group = group;
    }

    fn restored(&self, kept: &[u8]) -> Result<Group, KeptError> {
        Group::restored("g", kept, SESSIONS, self.now)
    }
}

#[test]
fn restored_stable_group_has_its_members_and_assignments() {
    let mut world = World::new();
    let ids = world.stable(2);
    let (generation, described) = (world.group.generation(), format!("{:?}", world.group));
    let kept = world.kept().expect("it is stable");
    world.moves(&kept);
    assert_eq!(format!("{:?}", world.group), described);
    for id in &ids {
        assert_eq!(world.heartbeat(id), Ok(()));
        assert_eq!(world.commit(id, generation), Ok(()));
        assert_eq!(world.commit(id, generation - 1), Err(IllegalGeneration));
        let synced = world.sync(id, &[]);
        let Some(Reply::Sync(Ok(synced))) = world.answer(synced) else { panic!("it is stable") };
        assert_eq!(synced.assignment, id.as_bytes());
    }
    // A member that sends no heartbeat is removed.
    world.pass(SESSION - Duration::from_secs(1));
    assert_eq!(world.heartbeat(&ids[0]), Ok(()));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.heartbeat(&ids[0]), Err(RebalanceInProgress));
    assert_eq!(world.heartbeat(&ids[1]), Err(UnknownMemberId));
}

#[test]
fn previous_state_stays_stored_during_a_rebalance() {
    let mut world = World::new();
    let ids = world.stable(1);
    let generation = world.group.generation();
    let kept = world.kept().expect("it is stable");
    let newcomer = world.newcomer();
    world.join(&newcomer, &["range"]);
    assert_eq!((world.group.phase(), world.kept()), (Phase::PreparingRebalance, None));
    world.moves(&kept);
    assert_eq!(world.commit(&ids[0], generation), Ok(()));
    assert_eq!(world.commit(&newcomer, generation), Err(UnknownMemberId));
    world.leave(&ids[0]).expect("it is a member");
    assert_eq!(world.kept(), Some(Vec::new()));
}

#[test]
fn departed_member_stays_gone_before_the_others_rejoin() {
    for leaver in 0..3 {
        let mut world = World::new();
        let mut ids = world.stable(3);
        let generation = world.group.generation();
        let left = ids.remove(leaver);
        world.leave(&left).expect("it is a member");
        let kept = world.kept().expect("a member has left");
        world.moves(&kept);
        assert_eq!(world.kept(), Some(kept), "it is stored already");
        assert_eq!(world.heartbeat(&left), Err(UnknownMemberId));
        // The others may commit processed offsets, and have to rejoin.
        let joins: Vec<_> = ids
            .iter()
            .map(|id| {
                assert_eq!(world.heartbeat(id), Err(RebalanceInProgress));
                assert_eq!(world.commit(id, generation), Ok(()));
                world.join(id, &["range"])
            })
            .collect();
        let joined = world.joined(joins[0]);
        assert_eq!(joined.generation, generation + 1);
        world.settle(&ids, &joined.leader);
        assert!(world.kept().is_some_and(|kept| kept[0] == 1));
    }
}

#[test]
fn departed_members_stay_gone_and_a_new_member_rejoins() {
    let mut world = World::new();
    let ids = world.stable(3);
    let newcomer = world.newcomer();
    world.join(&newcomer, &["range"]);
    assert_eq!(world.kept(), None, "nobody has gone");
    world.leave(&ids[0]).expect("it is a member");
    let first = world.kept().expect("a member has left");
    world.pass(SESSION - Duration::from_secs(1));
    assert_eq!(world.heartbeat(&ids[1]), Err(RebalanceInProgress));
    world.pass(Duration::from_secs(2));
    let second = world.kept().expect("the session of another one has ended");
    assert_ne!(first, second);
    world.moves(&second);
    assert_eq!(world.heartbeat(&ids[1]), Err(RebalanceInProgress));
    for gone in [&ids[0], &ids[2], &newcomer] {
        assert_eq!(world.heartbeat(gone), Err(UnknownMemberId));
    }
    // Once all its known members have left, nothing is stored.
    world.newcomer();
    world.leave(&ids[1]).expect("it is a member");
    assert_eq!(world.kept(), Some(Vec::new()));
}

#[test]
fn member_that_does_not_rejoin_at_the_next_coordinator_is_removed() {
    let mut world = World::new();
    let ids = world.stable(2);
    world.leave(&ids[0]).expect("it is a member");
    let kept = world.kept().expect("a member has left");
    world.moves(&kept);
    world.pass(SESSION + Duration::from_secs(1));
    assert!(world.group.is_idle());
}

#[test]
fn previous_state_stays_stored_after_a_departure_below_the_level() {
    let mut world = World::new();
    let ids = world.stable(2);
    world.leave(&ids[0]).expect("it is a member");
    assert_eq!(world.group.kept(Level::NUMBERED), None);
}

#[test]
fn changed_bytes_are_rejected_or_decode_to_another_group() {
    let mut world = World::new();
    let ids = world.stable(3);
    let stable = world.kept().expect("it is stable");
    world.leave(&ids[0]).expect("it is a member");
    let rebalancing = world.kept().expect("a member has left");
    for kept in [stable, rebalancing] {
        assert!(world.restored(&kept).is_ok());
        for cut in 0..kept.len() {
            assert!(world.restored(&kept[..cut]).is_err(), "cut at {cut}");
        }
        for byte in 0..kept.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = kept.clone();
                changed[byte] = value;
                // It must not panic.
                let _ = world.restored(&changed);
            }
        }
    }
}
