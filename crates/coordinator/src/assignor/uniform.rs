//! The uniform assignor: balance first, then as few moves as possible.
//!
//! A member keeps its previous partitions that it still subscribes to. Free partitions go to the least loaded
//! members. Then partitions move from the most to the least loaded members, until no move would make two members
//! more balanced. Topics with the same subscribers are one pool, so that it does not matter from which of them a
//! partition is taken. With equal subscriptions there is a single pool, counts differ by one at most, and moves
//! are minimal.

use base::HashMap;
use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::{Subscriber, topics_by_members};
use crate::assignment::Assignment;

/// Passes over the pools while partitions still move. One pass suffices if subscriptions are equal or disjoint.
/// Chains of members with partly overlapping subscriptions would take long to settle for little, so the bound is
/// Kafka's.
const PASSES_MAX: usize = 16;

pub(super) fn assign(
    subscribers: &[Subscriber<'_>],
    partitions: &BTreeMap<Uuid, u32>,
) -> Vec<Assignment> {
    let mut loads = vec![0; subscribers.len()];
    let mut pools = pools(subscribers, partitions);
    for pool in &mut pools {
        pool.keep(subscribers, &mut loads);
    }
    for pool in &mut pools {
        pool.hand_out(&mut loads);
    }
    for _ in 0..PASSES_MAX {
        let moves: usize = pools.iter_mut().map(|pool| pool.balance(&mut loads)).sum();
        if moves == 0 {
            break;
        }
    }
    let mut assignments = vec![Assignment::default(); subscribers.len()];
    for pool in pools {
        for ((topic, partition), owner) in pool.partitions.into_iter().zip(pool.owners) {
            if let Some(owner) = owner {
                assignments[owner].insert(topic, partition);
            }
        }
    }
    assignments
}

/// The partitions of all topics with the same subscribers.
struct Pool {
    /// Sorted by id.
    subscribers: Vec<usize>,
    /// The index in `partitions` at which each topic begins.
    starts: Vec<(Uuid, usize)>,
    partitions: Vec<(Uuid, i32)>,
    owners: Vec<Option<usize>>,
}

/// The most constrained first: those with many partitions for few members.
fn pools(subscribers: &[Subscriber<'_>], partitions: &BTreeMap<Uuid, u32>) -> Vec<Pool> {
    let mut pools: Vec<_> = topics_by_members(subscribers)
        .into_iter()
        .map(|(subscribers, topics)| Pool::new(subscribers, &topics, partitions))
        .collect();
    pools.sort_by(|a, b| {
        // Partitions for each subscriber, compared without dividing.
        let a_share = a.partitions.len() * b.subscribers.len();
        let b_share = b.partitions.len() * a.subscribers.len();
        (b_share, a.subscribers.len(), &a.starts).cmp(&(a_share, b.subscribers.len(), &b.starts))
    });
    pools
}

impl Pool {
    fn new(
        subscribers: Vec<usize>,
        topics: &[Uuid],
        partition_counts: &BTreeMap<Uuid, u32>,
    ) -> Self {
        let (mut starts, mut partitions) = (Vec::new(), Vec::new());
        for &topic in topics {
            let count = partition_counts.get(&topic).copied().unwrap_or(0);
            starts.push((topic, partitions.len()));
            partitions.extend((0..count as i32).map(|partition| (topic, partition)));
        }
        let owners = vec![None; partitions.len()];
        Self { subscribers, starts, partitions, owners }
    }

    /// Members keep their previous partitions that still exist and that they still subscribe to.
    fn keep(&mut self, subscribers: &[Subscriber<'_>], loads: &mut [usize]) {
        for &member in &self.subscribers {
            for &(topic, start) in &self.starts {
                for &partition in subscribers[member].target.partitions_of(topic) {
                    let place = start + partition as usize;
                    let is_this = self.partitions.get(place) == Some(&(topic, partition));
                    if is_this && self.owners[place].is_none() {
                        self.owners[place] = Some(member);
                        loads[member] += 1;
                    }
                }
            }
        }
    }

    /// Gives free partitions to the least loaded members.
    fn hand_out(&mut self, loads: &mut [usize]) {
        let mut line = self.by_load(loads);
        for owner in self.owners.iter_mut().filter(|owner| owner.is_none()) {
            let Some((load, place)) = line.pop_first() else { return };
            let member = self.subscribers[place];
            *owner = Some(member);
            loads[member] += 1;
            line.insert((load + 1, place));
        }
    }

    /// Moves partitions from the most loaded subscribers, by the load over all pools, to the least loaded ones.
    /// Returns the number of moves.
    fn balance(&mut self, loads: &mut [usize]) -> usize {
        let mut takers = self.by_load(loads);
        let (Some(least), Some(most)) = (takers.first(), takers.last()) else { return 0 };
        if most.0 <= least.0 + 1 {
            return 0;
        }
        let mut gifts = self.partitions_by_place();
        let mut givers: BTreeSet<_> =
            takers.iter().copied().filter(|&(_, place)| !gifts[place].is_empty()).collect();
        let mut moves = 0;
        while let (Some(giver), Some(taker)) = (givers.last().copied(), takers.first().copied()) {
            if giver.0 <= taker.0 + 1 {
                break;
            }
            let Some(gift) = gifts[giver.1].pop() else { break };
            let (from, to) = (self.subscribers[giver.1], self.subscribers[taker.1]);
            self.owners[gift] = Some(to);
            loads[from] -= 1;
            loads[to] += 1;
            let (gives, takes) = ((giver.0 - 1, giver.1), (taker.0 + 1, taker.1));
            for line in [&mut takers, &mut givers] {
                for (before, after) in [(giver, gives), (taker, takes)] {
                    if line.remove(&before) {
                        line.insert(after);
                    }
                }
            }
            if gifts[giver.1].is_empty() {
                givers.remove(&gives);
            }
            moves += 1;
        }
        moves
    }

    /// Places in the list of subscribers, least loaded first.
    fn by_load(&self, loads: &[usize]) -> BTreeSet<(usize, usize)> {
        let places = self.subscribers.iter().enumerate();
        places.map(|(place, &member)| (loads[member], place)).collect()
    }

    /// The partitions of each subscriber in this pool.
    fn partitions_by_place(&self) -> Vec<Vec<usize>> {
        let places: HashMap<usize, usize> =
            self.subscribers.iter().enumerate().map(|(place, &member)| (member, place)).collect();
        let mut owned = vec![Vec::new(); self.subscribers.len()];
        for (partition, owner) in self.owners.iter().enumerate() {
            if let Some(&place) = owner.and_then(|owner| places.get(&owner)) {
                owned[place].push(partition);
            }
        }
        owned
    }
}
