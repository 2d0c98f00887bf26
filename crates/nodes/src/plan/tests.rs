//! The planner against a model of a cluster: nodes join, leave, die and return, and leaders make steps, lose leadership
//! halfway, and see a partial state.

use super::leaving::RemovalObstacle;
use super::*;

const SHARDS: u32 = 4;

pub(super) fn group(shard: u32, leader: u64, voters: &[u64]) -> Group {
    let voters: BTreeSet<u64> = voters.iter().copied().collect();
    Group {
        shard: ShardId(shard),
        leader: Some(leader),
        caught_up: voters.clone(),
        voters,
        learners: BTreeSet::new(),
        is_changing: false,
    }
}

pub(super) fn view(nodes: &[(u64, NodeLifecycle, bool)], groups: Vec<Group>) -> View {
    let node = |(id, standing, is_live): &(u64, NodeLifecycle, bool)| {
        (*id, Node { standing: *standing, is_live: *is_live })
    };
    View { nodes: nodes.iter().map(node).collect(), groups, ..View::default() }
}

pub(super) const LEAVING: NodeLifecycle = NodeLifecycle::Leaving { replaced_by: None };
use NodeLifecycle::{Active, Drained};

#[test]
fn joining_node_gets_shards_one_by_one_and_votes_once_caught_up() {
    let nodes = [(1, Active, true), (2, Active, true), (3, Active, true), (4, Active, true)];
    let mut view = view(&nodes, vec![group(0, 1, &[1, 2, 3]), group(1, 2, &[1, 2, 3])]);
    let (catalog, rows) = (ShardId(0), ShardId(1));
    assert_eq!(next_steps(&view), [Step::Add { shard: catalog, node: 4 }]);
    view.groups[0].learners.insert(4);
    assert_eq!(next_steps(&view), [], "it has not caught up");
    view.groups[0].caught_up.insert(4);
    assert_eq!(next_steps(&view), [Step::Promote { shard: catalog, node: 4 }]);
    view.groups[0].learners.remove(&4);
    view.groups[0].voters.insert(4);
    assert_eq!(next_steps(&view), [Step::Add { shard: rows, node: 4 }]);
    view.nodes.get_mut(&4).expect("it is there").is_live = false;
    assert_eq!(next_steps(&view), [], "nobody could send it anything");
}

#[test]
fn leaving_node_releases_the_catalog_last_and_is_then_forgotten() {
    let nodes = [(1, Active, true), (2, Active, true), (3, Active, true), (4, LEAVING, true)];
    let all = [1, 2, 3, 4];
    let mut view = view(&nodes, vec![group(0, 1, &all), group(1, 2, &all), group(2, 4, &all)]);
    let shard = |number| ShardId(number);
    assert_eq!(next_steps(&view), [Step::HandOver { shard: shard(2), to: 1 }]);
    view.groups[2].leader = Some(1);
    for number in [2, 1, 0] {
        assert_eq!(next_steps(&view), [Step::Remove { shard: shard(number), node: 4 }]);
        view.groups[number as usize].voters.remove(&4);
    }
    assert_eq!(next_steps(&view), [Step::Forget { node: 4 }]);
}

#[test]
fn replaced_node_leaves_once_its_replacement_votes() {
    let replaced = NodeLifecycle::Leaving { replaced_by: Some(4) };
    let nodes = [(1, Active, true), (2, Active, true), (3, replaced, false), (4, Active, true)];
    let mut view = view(&nodes, vec![group(0, 1, &[1, 2, 3])]);
    let shard = ShardId(0);
    assert_eq!(next_steps(&view), [Step::Add { shard, node: 4 }]);
    view.groups[0].learners.insert(4);
    view.groups[0].caught_up.insert(4);
    assert_eq!(next_steps(&view), [Step::Promote { shard, node: 4 }]);
    view.groups[0].learners.remove(&4);
    view.groups[0].voters.insert(4);
    assert_eq!(next_steps(&view), [Step::Remove { shard, node: 3 }]);
}

#[test]
fn node_leaves_a_group_of_three_only_once_a_new_member_votes() {
    let nodes = [(1, Active, true), (2, Active, true), (3, LEAVING, true), (4, Active, true)];
    let mut view = view(&nodes, vec![group(0, 1, &[1, 2, 4]), group(1, 1, &[1, 2, 3])]);
    let shard = ShardId(1);
    assert_eq!(next_steps(&view), [Step::Add { shard, node: 4 }]);
    view.groups[1].learners.insert(4);
    assert_eq!(next_steps(&view), []);
    view.groups[1].learners.remove(&4);
    view.groups[1].voters.insert(4);
    assert_eq!(next_steps(&view), [Step::Remove { shard, node: 3 }]);
}

#[test]
fn unknown_member_stays_and_removed_member_leaves() {
    let nodes = [(1, Active, true), (2, Active, true), (3, Active, true)];
    let mut view = view(&nodes, vec![group(1, 1, &[1, 2, 3, 4])]);
    assert_eq!(next_steps(&view), [], "node 4 joined a moment ago");
    view.removed.insert(4);
    assert_eq!(next_steps(&view), [Step::Remove { shard: ShardId(1), node: 4 }]);
}

#[test]
fn node_without_members_of_a_group_forgets_no_node() {
    let nodes = [(1, Active, true), (2, Active, true), (3, LEAVING, false), (4, Active, true)];
    let mut view = view(&nodes, vec![group(0, 4, &[1, 2, 4]), group(1, 1, &[])]);
    assert_eq!(next_steps(&view), []);
    view.groups[1].voters = BTreeSet::from([1, 2, 4]);
    assert_eq!(next_steps(&view), [Step::Forget { node: 3 }]);
}

#[test]
fn group_without_leader_or_majority_or_in_change_makes_no_step() {
    let nodes = [(1, Active, true), (2, Active, true), (3, LEAVING, false), (4, Active, true)];
    let mut view = view(&nodes, vec![group(1, 1, &[1, 2, 3, 4])]);
    assert_eq!(next_steps(&view), [Step::Remove { shard: ShardId(1), node: 3 }]);
    view.groups[0].is_changing = true;
    assert_eq!(next_steps(&view), []);
    view.groups[0].is_changing = false;
    view.groups[0].leader = None;
    assert_eq!(next_steps(&view), []);
    view.groups[0].leader = Some(1);
    view.nodes.get_mut(&2).expect("it is there").is_live = false;
    assert_eq!(next_steps(&view), []);
}

#[test]
fn removal_that_costs_a_majority_is_rejected_with_the_shard() {
    let nodes = [
        (1, Active, true),
        (2, Drained, true),
        (3, Active, false),
        (4, Active, true),
        (5, Active, false),
    ];
    let view = view(&nodes, vec![group(0, 1, &[1, 2, 3, 4, 5]), group(7, 1, &[1, 2, 3, 4, 5])]);
    let error = may_leave(&view, 2, None).expect_err("refused");
    let expected = RemovalObstacle::NoMajority {
        node: 2,
        shard: ShardId(0),
        voters: vec![1, 3, 4, 5],
        live: vec![1, 4],
    };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("shard 0"), "{error}");
    assert_eq!(may_leave(&view, 3, None), Ok(()));
    assert_eq!(may_leave(&view, 1, None), Err(RemovalObstacle::Active(1)));
    assert_eq!(may_leave(&view, 9, None), Err(RemovalObstacle::Unknown(9)));
}

#[test]
fn dead_node_of_three_is_replaced_but_not_removed() {
    let nodes = [(1, Active, true), (2, Active, true), (3, Active, false)];
    let three = view(&nodes, vec![group(0, 1, &[1, 2, 3])]);
    assert_eq!(may_leave(&three, 3, None), Err(RemovalObstacle::TooFew { node: 3, left: 2 }));
    assert_eq!(may_leave(&three, 3, Some(3)), Err(RemovalObstacle::ByItself(3)));
    let why = "is not in the cluster: start it with `--join`, which says its number";
    let unknown = RemovalObstacle::NoReplacement { node: 3, with: 4, why };
    assert_eq!(may_leave(&three, 3, Some(4)), Err(unknown));
    let mut four = three;
    four.nodes.insert(4, Node { standing: Active, is_live: true });
    assert_eq!(may_leave(&four, 3, Some(4)), Ok(()));
    four.nodes.insert(4, Node { standing: Active, is_live: false });
    assert!(matches!(may_leave(&four, 3, Some(4)), Err(RemovalObstacle::NoReplacement { .. })));
}

/// The true state of a cluster, of which the planner sees a part.
pub(super) struct Model {
    pub(super) nodes: BTreeMap<u64, Node>,
    pub(super) groups: Vec<Group>,
    pub(super) next: u64,
    pub(super) nodes_max: usize,
    pub(super) spreads: bool,
    pub(super) racks: BTreeMap<u64, String>,
    pub(super) placed: BTreeMap<ShardId, BTreeSet<u64>>,
    pub(super) seed: u64,
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        let node = |id| (id, Node { standing: Active, is_live: true });
        Self {
            nodes: (1..=3).map(node).collect(),
            groups: (0..SHARDS).map(|shard| group(shard, 1, &[1, 2, 3])).collect(),
            next: 4,
            nodes_max: 5,
            spreads: false,
            racks: BTreeMap::new(),
            placed: BTreeMap::new(),
            seed,
        }
    }

    /// SplitMix64.
    pub(super) fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ self.seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        (self.random() % count.max(1) as u64) as usize
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(super) fn any_node(&mut self) -> u64 {
        let place = self.below(self.nodes.len());
        *self.nodes.keys().nth(place).expect("there are some")
    }

    pub(super) fn view(&self) -> View {
        let (nodes, groups) = (self.nodes.clone(), self.groups.clone());
        let (racks, spreads, placed) = (self.racks.clone(), self.spreads, self.placed.clone());
        View { nodes, groups, racks, spreads, placed, ..View::default() }
    }

    /// An action of an operator, or a failure.
    pub(super) fn inject_event(&mut self) {
        let node = self.any_node();
        let (view, what) = (self.view(), self.below(8));
        let found = self.nodes.get_mut(&node).expect("it is there");
        match what {
            0 if staying(&view.nodes).len() < self.nodes_max => {
                let standing = Active;
                self.nodes.insert(self.next, Node { standing, is_live: true });
                self.next += 1;
            }
            1 => found.standing = Drained,
            2 => found.standing = Active,
            3 if may_leave(&view, node, None).is_ok() => {
                found.standing = NodeLifecycle::Leaving { replaced_by: None };
            }
            4 => {
                let with = self.any_node();
                if may_leave(&view, node, Some(with)).is_ok() {
                    let standing = NodeLifecycle::Leaving { replaced_by: Some(with) };
                    self.nodes.get_mut(&node).expect("it is there").standing = standing;
                }
            }
            // Only losses that the cluster tolerates.
            5 => {
                found.is_live = false;
                let survives = |group: &Group| self.view().has_majority(&group.voters);
                if !self.groups.iter().all(survives) {
                    self.nodes.get_mut(&node).expect("it is there").is_live = true;
                }
            }
            _ => found.is_live = true,
        }
    }

    /// Leaders change, and members catch up.
    pub(super) fn time_passes(&mut self) {
        let view = self.view();
        for place in 0..self.groups.len() {
            let live: Vec<u64> =
                self.groups[place].voters.iter().copied().filter(|it| view.is_live(*it)).collect();
            let led = self.groups[place].leader.is_some_and(|leader| live.contains(&leader));
            if !led || self.one_in(10) {
                let leader = self.below(live.len() + 1);
                self.groups[place].leader = live.get(leader).copied();
            }
            let caught_up = !self.one_in(3);
            let group = &mut self.groups[place];
            if caught_up {
                let live = group.learners.iter().copied().filter(|it| view.is_live(*it));
                group.caught_up.extend(live);
            }
            group.is_changing = false;
        }
    }

    /// Executes a step as a leader would, unless it lost leadership or fails.
    pub(super) fn make(&mut self, step: Step) {
        let view = self.view();
        let shard = step.shard();
        if let Step::Forget { node } = step {
            let has =
                |group: &Group| group.voters.contains(&node) || group.learners.contains(&node);
            assert!(!self.groups.iter().any(has), "{step} while a group has it");
            self.nodes.remove(&node);
            return;
        }
        let interrupted = self.one_in(5);
        let group = self.groups.iter_mut().find(|group| group.shard == shard).expect("a group");
        assert!(!group.is_changing, "{step} during another change");
        assert!(view.has_majority(&group.voters), "{step} without a majority to decide it");
        let before = group.voters.clone();
        match step {
            Step::Add { node, .. } => {
                group.learners.insert(node);
                group.caught_up.remove(&node);
            }
            Step::Promote { node, .. } => {
                assert!(group.learners.contains(&node) && group.caught_up.contains(&node));
                group.learners.remove(&node);
                group.voters.insert(node);
            }
            Step::Demote { node, .. } => {
                assert_ne!(group.leader, Some(node), "a leader gives up its vote");
                assert!(group.voters.remove(&node));
                group.learners.insert(node);
            }
            Step::HandOver { to, .. } => {
                assert!(group.voters.contains(&to) && view.is_live(to));
                group.leader = Some(to);
            }
            Step::Remove { node, .. } => {
                assert_ne!(group.leader, Some(node), "a leader removes itself");
                let voted = group.voters.remove(&node);
                group.learners.remove(&node);
                let safe = staying(&view.nodes).len().min(NODES_SAFE_MIN);
                assert!(!voted || group.voters.len() >= safe, "{step} leaves {group:?}");
            }
            Step::Forget { .. } => {}
        }
        assert!(!group.voters.is_empty());
        assert!(view.has_majority(&group.voters), "{step} leaves no majority: {group:?}");
        let changed = before.symmetric_difference(&group.voters).count();
        assert!(changed <= 1, "{step} changes {changed} voters");
        if interrupted && changed == 1 {
            // The next leader has to complete the change.
            group.is_changing = true;
            group.leader = None;
        }
    }

    fn round(&mut self) {
        let steps = next_steps(&self.view());
        let mut shards = BTreeSet::new();
        for step in &steps {
            if !matches!(step, Step::Forget { .. }) {
                assert!(shards.insert(step.shard()), "two changes of a shard: {steps:?}");
            }
        }
        for step in steps {
            if !self.one_in(3) {
                self.make(step);
            }
        }
        self.time_passes();
    }

    fn is_at_target(&self) -> bool {
        let wanted = staying(&self.nodes);
        let has_all = |group: &Group| group.voters == wanted && group.learners.is_empty();
        self.groups.iter().all(has_all) && wanted.len() == self.nodes.len()
    }
}

#[test]
fn plan_converges_after_a_year_of_membership_changes() {
    for seed in 0..40 {
        let mut model = Model::new(seed);
        let mut came = 0;
        for _day in 0..365 {
            if model.one_in(2) {
                model.inject_event();
            }
            for _ in 0..4 {
                model.round();
            }
            came = came.max(model.next);
        }
        assert!(came > 8, "seed {seed}: hardly anybody came");
        // Dead nodes return, and no more events happen.
        for node in model.nodes.values_mut() {
            node.is_live = true;
        }
        let mut rounds = 0;
        while !model.is_at_target() {
            rounds += 1;
            assert!(rounds < 2_000, "seed {seed}: {:?} {:?}", model.nodes, model.groups);
            model.round();
        }
    }
}
