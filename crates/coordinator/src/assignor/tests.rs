use std::collections::{BTreeMap, BTreeSet};

use crate::{Text, text};
use proptest::prelude::*;
use uuid::Uuid;

use super::{Assignor, Subscriber};
use crate::assignment::Assignment;

/// A group as an assignor sees it.
#[derive(Clone, Debug, Default)]
struct Group {
    topics: BTreeMap<Uuid, u32>,
    members: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    id: Text,
    instance_id: Option<Text>,
    topics: BTreeSet<Uuid>,
    target: Assignment,
}

fn topic(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn member(id: &str, topics: &[u128]) -> Member {
    Member {
        id: text(id),
        instance_id: None,
        topics: topics.iter().map(|&number| topic(number)).collect(),
        target: Assignment::default(),
    }
}

impl Group {
    fn new(topics: &[(u128, u32)], members: Vec<Member>) -> Self {
        Self { topics: topics.iter().map(|&(id, count)| (topic(id), count)).collect(), members }
    }

    /// Reassigns, based on the previous targets.
    fn assign(&mut self, assignor: Assignor) {
        let subscribers: Vec<_> = self
            .members
            .iter()
            .map(|member| Subscriber {
                id: &member.id,
                instance_id: member.instance_id.as_ref(),
                topics: &member.topics,
                target: &member.target,
            })
            .collect();
        let assignments = assignor.assign(&subscribers, &self.topics);
        assert_eq!(assignments.len(), self.members.len());
        for (member, assignment) in self.members.iter_mut().zip(assignments) {
            member.target = assignment;
        }
    }

    fn sizes(&self) -> Vec<usize> {
        self.members.iter().map(|member| member.target.len()).collect()
    }

    fn target(&self, index: usize) -> Vec<(u128, i32)> {
        let target = self.members[index].target.iter();
        target.map(|(topic, partition)| (topic.as_u128(), partition)).collect()
    }

    /// Checks that every partition of a subscribed topic has one subscriber as its owner, and that nothing else
    /// is owned.
    fn check_complete(&self) {
        let mut owned = BTreeSet::new();
        for member in &self.members {
            for (topic, partition) in member.target.iter() {
                assert!(member.topics.contains(&topic), "{} does not want {topic}", member.id);
                assert!(owned.insert((topic, partition)), "{topic}-{partition} has two owners");
            }
        }
        let wanted: BTreeSet<_> = self.members.iter().flat_map(|member| &member.topics).collect();
        let all = self.topics.iter().filter(|(topic, _)| wanted.contains(topic));
        let all: BTreeSet<_> =
            all.flat_map(|(&topic, &count)| (0..count as i32).map(move |p| (topic, p))).collect();
        assert_eq!(owned, all);
    }

    /// Checks that no single move of a partition between two members would make them more balanced.
    fn check_balanced(&self) {
        let sizes = self.sizes();
        for (giver, from) in self.members.iter().enumerate() {
            for (taker, to) in self.members.iter().enumerate() {
                let shared = from.target.topics().any(|(topic, _)| to.topics.contains(&topic));
                if shared {
                    assert!(sizes[giver] <= sizes[taker] + 1, "{sizes:?}");
                }
            }
        }
    }

    fn moves_since(&self, before: &Group) -> usize {
        let kept = |member: &Member| {
            let old = before.members.iter().find(|old| old.id == member.id);
            old.map_or(0, |old| {
                let still = member.target.iter().filter(|(t, p)| old.target.contains(*t, *p));
                still.count()
            })
        };
        let total: usize = self.sizes().iter().sum();
        total - self.members.iter().map(kept).sum::<usize>()
    }
}

#[test]
fn range_gives_the_same_partitions_of_equal_topics_to_the_same_member() {
    let members = vec![member("b", &[1, 2]), member("a", &[1, 2])];
    let mut group = Group::new(&[(1, 3), (2, 3)], members);
    group.assign(Assignor::Range);
    assert_eq!(group.target(1), [(1, 0), (1, 1), (2, 0), (2, 1)]);
    assert_eq!(group.target(0), [(1, 2), (2, 2)]);
}

#[test]
fn range_puts_static_members_first_by_their_instance() {
    let mut members = vec![member("a", &[1]), member("z", &[1]), member("y", &[1])];
    members[1].instance_id = Some(text("i1"));
    members[2].instance_id = Some(text("i2"));
    let mut group = Group::new(&[(1, 3)], members);
    group.assign(Assignor::Range);
    let first = |index| group.target(index)[0].1;
    assert_eq!([first(1), first(2), first(0)], [0, 1, 2]);
}

#[test]
fn uniform_moves_only_the_partitions_of_a_new_member() {
    let mut group = Group::new(&[(1, 6)], vec![member("a", &[1]), member("b", &[1])]);
    group.assign(Assignor::Uniform);
    assert_eq!(group.sizes(), [3, 3]);
    let before = group.clone();
    group.members.push(member("c", &[1]));
    group.assign(Assignor::Uniform);
    assert_eq!(group.sizes(), [2, 2, 2]);
    assert_eq!(group.moves_since(&before), 2);
}

#[test]
fn uniform_is_stable_without_changes() {
    let members = vec![member("a", &[1, 2]), member("b", &[2]), member("c", &[1, 2, 3])];
    let mut group = Group::new(&[(1, 7), (2, 5), (3, 4)], members);
    group.assign(Assignor::Uniform);
    let before = group.clone();
    group.assign(Assignor::Uniform);
    assert_eq!(group.moves_since(&before), 0);
}

#[test]
fn uniform_balances_a_shared_topic_against_a_members_own_topic() {
    let mut group = Group::new(&[(1, 4), (2, 4)], vec![member("a", &[1, 2]), member("b", &[1])]);
    group.assign(Assignor::Uniform);
    assert_eq!(group.sizes(), [4, 4]);
}

#[test]
fn uniform_assigns_a_hundred_thousand_partitions_to_ten_thousand_members() {
    let topics: Vec<_> = (1..=10).map(|number| (number, 10_000)).collect();
    let numbers: Vec<_> = (1..=10).collect();
    let members = (0..10_000).map(|index| member(&format!("m{index}"), &numbers)).collect();
    let mut group = Group::new(&topics, members);
    group.assign(Assignor::Uniform);
    assert!(group.sizes().iter().all(|&size| size == 10));
    let before = group.clone();
    group.members.pop();
    group.assign(Assignor::Uniform);
    assert_eq!(group.moves_since(&before), 10);
}

/// A change of a group between two assignments.
#[derive(Clone, Debug)]
enum Change {
    Join { topics: BTreeSet<u8> },
    Leave(prop::sample::Index),
    Subscribe(prop::sample::Index, BTreeSet<u8>),
    Grow(u8, u32),
    Delete(u8),
}

fn some_topics() -> impl Strategy<Value = BTreeSet<u8>> {
    prop::collection::btree_set(0u8..6, 0..5)
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => some_topics().prop_map(|topics| Change::Join { topics }),
        1 => any::<prop::sample::Index>().prop_map(Change::Leave),
        1 => (any::<prop::sample::Index>(), some_topics())
            .prop_map(|(index, topics)| Change::Subscribe(index, topics)),
        2 => (0u8..6, 1u32..12).prop_map(|(topic, count)| Change::Grow(topic, count)),
        1 => (0u8..6).prop_map(Change::Delete),
    ]
}

fn apply(group: &mut Group, change: Change, joined: &mut usize) {
    let existing = |topics: BTreeSet<u8>| topics.into_iter().map(|t| topic(t.into())).collect();
    match change {
        Change::Join { topics } => {
            *joined += 1;
            let mut new = member(&format!("m{}", *joined * 7 % 10), &[]);
            new.id = text(&format!("{}-{joined}", new.id));
            new.topics = existing(topics);
            group.members.push(new);
        }
        Change::Leave(index) if !group.members.is_empty() => {
            group.members.remove(index.index(group.members.len()));
        }
        Change::Subscribe(index, topics) if !group.members.is_empty() => {
            let index = index.index(group.members.len());
            group.members[index].topics = existing(topics);
        }
        Change::Grow(number, count) => {
            let partitions = group.topics.entry(topic(number.into())).or_default();
            *partitions += count;
        }
        Change::Delete(number) => {
            group.topics.remove(&topic(number.into()));
        }
        Change::Leave(_) | Change::Subscribe(..) => {}
    }
    // The group drops topics that do not exist before it calls an assignor.
    for member in &mut group.members {
        member.topics.retain(|topic| group.topics.contains_key(topic));
    }
}

proptest! {
    #[test]
    fn every_subscribed_partition_has_one_subscriber_as_owner(
        changes in prop::collection::vec(change(), 1..40),
        assignor in prop::sample::select(&Assignor::ALL[..]),
    ) {
        let (mut group, mut joined) = (Group::default(), 0);
        for change in changes {
            apply(&mut group, change, &mut joined);
            group.assign(assignor);
            group.check_complete();
            if assignor == Assignor::Uniform {
                group.check_balanced();
            }
        }
    }

    #[test]
    fn uniform_moves_no_more_than_balance_requires(
        sizes in prop::collection::vec(1u32..10, 1..5),
        members in 1usize..8,
        leaver in any::<prop::sample::Index>(),
    ) {
        let topics: Vec<_> = sizes.iter().enumerate().map(|(i, &n)| (i as u128, n)).collect();
        let wanted: Vec<_> = topics.iter().map(|(id, _)| *id).collect();
        let mut group = Group::new(&topics, Vec::new());
        for index in 0..members {
            let before = group.clone();
            group.members.push(member(&format!("m{index}"), &wanted));
            group.assign(Assignor::Uniform);
            let all: usize = sizes.iter().map(|&n| n as usize).sum();
            // Exactly the newcomer's partitions have moved.
            prop_assert_eq!(group.moves_since(&before), group.members[index].target.len());
            prop_assert!(group.members[index].target.len() >= all / (index + 1));
        }
        let before = group.clone();
        let gone = group.members.remove(leaver.index(members));
        group.assign(Assignor::Uniform);
        let expected = if members == 1 { 0 } else { gone.target.len() };
        prop_assert_eq!(group.moves_since(&before), expected);
    }

    #[test]
    fn assignment_does_not_depend_on_the_order_of_members(
        wants in prop::collection::vec(some_topics(), 1..8),
        assignor in prop::sample::select(&Assignor::ALL[..]),
    ) {
        let mut group = Group::new(&[(0, 3), (1, 5), (2, 1), (3, 8), (4, 2), (5, 13)], Vec::new());
        for (index, topics) in wants.into_iter().enumerate() {
            let numbers: Vec<_> = topics.into_iter().map(u128::from).collect();
            group.members.push(member(&format!("m{index}"), &numbers));
        }
        let mut reversed = group.clone();
        reversed.members.reverse();
        group.assign(assignor);
        reversed.assign(assignor);
        reversed.members.reverse();
        for (one, other) in group.members.iter().zip(&reversed.members) {
            prop_assert_eq!(&one.target, &other.target);
        }
    }
}
