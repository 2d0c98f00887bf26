//! The assignor of share groups: a partition may have several members, and a member several partitions (KIP-932).
//!
//! Every partition gets a member, and every member a partition: with more members than partitions, partitions are
//! shared. Balance comes first, then stickiness. Topics with the same subscribers are divided together.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{Subscriber, topics_by_members};
use crate::assignment::Assignment;

/// Name of the assignor in ShareGroupDescribe.
pub const NAME: &str = "simple";

/// Returns one assignment for each subscriber, in their order.
pub fn assign(subscribers: &[Subscriber<'_>], partitions: &BTreeMap<Uuid, u32>) -> Vec<Assignment> {
    let mut loads = vec![0; subscribers.len()];
    let mut assignments = vec![Assignment::default(); subscribers.len()];
    for pool in &mut pools(subscribers, partitions) {
        pool.keep(subscribers, &mut loads);
        pool.hand_out(&mut loads);
        for (&member, had) in pool.members.iter().zip(&pool.had_by) {
            assignments[member].extend(had.iter().map(|&place| pool.partitions[place]));
        }
    }
    assignments
}

/// The partitions of all topics with the same subscribers.
struct Pool {
    /// Sorted by id.
    members: Vec<usize>,
    partitions: Vec<(Uuid, i32)>,
    /// Number of members that each partition needs.
    sharing: usize,
    /// Number of members that each partition has.
    sharers: Vec<usize>,
    /// Partitions of each member: places in `partitions`.
    had_by: Vec<BTreeSet<usize>>,
}

fn pools(subscribers: &[Subscriber<'_>], partitions: &BTreeMap<Uuid, u32>) -> Vec<Pool> {
    let mut pools: Vec<_> = topics_by_members(subscribers)
        .into_iter()
        .map(|(members, topics)| Pool::new(members, &topics, partitions))
        .filter(|pool| !pool.partitions.is_empty())
        .collect();
    // The most constrained first: those with the fewest members.
    pools.sort_by(|a, b| (a.members.len(), &a.partitions).cmp(&(b.members.len(), &b.partitions)));
    pools
}

impl Pool {
    fn new(members: Vec<usize>, topics: &[Uuid], counts: &BTreeMap<Uuid, u32>) -> Self {
        let of_topic = |&topic: &Uuid| {
            let count = counts.get(&topic).copied().unwrap_or(0);
            (0..count as i32).map(move |partition| (topic, partition))
        };
        let partitions: Vec<_> = topics.iter().flat_map(of_topic).collect();
        let sharing = members.len().div_ceil(partitions.len().max(1));
        let sharers = vec![0; partitions.len()];
        let had_by = vec![BTreeSet::new(); members.len()];
        Self { members, partitions, sharing, sharers, had_by }
    }

    fn give(&mut self, place: usize, partition: usize, loads: &mut [usize]) {
        if self.had_by[place].insert(partition) {
            self.sharers[partition] += 1;
            loads[self.members[place]] += 1;
        }
    }

    /// Members keep their previous partitions, as far as their fair share allows.
    fn keep(&mut self, subscribers: &[Subscriber<'_>], loads: &mut [usize]) {
        let slots = self.sharing * self.partitions.len();
        let fair = slots / self.members.len();
        let mut longer = slots % self.members.len();
        let places: BTreeMap<_, _> = self
            .partitions
            .iter()
            .enumerate()
            .map(|(place, &partition)| (partition, place))
            .collect();
        for allowed in [fair, fair + 1] {
            for place in 0..self.members.len() {
                if allowed > fair && longer == 0 {
                    return;
                }
                let before = self.had_by[place].len();
                for partition in subscribers[self.members[place]].target.iter() {
                    let Some(&partition) = places.get(&partition) else { continue };
                    let has_room = self.had_by[place].len() < allowed;
                    if has_room && self.sharers[partition] < self.sharing {
                        self.give(place, partition, loads);
                    }
                }
                if allowed > fair && self.had_by[place].len() > before {
                    longer -= 1;
                }
            }
        }
    }

    /// Gives the least shared partitions to the least loaded members, until every partition has all its members.
    fn hand_out(&mut self, loads: &mut [usize]) {
        let mut line: BTreeSet<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(place, &member)| (loads[member], place))
            .collect();
        let mut short: BTreeSet<_> = self
            .sharers
            .iter()
            .enumerate()
            .filter(|(_, sharers)| **sharers < self.sharing)
            .map(|(partition, &sharers)| (sharers, partition))
            .collect();
        while !short.is_empty() {
            let Some((load, place)) = line.pop_first() else { return };
            let lacks = |(_, partition): &&(usize, usize)| !self.had_by[place].contains(partition);
            // A member that already has all remaining partitions drops out.
            let Some(&(sharers, partition)) = short.iter().find(lacks) else { continue };
            short.remove(&(sharers, partition));
            self.give(place, partition, loads);
            if sharers + 1 < self.sharing {
                short.insert((sharers + 1, partition));
            }
            line.insert((load + 1, place));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Text;
    use proptest::prelude::*;

    use super::*;
    use crate::text;

    /// Members by id, with their topics and their assignments.
    #[derive(Clone, Debug, Default)]
    struct Group {
        topics: BTreeMap<Uuid, u32>,
        members: Vec<(Text, BTreeSet<Uuid>, Assignment)>,
    }

    fn topic(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    impl Group {
        fn new(topics: &[(u128, u32)], members: usize) -> Self {
            let counts = topics.iter().map(|&(id, count)| (topic(id), count)).collect();
            let mut group = Self { topics: counts, members: Vec::new() };
            (0..members)
                .for_each(|_| group.join(&topics.iter().map(|(id, _)| *id).collect::<Vec<_>>()));
            group.assign();
            group
        }

        fn join(&mut self, topics: &[u128]) {
            let id = text(&format!("member-{:03}", self.members.len()));
            let topics = topics.iter().map(|&number| topic(number)).collect();
            self.members.push((id, topics, Assignment::default()));
        }

        fn assign(&mut self) {
            let subscribers: Vec<_> = self
                .members
                .iter()
                .map(|(id, topics, target)| Subscriber { id, instance_id: None, topics, target })
                .collect();
            let assignments = assign(&subscribers, &self.topics);
            for (member, assignment) in self.members.iter_mut().zip(assignments) {
                member.2 = assignment;
            }
            self.check();
        }

        fn sizes(&self) -> Vec<usize> {
            self.members.iter().map(|(_, _, target)| target.len()).collect()
        }

        fn sharers(&self) -> BTreeMap<(Uuid, i32), usize> {
            let mut sharers = BTreeMap::new();
            for partition in self.members.iter().flat_map(|(_, _, target)| target.iter()) {
                *sharers.entry(partition).or_default() += 1;
            }
            sharers
        }

        /// Checks that every partition of a subscribed topic has a subscriber as its member.
        fn check(&self) {
            let sharers = self.sharers();
            for (id, topics, target) in &self.members {
                assert!(target.topics().all(|(topic, _)| topics.contains(&topic)), "{id}");
                for topic in topics {
                    for partition in 0..self.topics.get(topic).copied().unwrap_or(0) as i32 {
                        assert!(sharers.contains_key(&(*topic, partition)), "{topic}-{partition}");
                    }
                }
            }
        }
    }

    #[test]
    fn with_fewer_members_than_partitions_each_partition_has_one() {
        let group = Group::new(&[(1, 5), (2, 2)], 3);
        assert_eq!(group.sizes(), [3, 2, 2]);
        assert!(group.sharers().values().all(|sharers| *sharers == 1));
    }

    #[test]
    fn with_more_members_than_partitions_each_member_has_one() {
        let group = Group::new(&[(1, 2)], 6);
        assert_eq!(group.sizes(), [1; 6]);
        assert!(group.sharers().values().all(|sharers| *sharers == 3));
        let lonely = Group::new(&[(1, 1)], 4);
        assert_eq!(lonely.sizes(), [1; 4]);
    }

    #[test]
    fn members_keep_a_part_of_their_partitions_when_another_joins() {
        let mut group = Group::new(&[(1, 6)], 2);
        let before = group.clone();
        group.join(&[1]);
        group.assign();
        assert_eq!(group.sizes(), [2, 2, 2]);
        for (now, before) in group.members.iter().zip(&before.members) {
            assert!(now.2.is_subset_of(&before.2));
        }
    }

    #[test]
    fn missing_topics_are_ignored() {
        let mut group = Group::default();
        group.join(&[7]);
        group.assign();
        assert_eq!(group.sizes(), [0]);
    }

    proptest! {
        #[test]
        fn equal_subscriptions_are_balanced_and_stable(
            counts in proptest::collection::vec(0u32..20, 1..4),
            members in 1usize..40,
        ) {
            let topics: Vec<_> = counts.iter().enumerate().map(|(i, &n)| (i as u128, n)).collect();
            let mut group = Group::new(&topics, members);
            let sizes = group.sizes();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", sizes);
            let sharers = group.sharers();
            let (least, most) = (sharers.values().min(), sharers.values().max());
            prop_assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1, "{:?}", sharers);
            let before = format!("{:?}", group.members);
            group.assign();
            prop_assert_eq!(format!("{:?}", group.members), before);
        }

        #[test]
        fn every_subscribed_partition_is_assigned_for_any_subscriptions(
            counts in proptest::collection::vec(0u32..8, 1..5),
            wants in proptest::collection::vec(proptest::collection::vec(0u128..5, 1..4), 1..12),
        ) {
            let counts = counts.iter().enumerate().map(|(i, &n)| (topic(i as u128), n)).collect();
            let mut group = Group { topics: counts, members: Vec::new() };
            for topics in &wants {
                group.join(topics);
                group.assign();
            }
        }
    }
}
