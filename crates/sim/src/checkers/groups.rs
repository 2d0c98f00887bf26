//! Groups whose members divide the partitions of a topic: a partition has one owner, only the owner commits its
//! offsets, and the members together consume every record.
//!
//! A member owns a partition in its own view until it releases it, or until it has been silent for its session
//! timeout: from then on the group may reassign it without the member's knowledge. The session counts from the
//! sending of the last answered report, which is earlier than the group counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::verdict::{Invariant, Verdict};

/// Identifies one membership of a member.
pub type MemberId = u64;

#[derive(Debug, Default)]
pub struct Group {
    partitions: BTreeMap<u32, Partition>,
    pub consumed: u64,
    pub committed: u64,
}

#[derive(Debug, Default)]
struct Partition {
    /// Until when each member may consider itself the owner.
    owners: BTreeMap<MemberId, u64>,
    /// Number of assignments of the partition so far.
    told: u64,
    /// All offsets with a requested commit, ever.
    asked: BTreeSet<u64>,
    /// Lower bound of the committed offset.
    floor: u64,
    consumed: BTreeSet<u64>,
}

/// A commit in flight.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    partition: u32,
    offset: u64,
    member: MemberId,
    /// The partition's number of assignments when the commit was sent.
    told: u64,
    /// Another member owned it already.
    rival: Option<MemberId>,
}

impl Group {
    /// A member receives the assignment of these partitions, maybe again.
    pub fn assigned(
        &mut self,
        member: MemberId,
        partitions: &BTreeSet<u32>,
        (now_ms, until_ms): (u64, u64),
        verdict: &Verdict,
    ) {
        for (index, partition) in &mut self.partitions {
            if !partitions.contains(index) {
                partition.owners.remove(&member);
            }
        }
        for index in partitions {
            let partition = self.partitions.entry(*index).or_default();
            if let Some(rival) = partition.rival(member, now_ms) {
                let what = format!("partition {index} is given to {member:x}; {rival:x} has it");
                verdict.violated(Invariant::Owners, what);
            }
            if partition.owners.insert(member, until_ms).is_none() {
                partition.told += 1;
            }
        }
    }

    /// A member's report was answered without a change.
    pub fn stays(&mut self, member: MemberId, until_ms: u64) {
        for partition in self.partitions.values_mut() {
            if let Some(until) = partition.owners.get_mut(&member) {
                *until = until_ms;
            }
        }
    }

    /// A member releases everything; to be called before it reports that.
    pub fn leave(&mut self, member: MemberId) {
        for partition in self.partitions.values_mut() {
            partition.owners.remove(&member);
        }
    }

    /// All memberships end with the node.
    pub fn life_ends(&mut self) {
        self.partitions.values_mut().for_each(|partition| partition.owners.clear());
    }

    /// To be called before the commit is sent.
    pub fn commits(
        &mut self,
        member: MemberId,
        partition: u32,
        offset: u64,
        now_ms: u64,
    ) -> Commit {
        let known = self.partitions.entry(partition).or_default();
        known.asked.insert(offset);
        let rival = known.rival(member, now_ms);
        Commit { partition, offset, member, told: known.told, rival }
    }

    /// A commit was accepted.
    pub fn confirmed(&mut self, commit: Commit, verdict: &Verdict) {
        self.committed += 1;
        let Commit { partition, offset, member, told, rival } = commit;
        if let Some(rival) = rival {
            let what =
                format!("{member:x} commits {offset} in {partition}, which {rival:x} had by then");
            verdict.violated(Invariant::Owners, what);
        }
        let known = self.partitions.entry(partition).or_default();
        // A new owner may have begun below during the commit, and commit that.
        if known.told == told {
            known.floor = known.floor.max(offset);
        }
    }

    /// The least committed offset that a request sent from now on can find.
    pub fn floor(&self, partition: u32) -> u64 {
        self.partitions.get(&partition).map_or(0, |known| known.floor)
    }

    /// Checks the committed offset found by a request that was sent when the lower bound was `floor`.
    pub fn found(&self, partition: u32, found: Option<u64>, floor: u64, verdict: &Verdict) {
        let asked =
            |offset| self.partitions.get(&partition).is_some_and(|it| it.asked.contains(&offset));
        if found.unwrap_or(0) < floor || found.is_some_and(|offset| !asked(offset)) {
            let what = format!("{found:?} is committed in partition {partition}; {floor} was");
            verdict.violated(Invariant::Offsets, what);
        }
    }

    pub fn consume(&mut self, partition: u32, offset: u64) {
        self.consumed += 1;
        self.partitions.entry(partition).or_default().consumed.insert(offset);
    }

    /// Checks that all members together consumed everything, once a member has come to the ends.
    pub fn check(&self, ends: &[(u32, u64)], verdict: &Verdict) {
        for (partition, end) in ends {
            let consumed = self.partitions.get(partition).map(|it| &it.consumed);
            let missed =
                (0..*end).find(|at| consumed.is_none_or(|consumed| !consumed.contains(at)));
            if let Some(offset) = missed {
                let what = format!("nobody consumed offset {offset} of partition {partition}");
                verdict.violated(Invariant::Consumed, what);
            }
        }
    }
}

impl Partition {
    /// Another member that owns it.
    fn rival(&self, member: MemberId, now_ms: u64) -> Option<MemberId> {
        let mut others = self.owners.iter().filter(|(other, _)| **other != member);
        others.find(|(_, until_ms)| now_ms < **until_ms).map(|(other, _)| *other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn judged(story: impl FnOnce(&mut Group, &Verdict)) -> Option<Invariant> {
        let verdict = Verdict::new(Trace::default());
        story(&mut Group::default(), &verdict);
        verdict.first().map(|violation| violation.invariant)
    }

    fn one() -> BTreeSet<u32> {
        BTreeSet::from([1])
    }

    #[test]
    fn two_owners_and_a_commit_by_a_former_owner_are_detected() {
        let both = judged(|group, verdict| {
            group.assigned(7, &one(), (0, 100), verdict);
            group.assigned(8, &one(), (99, 199), verdict);
        });
        assert_eq!(both, Some(Invariant::Owners));
        let former = judged(|group, verdict| {
            group.assigned(7, &one(), (0, 100), verdict);
            group.assigned(8, &one(), (100, 200), verdict);
            let commit = group.commits(7, 1, 5, 150);
            group.confirmed(commit, verdict);
        });
        assert_eq!(former, Some(Invariant::Owners));
    }

    #[test]
    fn partition_can_move_once_released_or_its_owner_was_silent() {
        let handed_over = judged(|group, verdict| {
            group.assigned(7, &one(), (0, 100), verdict);
            group.stays(7, 150);
            group.assigned(7, &BTreeSet::new(), (120, 220), verdict);
            group.assigned(8, &one(), (121, 221), verdict);
            group.leave(8);
            group.assigned(7, &one(), (130, 230), verdict);
            group.assigned(8, &one(), (230, 330), verdict);
            group.life_ends();
            group.assigned(9, &one(), (231, 331), verdict);
        });
        assert_eq!(handed_over, None);
    }

    #[test]
    fn decreasing_or_never_committed_offset_is_detected() {
        let committed = |found, taken_over: bool| {
            judged(|group, verdict| {
                group.assigned(7, &one(), (0, 100), verdict);
                let commit = group.commits(7, 1, 5, 10);
                if taken_over {
                    group.assigned(8, &one(), (100, 200), verdict);
                }
                group.confirmed(commit, verdict);
                group.found(1, found, group.floor(1), verdict);
            })
        };
        assert_eq!(committed(Some(5), false), None);
        assert_eq!(committed(None, false), Some(Invariant::Offsets));
        assert_eq!(committed(Some(6), false), Some(Invariant::Offsets));
        // It was in flight when the partition got a new owner.
        assert_eq!(committed(None, true), None);
    }

    #[test]
    fn unconsumed_record_is_detected() {
        let consumed = |offsets: &[u64]| {
            judged(|group, verdict| {
                offsets.iter().for_each(|offset| group.consume(1, *offset));
                group.check(&[(1, 3)], verdict);
            })
        };
        assert_eq!(consumed(&[0, 1, 2, 1]), None);
        assert_eq!(consumed(&[0, 2]), Some(Invariant::Consumed));
        assert_eq!(consumed(&[]), Some(Invariant::Consumed));
    }
}
