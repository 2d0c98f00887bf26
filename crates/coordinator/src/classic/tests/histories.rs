//! Random histories of requests, silence and time.

use proptest::prelude::*;

use super::*;
use crate::classic::Member;

#[derive(Clone, Debug)]
enum Step {
    Join {
        member: usize,
        instance: bool,
    },
    Sync(usize),
    Heartbeat(usize),
    Leave(usize),
    Pass(u64),
    /// Another node becomes the coordinator, and restores the last stored form.
    Move,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..6, any::<bool>()).prop_map(|(member, instance)| Step::Join { member, instance }),
        4 => (0usize..6).prop_map(Step::Sync),
        2 => (0usize..6).prop_map(Step::Heartbeat),
        1 => (0usize..6).prop_map(Step::Leave),
        2 => (0u64..30).prop_map(Step::Pass),
        1 => Just(Step::Move),
    ]
}

/// Invariants after any event.
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
    let waits = |member: &Member| member.awaiting_sync.is_some();
    if group.phase() != Phase::CompletingRebalance {
        assert!(!group.members().any(waits));
    }
}

proptest! {
    #[test]
    fn every_request_is_answered_once_in_any_history(
        steps in prop::collection::vec(step(), 1..80),
        delay in prop::sample::select(vec![Duration::ZERO, DELAY]),
    ) {
        let mut world = World::new();
        world.limits.initial_delay = delay;
        let mut ids: Vec<Option<(String, bool)>> = vec![None; 6];
        let mut asked = Vec::new();
        let mut kept = Vec::new();
        for step in steps {
            let id_of = |ids: &[Option<(String, bool)>], member: usize| {
                ids[member].as_ref().map(|(id, _)| id.clone()).unwrap_or_default()
            };
            match step {
                Step::Join { member, instance } => {
                    let known = ids[member].clone();
                    let is_static = known.as_ref().map_or(instance, |(_, is_static)| *is_static);
                    let instance = is_static.then(|| text(&format!("i{member}")));
                    let waiter = world.join_with(|join| {
                        join.member_id = text(&known.map(|(id, _)| id).unwrap_or_default());
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
                Step::Move => {
                    // Waiting requests end with the coordinator.
                    asked.clear();
                    world.moves(&kept);
                }
            }
            check(&world.group);
            if let Some(now) = world.kept() {
                kept = now;
            }
            for (waiter, member, is_static) in &asked {
                let Some(Reply::Join(answer)) = world.answer(*waiter) else { continue };
                let (id, error) = match answer {
                    Ok(joined) => (&joined.member_id, None),
                    Err(refused) => (&refused.member_id, Some(refused.error)),
                };
                match error {
                    Some(UnknownMemberId | FencedInstanceId) => ids[*member] = None,
                    _ if !id.is_empty() => ids[*member] = Some((id.to_string(), *is_static)),
                    _ => {}
                }
            }
        }
        // Without requests the group becomes empty, and no request is left waiting.
        world.pass(Duration::from_secs(3600));
        prop_assert!(world.group.is_idle());
        prop_assert_eq!(world.group.bytes(), 0);
        for (waiter, ..) in asked {
            prop_assert!(!world.is_waiting(waiter), "{:?} was never answered", waiter);
        }
    }
}
