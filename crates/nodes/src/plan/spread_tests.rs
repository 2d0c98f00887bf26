//! Three nodes for each shard: the wanted assignment, and whether the steps lead to it from any start.

use crate::limits::NODES_JOINED_MAX;
use base::limits::REPLICAS;

use super::leaving::RemovalObstacle;
use super::tests::{LEAVING, Model, group, view};
use super::*;
use NodeLifecycle::{Active, Drained};

fn spread(nodes: &[(u64, NodeLifecycle, bool)], groups: Vec<Group>) -> View {
    View { spreads: true, ..view(nodes, groups) }
}

fn all(count: u64) -> Vec<(u64, NodeLifecycle, bool)> {
    (1..=count).map(|node| (node, Active, true)).collect()
}

fn voters(view: &View, shard: u32) -> Vec<u64> {
    wanted(view)[&ShardId(shard)].voters.iter().copied().collect()
}

fn racks(told: &[(u64, &str)]) -> BTreeMap<u64, String> {
    told.iter().map(|(node, rack)| (*node, (*rack).to_owned())).collect()
}

/// A cluster with this number of founding nodes and of shards with rows.
fn model(seed: u64, founded: u64, shards: u32) -> Model {
    let nodes: Vec<u64> = (1..=founded).collect();
    let mut model = Model::new(seed);
    model.spreads = true;
    model.nodes_max = 9;
    model.next = founded + 1;
    model.nodes = view(&all(founded), Vec::new()).nodes;
    model.groups = (0..=shards).map(|shard| group(shard, 1, &nodes)).collect();
    model
}

/// Number of shards with rows on each active node.
fn loads(model: &Model) -> BTreeMap<u64, usize> {
    let active = model.nodes.iter().filter(|(_, node)| node.standing == Active);
    let has = |node: u64| {
        let rows = model.groups.iter().filter(|group| group.shard != ShardId::CATALOG);
        rows.filter(|group| group.members().any(|member| member == node)).count()
    };
    active.map(|(node, _)| (*node, has(*node))).collect()
}

/// Each leader sees the current state of its own group, and a slightly older one of the others.
fn round(model: &mut Model, was: &mut Vec<Group>) -> usize {
    let mut made = 0;
    for place in 0..model.groups.len() {
        let mut seen = model.view();
        for (other, group) in seen.groups.iter_mut().enumerate() {
            if other != place && model.one_in(3) {
                group.clone_from(&was[other]);
            }
        }
        let shard = seen.groups[place].shard;
        let steps = next_steps(&seen);
        let mut own = steps.into_iter().filter(|step| step.shard() == shard);
        // At most one change of a group, but any number of forgotten nodes.
        let (forgotten, steps): (Vec<Step>, Vec<Step>) =
            own.by_ref().partition(|step| matches!(step, Step::Forget { .. }));
        assert!(steps.len() <= 1, "two changes of {shard}: {steps:?}");
        // The catalog's leader first checks with each leader that no group has the node.
        let is_gone = |model: &Model, step: &Step| match step {
            Step::Forget { node } => {
                !model.groups.iter().flat_map(Group::members).any(|member| member == *node)
            }
            _ => true,
        };
        for step in steps.into_iter().chain(forgotten) {
            if !model.one_in(4) && is_gone(model, &step) {
                if let Step::Remove { node, .. } = step {
                    keeps_three(model, place, node);
                }
                model.make(step);
                made += 1;
            }
        }
    }
    was.clone_from(&model.groups);
    model.time_passes();
    made
}

/// A staying node releases a shard only if three other reachable nodes vote in it.
fn keeps_three(model: &Model, place: usize, node: u64) {
    let (seen, group) = (model.view(), &model.groups[place]);
    let rest = group.voters.iter().filter(|voter| **voter != node && seen.is_live(**voter));
    let stays = !seen.leaves(node) && seen.is_live(node) && group.voters.contains(&node);
    let count = rest.count();
    assert!(!stays || count >= REPLICAS, "node {node} leaves {group:?}, of which {count} live");
}

fn is_at_target(model: &Model) -> bool {
    let stay = staying(&model.nodes);
    let loads = loads(model);
    let (most, least) = (loads.values().max(), loads.values().min());
    let is_even = most.zip(least).is_none_or(|(most, least)| most - least <= 1);
    let copies = REPLICAS.min(stay.len());
    let mut groups = model.groups.iter();
    let catalog = groups.next().expect("the catalog's");
    let members: BTreeSet<u64> = catalog.members().collect();
    let has_three = |group: &Group| {
        group.voters.len() == copies && group.learners.is_empty() && group.voters.is_subset(&stay)
    };
    members == stay
        && catalog.voters.len() == stay.len().min(NODES_JOINED_MAX)
        && stay.len() == model.nodes.len()
        && groups.all(has_three)
        && (is_even || stay.len() <= REPLICAS || !model.racks.is_empty())
}

/// All nodes are up, and no more events happen.
fn reach_target(model: &mut Model, what: &str) {
    for node in model.nodes.values_mut() {
        node.is_live = true;
    }
    let mut was = model.groups.clone();
    let (mut rounds, mut quiet) = (0, 0);
    while quiet < 20 {
        rounds += 1;
        assert!(rounds < 3_000, "{what}: {:?} {:?}", model.nodes, model.groups);
        let made = round(model, &mut was);
        // A group without a leader makes no step, and is not at rest.
        let all_are_led = model.groups.iter().all(|group| group.leader.is_some());
        quiet = if made == 0 { quiet + usize::from(all_are_led) } else { 0 };
    }
    assert!(is_at_target(model), "{what}: {:?} {:?} {:?}", model.nodes, loads(model), model.groups);
}

fn live(model: &mut Model, count: u64) {
    for node in model.next..model.next + count {
        model.nodes.insert(node, Node { standing: Active, is_live: true });
    }
    model.next += count;
}

#[test]
fn cluster_of_three_with_all_shards_needs_no_step() {
    let groups = (0..=6).map(|shard| group(shard, 1, &[1, 2, 3])).collect();
    let seen = spread(&all(3), groups);
    assert_eq!(next_steps(&seen), []);
    assert!(wanted(&seen).values().all(|wanted| wanted.voters == [1, 2, 3].into()));
}

#[test]
fn all_nodes_get_all_shards_below_the_replicas_level() {
    let groups = (0..=2).map(|shard| group(shard, 1, &[1, 2, 3, 4])).collect();
    let seen = view(&all(4), groups);
    assert!(wanted(&seen).values().all(|wanted| wanted.voters == [1, 2, 3, 4].into()));
    assert_eq!(next_steps(&seen), []);
    let raised = View { spreads: true, ..seen };
    let removed = [(1, 4), (2, 3)];
    for (shard, node) in removed.map(|(shard, node)| (ShardId(shard), node)) {
        assert!(next_steps(&raised).contains(&Step::Remove { shard, node }));
    }
}

#[test]
fn fourth_node_takes_its_even_part_of_the_shards() {
    let groups = (0..=4).map(|shard| group(shard, 1, &[1, 2, 3])).collect();
    let seen = spread(&all(4), groups);
    let wanted = wanted(&seen);
    let gets = (1..=4).filter(|shard| wanted[&ShardId(*shard)].voters.contains(&4)).count();
    assert_eq!(gets, 3, "twelve copies on four nodes");
    assert_eq!(wanted[&ShardId::CATALOG].voters, [1, 2, 3, 4].into());
    // The catalog first, then one shard after the other.
    assert_eq!(next_steps(&seen), [Step::Add { shard: ShardId::CATALOG, node: 4 }]);
}

#[test]
fn new_member_of_a_moving_shard_votes_before_the_former_one_leaves() {
    let mut groups = vec![group(0, 1, &[1, 2, 3, 4])];
    groups.extend((1..=3).map(|shard| group(shard, 1, &[1, 2, 3])));
    let mut seen = spread(&all(4), groups);
    let [Step::Add { shard, node: 4 }] = next_steps(&seen)[..] else {
        panic!("{:?}", next_steps(&seen))
    };
    let place = shard.0 as usize;
    seen.groups[place].learners.insert(4);
    assert_eq!(next_steps(&seen), [], "it has not caught up");
    seen.groups[place].caught_up.insert(4);
    assert_eq!(next_steps(&seen), [Step::Promote { shard, node: 4 }]);
    seen.groups[place].learners.remove(&4);
    seen.groups[place].voters.insert(4);
    let removed = |seen: &View| {
        let steps = next_steps(seen);
        steps.into_iter().find(|step| matches!(step, Step::Remove { .. } | Step::HandOver { .. }))
    };
    let Some(Step::Remove { node, .. }) = removed(&seen) else { panic!("one goes") };
    assert!([2, 3].contains(&node), "not the leader, since another one has as many");
    // A staying node waits until enough others are up.
    let other = if node == 2 { 3 } else { 2 };
    seen.nodes.get_mut(&other).expect("it is there").is_live = false;
    assert_ne!(removed(&seen), Some(Step::Remove { shard, node }));
}

#[test]
fn leader_hands_over_before_it_releases_its_shard() {
    let groups = vec![
        group(0, 1, &[1, 2, 3, 4]),
        group(1, 1, &[1, 2, 3, 4]),
        group(2, 2, &[1, 2, 3]),
        group(3, 3, &[1, 3, 4]),
        group(4, 4, &[1, 2, 4]),
    ];
    let seen = spread(&all(4), groups);
    let hands_over = Step::HandOver { shard: ShardId(1), to: 2 };
    assert!(next_steps(&seen).contains(&hands_over), "{:?}", next_steps(&seen));
}

#[test]
fn catalog_has_five_voters_and_all_other_nodes_as_learners() {
    let mut seen = spread(&all(7), vec![group(0, 7, &[1, 2, 3, 4, 5, 6, 7])]);
    let catalog = wanted(&seen)[&ShardId::CATALOG].clone();
    assert_eq!((catalog.voters.len(), catalog.learners.len()), (NODES_JOINED_MAX, 2));
    assert!(catalog.voters.contains(&7), "its leader stays one");
    assert_eq!(next_steps(&seen), [Step::Demote { shard: ShardId::CATALOG, node: 5 }]);
    seen.groups[0] = group(0, 7, &[1, 2, 3, 4, 7]);
    seen.groups[0].learners = [5, 6].into();
    assert_eq!(next_steps(&seen), []);
    // One of the learners votes in place of a leaving voter.
    seen.nodes.get_mut(&2).expect("it is there").standing = LEAVING;
    let (shard, removed) = (ShardId::CATALOG, 2);
    assert_eq!(next_steps(&seen), [Step::Remove { shard, node: removed }]);
    seen.groups[0].voters.remove(&removed);
    let forgets = Step::Forget { node: removed };
    assert_eq!(next_steps(&seen), [forgets], "node 5 is to vote, and has not caught up");
    seen.groups[0].caught_up.insert(5);
    assert_eq!(next_steps(&seen), [Step::Promote { shard, node: 5 }, forgets]);
}

#[test]
fn replicas_of_a_shard_are_in_different_racks() {
    let told = racks(&[(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "c")]);
    let groups: Vec<Group> = (0..=6).map(|shard| group(shard, 1, &[1, 2, 3])).collect();
    let seen = View { racks: told.clone(), ..spread(&all(6), groups) };
    for shard in 1..=6 {
        let in_racks: BTreeSet<&String> =
            voters(&seen, shard).iter().map(|node| &told[node]).collect();
        assert_eq!(in_racks.len(), 3, "shard {shard}: {:?}", voters(&seen, shard));
    }
    // With two racks, in both.
    let told = racks(&[(1, "a"), (2, "a"), (3, "a"), (4, "b"), (5, "b")]);
    let groups: Vec<Group> = (0..=6).map(|shard| group(shard, 1, &[1, 2, 3])).collect();
    let seen = View { racks: told, ..spread(&all(5), groups) };
    for shard in 1..=6 {
        let has = voters(&seen, shard);
        assert!(has.contains(&4) || has.contains(&5), "shard {shard}: {has:?}");
    }
}

#[test]
fn replacement_gets_the_shards_of_the_replaced_node() {
    let mut groups = vec![group(0, 1, &[1, 2, 3, 4, 5])];
    groups.extend(
        [[1, 2, 3], [1, 2, 4], [2, 3, 4], [1, 3, 4]]
            .iter()
            .enumerate()
            .map(|(place, nodes)| group(place as u32 + 1, nodes[0], nodes)),
    );
    let mut nodes = all(5);
    nodes[2] = (3, NodeLifecycle::Leaving { replaced_by: Some(5) }, false);
    let seen = spread(&nodes, groups);
    assert_eq!([1, 3, 4].map(|shard| voters(&seen, shard)), [[1, 2, 5], [2, 4, 5], [1, 4, 5]]);
    assert_eq!(voters(&seen, 2), [1, 2, 4]);
}

#[test]
fn no_shard_moves_while_members_of_a_group_are_unknown() {
    let mut groups = vec![group(0, 1, &[1, 2, 3, 4])];
    groups.extend((1..=4).map(|shard| group(shard, 1, &[1, 2, 3])));
    groups[4].voters.clear();
    groups[4].leader = None;
    assert_eq!(next_steps(&spread(&all(4), groups)), []);
}

#[test]
fn node_may_leave_if_each_of_its_shards_has_a_majority() {
    let mut groups = vec![group(0, 1, &[1, 2, 3, 4, 5]), group(1, 1, &[1, 2, 3])];
    groups[0].learners = [6, 7].into();
    groups.push(group(2, 5, &[5, 6, 7]));
    let mut nodes = all(7);
    nodes[1] = (2, Drained, true);
    nodes[5] = (6, Active, false);
    let mut seen = spread(&nodes, groups);
    assert_eq!(may_leave(&seen, 6, None), Ok(()), "it is lost");
    seen.nodes.get_mut(&7).expect("it is there").is_live = false;
    let error = may_leave(&seen, 6, None).expect_err("shard 2 has no majority");
    let expected = RemovalObstacle::NoMajority {
        node: 6,
        shard: ShardId(2),
        voters: vec![5, 6, 7],
        live: vec![5],
    };
    assert_eq!(error, expected);
    // A shard that the node does not have is no obstacle.
    assert_eq!(may_leave(&seen, 2, None), Ok(()));
    assert_eq!(may_leave(&seen, 2, Some(4)), Ok(()));
    seen.groups[2].voters.clear();
    let error = may_leave(&seen, 2, None).expect_err("node 2 may be a voter of shard 2");
    assert_eq!(error, RemovalObstacle::UnknownMembers(ShardId(2)));
}

#[test]
fn any_start_leads_to_three_voters_a_shard_and_even_loads() {
    for (from, to) in [(3, 4), (3, 5), (5, 6), (3, 7), (7, 9), (5, 5), (4, 4)] {
        for shards in [1, 3, 7, 12] {
            for seed in 0..3 {
                let mut model = model(seed, from, shards);
                live(&mut model, to - from);
                reach_target(&mut model, &format!("{from} to {to}, {shards} shards, {seed}"));
            }
        }
    }
}

#[test]
fn additional_node_moves_few_shards() {
    for (nodes, shards) in [(3, 12), (5, 20), (7, 21)] {
        let mut model = model(1, nodes, shards);
        reach_target(&mut model, "founded");
        let before = model.groups.clone();
        live(&mut model, 1);
        reach_target(&mut model, "one more");
        let moved: usize = before
            .iter()
            .zip(&model.groups)
            .skip(1)
            .map(|(before, now)| now.voters.difference(&before.voters).count())
            .sum();
        let fair = shards as usize * REPLICAS / (nodes as usize + 1);
        assert!(moved <= fair + 1, "{nodes} nodes, {shards} shards: {moved} moved of {fair}");
    }
}

#[test]
fn each_shard_keeps_three_voters_over_drains_replacements_and_removals() {
    for seed in 0..5 {
        for nodes in [4, 5, 7] {
            let mut model = model(seed, nodes, 8);
            reach_target(&mut model, "founded");
            for node in [1, 3] {
                let with = model.next;
                live(&mut model, 1);
                model.nodes.get_mut(&node).expect("it is there").standing = Drained;
                let replaced_by = (node == 3).then_some(with);
                assert_eq!(may_leave(&model.view(), node, replaced_by), Ok(()));
                let standing = NodeLifecycle::Leaving { replaced_by };
                model.nodes.get_mut(&node).expect("it is there").standing = standing;
                reach_target(&mut model, &format!("{nodes} nodes, without {node}, {seed}"));
            }
            // Down to three nodes.
            while model.nodes.len() > 3 {
                let node = model.any_node();
                model.nodes.get_mut(&node).expect("it is there").standing = Drained;
                if may_leave(&model.view(), node, None).is_ok() {
                    model.nodes.get_mut(&node).expect("it is there").standing = LEAVING;
                }
                reach_target(&mut model, &format!("fewer nodes, {seed}"));
            }
        }
    }
}

#[test]
fn shards_keep_three_voters_over_a_year_of_membership_changes() {
    for seed in 0..9 {
        let mut model = model(seed, 5, 6);
        let mut was = model.groups.clone();
        if seed % 3 == 0 {
            model.racks = (1..40).map(|node| (node, format!("rack {}", node % 4))).collect();
        }
        for _day in 0..365 {
            if model.one_in(2) {
                model.inject_event();
            }
            for _ in 0..4 {
                round(&mut model, &mut was);
            }
        }
        assert!(model.next > 8, "seed {seed}: hardly anybody came");
        reach_target(&mut model, &format!("seed {seed}"));
    }
}

#[test]
fn pinned_shard_stays_on_its_nodes_and_other_shards_are_balanced() {
    for seed in 0..9 {
        let mut model = model(seed, 5, 8);
        let put = BTreeSet::from([1, 4, 5]);
        model.placed = [2, 3].into_iter().map(|shard| (ShardId(shard), put.clone())).collect();
        reach_target(&mut model, &format!("two are put somewhere, {seed}"));
        assert!([2, 3].into_iter().all(|shard| model.groups[shard].voters == put), "seed {seed}");
        // The cluster replaces a leaving node of a pin.
        model.nodes.get_mut(&4).expect("it is there").standing = Drained;
        assert_eq!(may_leave(&model.view(), 4, None), Ok(()));
        model.nodes.get_mut(&4).expect("it is there").standing = LEAVING;
        reach_target(&mut model, &format!("one of them leaves, {seed}"));
        let rest = BTreeSet::from([1, 5]);
        assert!([2, 3].into_iter().all(|shard| model.groups[shard].voters.is_superset(&rest)));
        model.placed.clear();
        reach_target(&mut model, &format!("the cluster places all again, {seed}"));
    }
}

/// The largest permitted cluster.
#[test]
fn plan_for_64_nodes_and_256_shards_takes_under_ten_seconds() {
    let founders = [1, 2, 3];
    let groups = (0..=256).map(|shard| group(shard, 1 + u64::from(shard) % 3, &founders));
    let mut view = spread(&all(64), groups.collect());
    let catalog = &mut view.groups[0];
    catalog.learners = (4..=64).collect();
    catalog.caught_up = (1..=64).collect();
    let begun = world::Instant::now();
    let then = wanted(&view);
    let took = begun.elapsed();
    println!("planned in {took:?}");
    let mut loads: BTreeMap<u64, usize> = BTreeMap::new();
    for (shard, wanted) in then.iter().filter(|(shard, _)| **shard != ShardId::CATALOG) {
        assert_eq!(wanted.voters.len(), REPLICAS, "{shard}");
        wanted.voters.iter().for_each(|node| *loads.entry(*node).or_default() += 1);
    }
    assert!((1..=64).all(|node| loads[&node] == 12), "{loads:?}");
    // Unoptimized, and concurrently with other tests.
    assert!(took.as_secs() < 10, "{took:?}");
}

#[test]
fn no_shard_moves_before_all_founders_are_registered() {
    let groups = vec![group(0, 1, &[1, 2, 3, 4]), group(1, 2, &[2, 3, 4]), group(2, 3, &[1, 3, 4])];
    for known in 1..4 {
        assert_eq!(next_steps(&spread(&all(known), groups.clone())), [], "{known} of four");
    }
    assert_eq!(next_steps(&spread(&all(4), groups)), []);
}

/// A change begun by the former leader took its vote while it was elected.
#[test]
fn leader_without_a_vote_regains_it_or_hands_over() {
    let led = Group { learners: BTreeSet::from([2]), ..group(1, 2, &[1, 4, 5]) };
    let groups = || vec![group(0, 1, &[1, 2, 3, 4, 5]), led.clone(), group(2, 2, &[1, 2, 3])];
    let steps = next_steps(&spread(&all(5), groups()));
    assert!(steps.contains(&Step::Promote { shard: ShardId(1), node: 2 }), "{steps:?}");
    let mut nodes = all(5);
    nodes[1].1 = LEAVING;
    let steps = next_steps(&spread(&nodes, groups()));
    assert!(steps.contains(&Step::HandOver { shard: ShardId(1), to: 1 }), "{steps:?}");
}
