//! Static members (KIP-345).

use super::*;

fn join_static(world: &mut World, member: &str, instance: &str) -> Waiter {
    world.join_with(|join| {
        join.member_id = text(member);
        join.instance_id = Some(text(instance));
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
fn static_member_rejoins_without_a_rebalance() {
    let mut world = World::new();
    let ids = stable_static(&mut world);
    let back = join_static(&mut world, "", "i2");
    let joined = world.joined(back);
    assert_eq!(joined.generation, 2);
    assert_ne!(*joined.member_id, *ids[1]);
    assert_eq!(world.group.phase(), Phase::Stable);
    let sync = world.sync(&joined.member_id, &[]);
    assert_eq!(&world.assigned(sync)[..], ids[1].as_bytes(), "what it had");
    let fenced = join_static(&mut world, &ids[1], "i2");
    assert_eq!(world.refused(fenced), FencedInstanceId);
}

#[test]
fn rejoining_static_leader_skips_the_assignment() {
    let mut world = World::new();
    let ids = stable_static(&mut world);
    let leader = world.group.leader.clone().unwrap().to_string();
    let instance = if leader == ids[0] { "i1" } else { "i2" };
    let back = join_static(&mut world, "", instance);
    let joined = world.joined(back);
    assert!(joined.skip_assignment);
    assert_eq!((&joined.leader, joined.members.len()), (&joined.member_id, 2));
    let older = world.join_with(|join| {
        join.instance_id = Some(text(instance));
        join.may_skip_assignment = false;
    });
    let older = world.joined(older);
    assert_ne!(older.leader, older.member_id, "an older client must not think that it leads");
}

#[test]
fn static_member_is_kept_until_its_session_ends() {
    let mut world = World::new();
    let ids = stable_static(&mut world);
    let join = join_static(&mut world, &ids[0], "i1");
    world.pass(SESSION);
    assert_eq!(world.joined(join).members.len(), 1);
}

#[test]
fn static_member_can_be_removed_by_its_instance_id() {
    let mut world = World::new();
    stable_static(&mut world);
    let leavers =
        [("", "i1"), ("", "nobody"), ("wrong", "i2")].map(|(member, instance)| LeavingMember {
            member_id: text(member),
            instance_id: Some(text(instance)),
            reason: String::new(),
        });
    let limits = world.limits;
    let results = world.act(|group, now, effects| group.leave(&leavers, limits, now, effects));
    assert_eq!(results, [Ok(()), Err(UnknownMemberId), Err(FencedInstanceId)]);
}
