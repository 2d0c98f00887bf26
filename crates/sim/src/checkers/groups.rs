//! Groups whose members divide the partitions of a topic: a partition has one owner, offsets are committed by
//! it and by nobody else, and all that was consumed together is everything.
//!
//! A member owns a partition in its own view until it gives it up, or until it has been silent for as long as
//! its session lasts: from then on the group may give it away, and the member cannot know. The session counts
//! from the last report that was answered, as of when it was sent, which is sooner than the group counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::verdict::{Invariant, Verdict};

/// Names a member in one of its memberships.
pub type MemberId = u64;

#[derive(Debug, Default)]
pub struct Group {
    partitions: BTreeMap<u32, Partition>,
    pub consumed: u64,
    pub committed: u64,
}

#[derive(Debug, Default)]
struct Partition {
    /// Until when each member may take it for its own.
    owners: BTreeMap<MemberId, u64>,
    /// Counts who was told that it is theirs.
    told: u64,
    /// All that anybody asked to commit, ever.
    asked: BTreeSet<u64>,
    /// What is committed is not below this.
    floor: u64,
    consumed: BTreeSet<u64>,
}

/// A commit that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    partition: u32,
    offset: u64,
    member: MemberId,
    /// How often the partition had found an owner before.
    told: u64,
    /// Another member had it already.
    rival: Option<MemberId>,
}

impl Group {
    /// A member hears that it has these partitions, and maybe had them before.
    pub fn told(
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

    /// A member's report was answered, and changes nothing.
    pub fn stays(&mut self, member: MemberId, until_ms: u64) {
        for partition in self.partitions.values_mut() {
            if let Some(until) = partition.owners.get_mut(&member) {
                *until = until_ms;
            }
        }
    }

    /// A member has nothing any more: before it says so.
    pub fn gives_up(&mut self, member: MemberId) {
        for partition in self.partitions.values_mut() {
            partition.owners.remove(&member);
        }
    }

    /// Membership ends with the node.
    pub fn life_ends(&mut self) {
        self.partitions.values_mut().for_each(|partition| partition.owners.clear());
    }

    /// To be called before it is sent.
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

    /// A commit was taken.
    pub fn confirmed(&mut self, commit: Commit, verdict: &Verdict) {
        self.committed += 1;
        let Commit { partition, offset, member, told, rival } = commit;
        if let Some(rival) = rival {
            let what =
                format!("{member:x} commits {offset} in {partition}, which {rival:x} had by then");
            verdict.violated(Invariant::Owners, what);
        }
        let known = self.partitions.entry(partition).or_default();
        // Who got it while this was under way may have begun below, and commit that.
        if known.told == told {
            known.floor = known.floor.max(offset);
        }
    }

    /// The least that can be found committed by whoever asks from now on.
    pub fn floor(&self, partition: u32) -> u64 {
        self.partitions.get(&partition).map_or(0, |known| known.floor)
    }

    /// Judges what somebody found committed, who asked when `floor` was so.
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

    /// Judges what was consumed by all members together, once somebody has come to the ends.
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
    /// Another member that has it.
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
    fn two_owners_at_a_time_and_a_commit_of_a_former_one_are_seen() {
        let both = judged(|group, verdict| {
            group.told(7, &one(), (0, 100), verdict);
            group.told(8, &one(), (99, 199), verdict);
        });
        assert_eq!(both, Some(Invariant::Owners));
        let former = judged(|group, verdict| {
            group.told(7, &one(), (0, 100), verdict);
            group.told(8, &one(), (100, 200), verdict);
            let commit = group.commits(7, 1, 5, 150);
            group.confirmed(commit, verdict);
        });
        assert_eq!(former, Some(Invariant::Owners));
    }

    #[test]
    fn a_partition_goes_over_once_it_is_given_up_or_its_owner_was_silent() {
        let handed_over = judged(|group, verdict| {
            group.told(7, &one(), (0, 100), verdict);
            group.stays(7, 150);
            group.told(7, &BTreeSet::new(), (120, 220), verdict);
            group.told(8, &one(), (121, 221), verdict);
            group.gives_up(8);
            group.told(7, &one(), (130, 230), verdict);
            group.told(8, &one(), (230, 330), verdict);
            group.life_ends();
            group.told(9, &one(), (231, 331), verdict);
        });
        assert_eq!(handed_over, None);
    }

    #[test]
    fn offsets_that_go_back_or_that_nobody_committed_are_seen() {
        let committed = |found, taken_over: bool| {
            judged(|group, verdict| {
                group.told(7, &one(), (0, 100), verdict);
                let commit = group.commits(7, 1, 5, 10);
                if taken_over {
                    group.told(8, &one(), (100, 200), verdict);
                }
                group.confirmed(commit, verdict);
                group.found(1, found, group.floor(1), verdict);
            })
        };
        assert_eq!(committed(Some(5), false), None);
        assert_eq!(committed(None, false), Some(Invariant::Offsets));
        assert_eq!(committed(Some(6), false), Some(Invariant::Offsets));
        // It was under way when the partition went over.
        assert_eq!(committed(None, true), None);
    }

    #[test]
    fn a_record_that_nobody_consumed_is_seen() {
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
