//! The classic protocol without sockets and clocks: its input is events, its output replies.

use std::time::Duration;

use crate::error::ErrorKind::{self, *};
use crate::{Text, text};
use bytes::Bytes;
use world::Instant;

use super::{
    ClassicGroup, Join, JoinGroupReply, JoinLimits, JoinRefused, LeavingMember, Phase, Protocol,
    Sync, SyncGroupReply,
};
use crate::classic::{Effects, Reply, Waiter};
use crate::client::Client;

mod another_node;
mod histories;
mod static_members;

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);
const DELAY: Duration = Duration::from_secs(3);

/// A group, its clock, and its replies so far.
struct World {
    group: ClassicGroup,
    now: Instant,
    limits: JoinLimits,
    requests: u64,
    answers: Vec<(Waiter, Reply)>,
}

impl World {
    fn new() -> Self {
        Self {
            group: ClassicGroup::new(text("g")),
            now: Instant::now(),
            limits: JoinLimits { initial_delay: Duration::ZERO, members_max: 100 },
            requests: 0,
            answers: Vec::new(),
        }
    }

    fn request(&mut self) -> Waiter {
        self.requests += 1;
        Waiter(self.requests)
    }

    fn act<R>(&mut self, event: impl FnOnce(&mut ClassicGroup, Instant, &mut Effects) -> R) -> R {
        let mut effects = Effects::default();
        let result = event(&mut self.group, self.now, &mut effects);
        self.answers.extend(effects.replies);
        result
    }

    /// A dynamic member joins with its id; `names` are its protocols.
    fn join(&mut self, member: &str, names: &[&str]) -> Waiter {
        self.join_with(|join| {
            join.member_id = text(member);
            join.protocols = protocols(names);
        })
    }

    fn join_with(&mut self, change: impl FnOnce(&mut Join)) -> Waiter {
        let waiter = self.request();
        let mut join = Join {
            waiter,
            member_id: Text::default(),
            fresh_id: text(&format!("m{}", waiter.0)),
            instance_id: None,
            client: Client::default(),
            session_timeout: SESSION,
            rebalance_timeout: REBALANCE,
            protocol_type: text("consumer"),
            protocols: protocols(&["range"]),
            reason: String::new(),
            may_be_sent_back: true,
            may_skip_assignment: true,
        };
        change(&mut join);
        let limits = self.limits;
        self.act(|group, now, effects| group.join(join, limits, now, effects));
        waiter
    }

    /// A new member joins, and the group forms with it and the members that rejoin.
    fn newcomer(&mut self) -> String {
        let asked = self.join("", &["range"]);
        match self.answer(asked) {
            Some(Reply::Join(Err(JoinRefused { member_id, error: MemberIdRequired }))) => {
                member_id.to_string()
            }
            other => panic!("is not sent back, but {other:?}"),
        }
    }

    /// A stable group with this many members.
    fn stable(&mut self, count: usize) -> Vec<String> {
        let ids: Vec<_> = (0..count).map(|_| self.newcomer()).collect();
        let joins: Vec<_> = ids.iter().map(|id| self.join(id, &["range"])).collect();
        let leader = self.joined(joins[0]).leader.to_string();
        self.settle(&ids, &leader);
        ids
    }

    fn settle(&mut self, ids: &[String], leader: &str) {
        for id in ids.iter().filter(|id| *id != leader) {
            self.sync(id, &[]);
        }
        let shares: Vec<_> = ids.iter().map(|id| (id.as_str(), id.as_str())).collect();
        self.sync(leader, &shares);
        assert_eq!(self.group.phase(), Phase::Stable);
    }

    fn sync(&mut self, member: &str, assignments: &[(&str, &str)]) -> Waiter {
        let sync = Sync {
            waiter: self.request(),
            member_id: text(member),
            instance_id: None,
            generation: self.group.generation,
            protocol_type: None,
            protocol: None,
            assignments: assignments
                .iter()
                .map(|(member, share)| (text(member), Bytes::copy_from_slice(share.as_bytes())))
                .collect(),
        };
        let waiter = sync.waiter;
        self.act(|group, now, effects| group.sync(sync, now, effects));
        waiter
    }

    fn heartbeat(&mut self, member: &str) -> Result<(), ErrorKind> {
        let generation = self.group.generation;
        self.act(|group, now, _| group.heartbeat(&text(member), None, generation, now))
    }

    fn commit(&mut self, member: &str, generation: i32) -> Result<(), ErrorKind> {
        self.act(|group, now, _| group.commit(&text(member), None, generation, now))
    }

    fn leave(&mut self, member: &str) -> Result<(), ErrorKind> {
        let leaver =
            LeavingMember { member_id: text(member), instance_id: None, reason: String::new() };
        let limits = self.limits;
        self.act(|group, now, effects| group.leave(&[leaver], limits, now, effects).remove(0))
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(at) = self.group.check_at().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            let limits = self.limits;
            self.act(|group, now, effects| group.expire(limits, now, effects));
        }
        self.now = until;
    }

    fn answer(&self, waiter: Waiter) -> Option<&Reply> {
        let mut answers = self.answers.iter().filter(|(to, _)| *to == waiter);
        let answer = answers.next();
        assert!(answers.next().is_none(), "{waiter:?} was answered twice");
        answer.map(|(_, reply)| reply)
    }

    fn joined(&self, waiter: Waiter) -> JoinGroupReply {
        match self.answer(waiter) {
            Some(Reply::Join(Ok(joined))) => joined.clone(),
            other => panic!("is not in, but {other:?}"),
        }
    }

    fn refused(&self, waiter: Waiter) -> ErrorKind {
        match self.answer(waiter) {
            Some(Reply::Join(Err(JoinRefused { error, .. }))) => *error,
            other => panic!("is not refused, but {other:?}"),
        }
    }

    fn synced(&self, waiter: Waiter) -> Result<SyncGroupReply, ErrorKind> {
        match self.answer(waiter) {
            Some(Reply::Sync(answer)) => answer.clone(),
            other => panic!("no answer to a sync, but {other:?}"),
        }
    }

    fn assigned(&self, waiter: Waiter) -> Bytes {
        self.synced(waiter).expect("is assigned something").assignment
    }

    fn is_waiting(&self, waiter: Waiter) -> bool {
        self.answer(waiter).is_none()
    }
}

fn protocols(names: &[&str]) -> Vec<Protocol> {
    names.iter().map(|name| Protocol { name: text(name), metadata: Bytes::new() }).collect()
}

#[test]
fn new_member_gets_an_id_leads_and_receives_its_own_assignment() {
    let mut world = World::new();
    let id = world.newcomer();
    assert_eq!(world.group.phase(), Phase::Empty);
    let join = world.join(&id, &["range", "roundrobin"]);
    let joined = world.joined(join);
    assert_eq!(joined.generation, 1);
    assert_eq!(*joined.leader, *id);
    assert_eq!(joined.protocol.as_deref(), Some("range"));
    assert_eq!(joined.members.len(), 1);
    let sync = world.sync(&id, &[(&id, "all of it")]);
    assert_eq!(&world.assigned(sync)[..], b"all of it");
    assert_eq!(world.heartbeat(&id), Ok(()));
}

#[test]
fn clients_before_kip_394_are_admitted_at_once() {
    let mut world = World::new();
    let join = world.join_with(|join| join.may_be_sent_back = false);
    world.joined(join);
}

#[test]
fn unused_member_id_expires_with_its_session() {
    let mut world = World::new();
    let id = world.newcomer();
    world.pass(SESSION);
    assert!(world.group.is_idle());
    let join = world.join(&id, &["range"]);
    assert_eq!(world.refused(join), UnknownMemberId);
}

#[test]
fn second_member_causes_a_rebalance_of_all() {
    let mut world = World::new();
    let first = world.stable(1).remove(0);
    let second = world.newcomer();
    let joins = world.join(&second, &["range"]);
    assert!(world.is_waiting(joins));
    assert_eq!(world.heartbeat(&first), Err(RebalanceInProgress));
    assert_eq!(world.commit(&first, 1), Ok(()), "while partitions are being given up");
    let rejoins = world.join(&first, &["range"]);
    let (first_joined, second_joined) = (world.joined(rejoins), world.joined(joins));
    assert_eq!((first_joined.generation, second_joined.generation), (2, 2));
    assert_eq!((first_joined.members.len(), second_joined.members.len()), (2, 0));
    assert_eq!(world.commit(&first, 2), Err(RebalanceInProgress), "before the assignment");
    assert_eq!(world.commit(&first, 1), Err(IllegalGeneration));
    let waits = world.sync(&second, &[]);
    assert!(world.is_waiting(waits));
    world.sync(&first, &[(&first, "a"), (&second, "b")]);
    assert_eq!(&world.assigned(waits)[..], b"b");
    assert_eq!(world.commit(&second, 2), Ok(()));
}

#[test]
fn silent_member_is_removed_and_the_others_rebalance() {
    let mut world = World::new();
    let ids = world.stable(2);
    world.pass(SESSION / 2);
    assert_eq!(world.heartbeat(&ids[0]), Ok(()));
    world.pass(SESSION / 2);
    assert_eq!(world.heartbeat(&ids[1]), Err(UnknownMemberId));
    assert_eq!(world.heartbeat(&ids[0]), Err(RebalanceInProgress));
    let join = world.join(&ids[0], &["range"]);
    assert_eq!(world.joined(join).members.len(), 1);
}

#[test]
fn member_that_does_not_rejoin_in_time_is_removed() {
    let mut world = World::new();
    let ids = world.stable(2);
    let join = world.join(&ids[0], &["range"]);
    for _ in 0..9 {
        // Alive, but busy.
        world.pass(REBALANCE / 10);
        assert_eq!(world.heartbeat(&ids[1]), Err(RebalanceInProgress));
        assert!(world.is_waiting(join));
    }
    world.pass(REBALANCE / 10);
    assert_eq!(world.joined(join).members.len(), 1);
    assert_eq!(world.heartbeat(&ids[1]), Err(UnknownMemberId));
}

#[test]
fn member_that_does_not_sync_in_time_is_removed() {
    let mut world = World::new();
    let ids = world.stable(2);
    let joins = [world.join(&ids[0], &["range"]), world.join(&ids[1], &["range"])];
    let leader = world.joined(joins[0]).leader.to_string();
    let follower = ids.iter().find(|id| **id != leader).unwrap();
    let sync = world.sync(&leader, &[(&leader, "all")]);
    assert!(world.synced(sync).is_ok());
    for _ in 0..10 {
        assert_eq!(world.heartbeat(follower), Ok(()));
        assert_eq!(world.heartbeat(&leader), Ok(()));
        world.pass(REBALANCE / 10);
    }
    assert_eq!(world.heartbeat(follower), Err(UnknownMemberId));
    assert_eq!(world.heartbeat(&leader), Err(RebalanceInProgress));
}

#[test]
fn leader_that_leaves_before_assigning_is_replaced() {
    let mut world = World::new();
    let ids = world.stable(2);
    let joins = [world.join(&ids[0], &["range"]), world.join(&ids[1], &["range"])];
    let leader = world.joined(joins[0]).leader.to_string();
    let follower = ids.iter().find(|id| **id != leader).unwrap().clone();
    let waits = world.sync(&follower, &[]);
    assert_eq!(world.leave(&leader), Ok(()));
    assert_eq!(world.synced(waits), Err(RebalanceInProgress));
    let join = world.join(&follower, &["range"]);
    assert_eq!(*world.joined(join).leader, *follower);
}

#[test]
fn group_is_empty_after_the_last_member_leaves() {
    let mut world = World::new();
    let ids = world.stable(1);
    assert_eq!(world.leave("somebody"), Err(UnknownMemberId));
    assert_eq!(world.leave(&ids[0]), Ok(()));
    assert_eq!((world.group.phase(), world.group.generation), (Phase::Empty, 2));
    assert_eq!(world.group.bytes(), 0);
    assert_eq!(world.commit("", -1), Ok(()), "offsets may be set by hand");
}

#[test]
fn commit_by_a_non_member_is_rejected_while_the_group_has_members() {
    let mut world = World::new();
    world.stable(1);
    assert_eq!(world.commit("", -1), Err(UnknownMemberId));
    assert_eq!(world.commit("stranger", 1), Err(UnknownMemberId));
}

#[test]
fn selected_protocol_is_supported_by_all_and_preferred_by_most() {
    let mut world = World::new();
    let ids: Vec<_> = (0..3).map(|_| world.newcomer()).collect();
    world.join(&ids[0], &["a", "b", "c"]);
    world.join(&ids[1], &["c", "b"]);
    let last = world.join(&ids[2], &["b", "c", "a"]);
    assert_eq!(world.joined(last).protocol.as_deref(), Some("b"));
    let stranger = world.join("", &["a"]);
    assert_eq!(world.refused(stranger), InconsistentGroupProtocol);
    let connect = world.join_with(|join| join.protocol_type = text("connect"));
    assert_eq!(world.refused(connect), InconsistentGroupProtocol);
}

#[test]
fn first_rebalance_waits_for_more_members_up_to_a_limit() {
    let mut world = World::new();
    world.limits.initial_delay = DELAY;
    let ids: Vec<_> = (0..3).map(|_| world.newcomer()).collect();
    let first = world.join(&ids[0], &["range"]);
    world.pass(DELAY / 2);
    let second = world.join(&ids[1], &["range"]);
    world.pass(DELAY / 2);
    assert!(world.is_waiting(first), "the second put it off");
    world.pass(DELAY);
    assert_eq!(world.joined(first).generation, 1);
    assert_eq!(world.joined(second).generation, 1);
    assert_eq!(world.group.members().count(), 2);
}

#[test]
fn follower_that_lost_the_join_reply_gets_it_again() {
    let mut world = World::new();
    let ids = world.stable(2);
    let leader = world.group.leader.clone().unwrap();
    let follower = ids.iter().find(|id| **id != *leader).unwrap().clone();
    let again = world.join(&follower, &["range"]);
    assert_eq!(world.joined(again).generation, 1);
    assert_eq!(world.group.phase(), Phase::Stable);
    let again = world.sync(&follower, &[]);
    assert_eq!(&world.assigned(again)[..], follower.as_bytes());
}

#[test]
fn second_join_of_a_member_also_answers_the_first() {
    let mut world = World::new();
    let ids = world.stable(2);
    let first = world.join(&ids[0], &["range"]);
    let second = world.join(&ids[0], &["range"]);
    assert_eq!(world.refused(first), RebalanceInProgress);
    assert!(world.is_waiting(second));
}

#[test]
fn full_group_rejects_new_members() {
    let mut world = World::new();
    world.limits.members_max = 2;
    world.stable(2);
    let join = world.join_with(|join| join.may_be_sent_back = false);
    assert_eq!(world.refused(join), GroupMaxSizeReached);
    assert_eq!(world.group.members().count(), 2);
}

#[test]
fn issued_member_ids_are_bounded() {
    let mut world = World::new();
    world.limits.members_max = 2;
    world.newcomer();
    world.newcomer();
    let join = world.join("", &["range"]);
    assert_eq!(world.refused(join), GroupMaxSizeReached);
}
