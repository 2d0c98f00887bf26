//! The classic protocol, without sockets and clocks: events in, answers out.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::ResponseError::{self, *};
use kafka_protocol::error::ParseResponseErrorCode;
use kafka_protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;
use proptest::prelude::*;
use world::Instant;

use super::{ClassicGroup, Join, JoinLimits, Leaver, Phase, Protocol, Sync};
use crate::groups::member::{Client, Effects, Reply, Waiter, own};

const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);
const DELAY: Duration = Duration::from_secs(3);

/// A group, its clock, and the answers that it has given.
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
            group: ClassicGroup::new(own("g")),
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

    /// A dynamic member joins by the id that it has; `names` are its protocols.
    fn join(&mut self, member: &str, names: &[&str]) -> Waiter {
        self.join_with(|join| {
            join.member_id = own(member);
            join.protocols = protocols(names);
        })
    }

    fn join_with(&mut self, change: impl FnOnce(&mut Join)) -> Waiter {
        let waiter = self.request();
        let mut join = Join {
            waiter,
            member_id: StrBytes::new(),
            fresh_id: own(&format!("m{}", waiter.0)),
            instance_id: None,
            client: Client::default(),
            session_timeout: SESSION,
            rebalance_timeout: REBALANCE,
            protocol_type: own("consumer"),
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

    /// A member that is new comes in, and the group (of it, and of whoever joins again) forms.
    fn newcomer(&mut self) -> String {
        let asked = self.join("", &["range"]);
        let sent_back = self.joined(asked);
        assert_eq!(sent_back.error_code, MemberIdRequired.code());
        sent_back.member_id.to_string()
    }

    /// A stable group of so many members.
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
            member_id: own(member),
            instance_id: None,
            generation: self.group.generation,
            protocol_type: None,
            protocol: None,
            assignments: assignments
                .iter()
                .map(|(member, share)| (own(member), Bytes::copy_from_slice(share.as_bytes())))
                .collect(),
        };
        let waiter = sync.waiter;
        self.act(|group, now, effects| group.sync(sync, now, effects));
        waiter
    }

    fn heartbeat(&mut self, member: &str) -> Result<(), ResponseError> {
        let generation = self.group.generation;
        self.act(|group, now, _| group.heartbeat(&own(member), None, generation, now))
    }

    fn commit(&mut self, member: &str, generation: i32) -> Result<(), ResponseError> {
        self.act(|group, now, _| group.commit(&own(member), None, generation, now))
    }

    fn leave(&mut self, member: &str) -> Result<(), ResponseError> {
        let leaver = Leaver { member_id: own(member), instance_id: None, reason: String::new() };
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

    fn joined(&self, waiter: Waiter) -> JoinGroupResponse {
        match self.answer(waiter) {
            Some(Reply::Join(response)) => response.clone(),
            other => panic!("no answer to a join, but {other:?}"),
        }
    }

    fn synced(&self, waiter: Waiter) -> SyncGroupResponse {
        match self.answer(waiter) {
            Some(Reply::Sync(response)) => response.clone(),
            other => panic!("no answer to a sync, but {other:?}"),
        }
    }

    fn is_waiting(&self, waiter: Waiter) -> bool {
        self.answer(waiter).is_none()
    }
}

fn protocols(names: &[&str]) -> Vec<Protocol> {
    names.iter().map(|name| Protocol { name: own(name), metadata: Bytes::new() }).collect()
}

#[test]
fn a_member_is_named_then_leads_then_is_assigned_what_it_said() {
    let mut world = World::new();
    let id = world.newcomer();
    assert_eq!(world.group.phase(), Phase::Empty);
    let join = world.join(&id, &["range", "roundrobin"]);
    let joined = world.joined(join);
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    assert_eq!(joined.leader.as_str(), id);
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    assert_eq!(joined.members.len(), 1);
    let sync = world.sync(&id, &[(&id, "all of it")]);
    assert_eq!(&world.synced(sync).assignment[..], b"all of it");
    assert_eq!(world.heartbeat(&id), Ok(()));
}

#[test]
fn clients_before_kip_394_are_taken_at_once() {
    let mut world = World::new();
    let join = world.join_with(|join| join.may_be_sent_back = false);
    assert_eq!(world.joined(join).error_code, 0);
}

#[test]
fn an_id_that_is_not_used_within_its_session_is_forgotten() {
    let mut world = World::new();
    let id = world.newcomer();
    world.pass(SESSION);
    assert!(world.group.is_idle());
    let join = world.join(&id, &["range"]);
    assert_eq!(world.joined(join).error_code, UnknownMemberId.code());
}

#[test]
fn a_second_member_brings_everybody_together_again() {
    let mut world = World::new();
    let first = world.stable(1).remove(0);
    let second = world.newcomer();
    let joins = world.join(&second, &["range"]);
    assert!(world.is_waiting(joins));
    assert_eq!(world.heartbeat(&first), Err(RebalanceInProgress));
    assert_eq!(world.commit(&first, 1), Ok(()), "while partitions are being given up");
    let rejoins = world.join(&first, &["range"]);
    let (first_joined, second_joined) = (world.joined(rejoins), world.joined(joins));
    assert_eq!((first_joined.generation_id, second_joined.generation_id), (2, 2));
    assert_eq!((first_joined.members.len(), second_joined.members.len()), (2, 0));
    assert_eq!(world.commit(&first, 2), Err(RebalanceInProgress), "before the assignment");
    assert_eq!(world.commit(&first, 1), Err(IllegalGeneration));
    let waits = world.sync(&second, &[]);
    assert!(world.is_waiting(waits));
    world.sync(&first, &[(&first, "a"), (&second, "b")]);
    assert_eq!(&world.synced(waits).assignment[..], b"b");
    assert_eq!(world.commit(&second, 2), Ok(()));
}

#[test]
fn a_silent_member_is_removed_and_the_others_meet_again() {
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
fn who_does_not_rejoin_in_time_is_out() {
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
fn who_does_not_sync_in_time_is_out() {
    let mut world = World::new();
    let ids = world.stable(2);
    let joins = [world.join(&ids[0], &["range"]), world.join(&ids[1], &["range"])];
    let leader = world.joined(joins[0]).leader.to_string();
    let follower = ids.iter().find(|id| **id != leader).unwrap();
    let sync = world.sync(&leader, &[(&leader, "all")]);
    assert_eq!(world.synced(sync).error_code, 0);
    for _ in 0..10 {
        assert_eq!(world.heartbeat(follower), Ok(()));
        assert_eq!(world.heartbeat(&leader), Ok(()));
        world.pass(REBALANCE / 10);
    }
    assert_eq!(world.heartbeat(follower), Err(UnknownMemberId));
    assert_eq!(world.heartbeat(&leader), Err(RebalanceInProgress));
}

#[test]
fn a_leader_that_goes_before_it_assigned_is_replaced() {
    let mut world = World::new();
    let ids = world.stable(2);
    let joins = [world.join(&ids[0], &["range"]), world.join(&ids[1], &["range"])];
    let leader = world.joined(joins[0]).leader.to_string();
    let follower = ids.iter().find(|id| **id != leader).unwrap().clone();
    let waits = world.sync(&follower, &[]);
    assert_eq!(world.leave(&leader), Ok(()));
    assert_eq!(world.synced(waits).error_code, RebalanceInProgress.code());
    let join = world.join(&follower, &["range"]);
    assert_eq!(world.joined(join).leader.as_str(), follower);
}

#[test]
fn the_last_member_to_leave_empties_the_group() {
    let mut world = World::new();
    let ids = world.stable(1);
    assert_eq!(world.leave("somebody"), Err(UnknownMemberId));
    assert_eq!(world.leave(&ids[0]), Ok(()));
    assert_eq!((world.group.phase(), world.group.generation), (Phase::Empty, 2));
    assert_eq!(world.group.bytes(), 0);
    assert_eq!(world.commit("", -1), Ok(()), "offsets may be set by hand");
}

#[test]
fn a_stranger_cannot_commit_while_there_are_members() {
    let mut world = World::new();
    world.stable(1);
    assert_eq!(world.commit("", -1), Err(UnknownMemberId));
    assert_eq!(world.commit("stranger", 1), Err(UnknownMemberId));
}

#[test]
fn the_protocol_is_one_that_all_know_and_most_prefer() {
    let mut world = World::new();
    let ids: Vec<_> = (0..3).map(|_| world.newcomer()).collect();
    world.join(&ids[0], &["a", "b", "c"]);
    world.join(&ids[1], &["c", "b"]);
    let last = world.join(&ids[2], &["b", "c", "a"]);
    assert_eq!(world.joined(last).protocol_name.as_deref(), Some("b"));
    let stranger = world.join("", &["a"]);
    assert_eq!(world.joined(stranger).error_code, InconsistentGroupProtocol.code());
    let connect = world.join_with(|join| join.protocol_type = own("connect"));
    assert_eq!(world.joined(connect).error_code, InconsistentGroupProtocol.code());
}

#[test]
fn a_first_rebalance_waits_for_more_members_but_not_for_ever() {
    let mut world = World::new();
    world.limits.initial_delay = DELAY;
    let ids: Vec<_> = (0..3).map(|_| world.newcomer()).collect();
    let first = world.join(&ids[0], &["range"]);
    world.pass(DELAY / 2);
    let second = world.join(&ids[1], &["range"]);
    world.pass(DELAY / 2);
    assert!(world.is_waiting(first), "the second put it off");
    world.pass(DELAY);
    assert_eq!(world.joined(first).generation_id, 1);
    assert_eq!(world.joined(second).generation_id, 1);
    assert_eq!(world.group.members().count(), 2);
}

#[test]
fn a_follower_that_lost_its_answer_gets_it_again() {
    let mut world = World::new();
    let ids = world.stable(2);
    let leader = world.group.leader.clone().unwrap();
    let follower = ids.iter().find(|id| **id != *leader).unwrap().clone();
    let again = world.join(&follower, &["range"]);
    assert_eq!(world.joined(again).generation_id, 1);
    assert_eq!(world.group.phase(), Phase::Stable);
    let again = world.sync(&follower, &[]);
    assert_eq!(&world.synced(again).assignment[..], follower.as_bytes());
}

#[test]
fn joining_twice_answers_the_first_request_too() {
    let mut world = World::new();
    let ids = world.stable(2);
    let first = world.join(&ids[0], &["range"]);
    let second = world.join(&ids[0], &["range"]);
    assert_eq!(world.joined(first).error_code, RebalanceInProgress.code());
    assert!(world.is_waiting(second));
}

#[test]
fn a_full_group_takes_nobody_else() {
    let mut world = World::new();
    world.limits.members_max = 2;
    world.stable(2);
    let join = world.join_with(|join| join.may_be_sent_back = false);
    assert_eq!(world.joined(join).error_code, GroupMaxSizeReached.code());
    assert_eq!(world.group.members().count(), 2);
}

#[test]
fn ids_that_are_given_out_are_bounded() {
    let mut world = World::new();
    world.limits.members_max = 2;
    world.newcomer();
    world.newcomer();
    let join = world.join("", &["range"]);
    assert_eq!(world.joined(join).error_code, GroupMaxSizeReached.code());
}

// -------------------------------------------------------------------------------- static members

fn join_static(world: &mut World, member: &str, instance: &str) -> Waiter {
    world.join_with(|join| {
        join.member_id = own(member);
        join.instance_id = Some(own(instance));
    })
}

fn stable_static(world: &mut World) -> [String; 2] {
    let a = join_static(world, "", "i1");
    let first = world.joined(a).member_id.to_string();
    let b = join_static(world, "", "i2");
    join_static(world, &first, "i1");
    let joined = world.joined(b);
    let ids = [first, joined.member_id.to_string()];
    world.settle(&ids, &joined.leader);
    ids
}

#[test]
fn a_static_member_comes_back_without_a_rebalance() {
    let mut world = World::new();
    let ids = stable_static(&mut world);
    let back = join_static(&mut world, "", "i2");
    let joined = world.joined(back);
    assert_eq!((joined.error_code, joined.generation_id), (0, 2));
    assert_ne!(joined.member_id.as_str(), ids[1]);
    assert_eq!(world.group.phase(), Phase::Stable);
    let sync = world.sync(&joined.member_id, &[]);
    assert_eq!(&world.synced(sync).assignment[..], ids[1].as_bytes(), "what it had");
    let fenced = join_static(&mut world, &ids[1], "i2");
    assert_eq!(world.joined(fenced).error_code, FencedInstanceId.code());
}

#[test]
fn a_static_leader_that_comes_back_is_told_not_to_assign() {
    let mut world = World::new();
    let ids = stable_static(&mut world);
    let leader = world.group.leader.clone().unwrap().to_string();
    let instance = if leader == ids[0] { "i1" } else { "i2" };
    let back = join_static(&mut world, "", instance);
    let joined = world.joined(back);
    assert!(joined.skip_assignment);
    assert_eq!((&joined.leader, joined.members.len()), (&joined.member_id, 2));
    let older = world.join_with(|join| {
        join.instance_id = Some(own(instance));
        join.may_skip_assignment = false;
    });
    let older = world.joined(older);
    assert_ne!(older.leader, older.member_id, "an older client must not think that it leads");
}

#[test]
fn a_static_member_is_waited_for_until_its_session_ends() {
    let mut world = World::new();
    let ids = stable_static(&mut world);
    let join = join_static(&mut world, &ids[0], "i1");
    world.pass(SESSION);
    assert_eq!(world.joined(join).members.len(), 1);
}

#[test]
fn a_static_member_can_be_removed_by_its_instance() {
    let mut world = World::new();
    stable_static(&mut world);
    let leavers = [("", "i1"), ("", "nobody"), ("wrong", "i2")].map(|(member, instance)| Leaver {
        member_id: own(member),
        instance_id: Some(own(instance)),
        reason: String::new(),
    });
    let limits = world.limits;
    let results = world.act(|group, now, effects| group.leave(&leavers, limits, now, effects));
    assert_eq!(results, [Ok(()), Err(UnknownMemberId), Err(FencedInstanceId)]);
}

// ----------------------------------------------------------------------------------- any history

#[derive(Clone, Debug)]
enum Step {
    Join { member: usize, instance: bool },
    Sync(usize),
    Heartbeat(usize),
    Leave(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..6, any::<bool>()).prop_map(|(member, instance)| Step::Join { member, instance }),
        4 => (0usize..6).prop_map(Step::Sync),
        2 => (0usize..6).prop_map(Step::Heartbeat),
        1 => (0usize..6).prop_map(Step::Leave),
        2 => (0u64..30).prop_map(Step::Pass),
    ]
}

/// What must hold after any event.
fn check(group: &ClassicGroup) {
    let joined = group.members().filter(|member| member.awaiting_join.is_some()).count();
    assert_eq!(joined, group.joined);
    assert_eq!(group.bytes, group.members().map(|member| member.bytes()).sum::<usize>());
    for (instance, member) in &group.instances {
        assert_eq!(group.members[member].instance_id.as_ref(), Some(instance));
    }
    match group.phase() {
        Phase::Empty => assert!(group.members.is_empty()),
        Phase::PreparingRebalance => assert!(group.join_deadline.is_some()),
        Phase::CompletingRebalance | Phase::Stable => {
            assert!(group.protocol().is_some());
            assert!(group.members.contains_key(group.leader.as_ref().unwrap()));
            assert_eq!(joined, 0);
        }
    }
    let waits = |member: &super::Member| member.awaiting_sync.is_some();
    if group.phase() != Phase::CompletingRebalance {
        assert!(!group.members().any(waits));
    }
}

proptest! {
    #[test]
    fn every_request_is_answered_once_whatever_happens(
        steps in prop::collection::vec(step(), 1..80),
        delay in prop::sample::select(vec![Duration::ZERO, DELAY]),
    ) {
        let mut world = World::new();
        world.limits.initial_delay = delay;
        let mut ids: Vec<Option<(String, bool)>> = vec![None; 6];
        let mut asked = Vec::new();
        for step in steps {
            let id_of = |ids: &[Option<(String, bool)>], member: usize| {
                ids[member].as_ref().map(|(id, _)| id.clone()).unwrap_or_default()
            };
            match step {
                Step::Join { member, instance } => {
                    let known = ids[member].clone();
                    let is_static = known.as_ref().map_or(instance, |(_, is_static)| *is_static);
                    let instance = is_static.then(|| own(&format!("i{member}")));
                    let waiter = world.join_with(|join| {
                        join.member_id = own(&known.map(|(id, _)| id).unwrap_or_default());
                        join.instance_id = instance;
                    });
                    asked.push((waiter, member, is_static));
                }
                Step::Sync(member) => {
                    let id = id_of(&ids, member);
                    let waiter = world.sync(&id, &[(&id, "x")]);
                    asked.push((waiter, member, false));
                }
                Step::Heartbeat(member) => drop(world.heartbeat(&id_of(&ids, member))),
                Step::Leave(member) => drop(world.leave(&id_of(&ids, member))),
                Step::Pass(seconds) => world.pass(Duration::from_secs(seconds)),
            }
            check(&world.group);
            for (waiter, member, is_static) in &asked {
                if let Some(Reply::Join(joined)) = world.answer(*waiter) {
                    match joined.error_code.err() {
                        Some(UnknownMemberId | FencedInstanceId) => ids[*member] = None,
                        _ if !joined.member_id.is_empty() => {
                            ids[*member] = Some((joined.member_id.to_string(), *is_static));
                        }
                        _ => {}
                    }
                }
            }
        }
        // Everybody falls silent: nothing is left, and nobody is left waiting.
        world.pass(Duration::from_secs(3600));
        prop_assert!(world.group.is_idle());
        prop_assert_eq!(world.group.bytes(), 0);
        for (waiter, ..) in asked {
            prop_assert!(!world.is_waiting(waiter), "{:?} was never answered", waiter);
        }
    }
}
