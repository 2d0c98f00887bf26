//! Records that consumers lease and settle one by one.

use std::collections::{BTreeMap, BTreeSet};

use crate::verdict::{Invariant, Verdict};

/// The node's clock and the run's have different origins, and both are rounded to milliseconds.
const ROUNDED_MS: u64 = 10;

/// Identifies a job; it is in the record's value.
pub type JobId = u32;

/// Rules of the group in this run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub by_key: bool,
    pub lease_ms: u64,
    /// `None`: unlimited.
    pub attempts_max: Option<u16>,
}

/// The ways in which a record leaves the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum JobEnd {
    Accepted,
    /// It becomes a dead letter.
    Rejected,
    /// Accepted together with a record in another topic.
    Moved,
}

#[derive(Debug, Default)]
pub struct Jobs {
    jobs: BTreeMap<JobId, Job>,
    pub delivered: u64,
    pub settled: u64,
}

#[derive(Debug, Default)]
struct Job {
    key: u8,
    due: Option<EarliestDelivery>,
    place: Option<(u32, u64)>,
    acknowledged: bool,
    lease: Option<Lease>,
    /// Released with a delay, in this life of the node.
    not_before_ms: Option<u64>,
    /// The number of the last delivery in this life.
    attempt: u16,
    /// Deliveries that are certainly counted.
    counted: u16,
    requested: BTreeSet<JobEnd>,
    confirmed: Option<JobEnd>,
}

/// The earliest delivery of a delayed job: once the time has passed, or once the wall clock, which may be set
/// meanwhile, is past it. A restart uses the wall clock, whatever it was set to.
#[derive(Clone, Copy, Debug)]
pub struct EarliestDelivery {
    /// By the wall clock of the time when the job was sent.
    pub wall_ms: i64,
    /// In simulated time.
    pub at_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    session: u64,
    until_ms: u64,
    /// A settle is pending: the time of its effect is unknown until the reply.
    settling: bool,
}

/// One delivery, as its consumer received it.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedDelivery {
    pub job: JobId,
    pub session: u64,
    pub place: (u32, u64),
    pub attempt: u16,
    /// When the consumer had last received all available records: the lease is not older.
    pub leased_from_ms: u64,
    /// In simulated time since the run began.
    pub now_ms: u64,
    pub wall_ms: i64,
}

impl ReceivedDelivery {
    /// Whether its lease may have ended before the consumer received it: such a delivery proves nothing about the
    /// present.
    pub fn is_late(&self, rules: &Rules) -> bool {
        self.now_ms + ROUNDED_MS >= self.leased_from_ms + rules.lease_ms
    }
}

impl Jobs {
    pub fn send(&mut self, key: u8, due: Option<EarliestDelivery>) -> JobId {
        let id = self.jobs.len() as JobId;
        self.jobs.insert(id, Job { key, due, ..Job::default() });
        id
    }

    pub fn acknowledge(&mut self, id: JobId, place: (u32, u64)) {
        if let Some(job) = self.jobs.get_mut(&id) {
            (job.place, job.acknowledged) = (Some(place), true);
        }
    }

    pub fn acknowledged(&self) -> usize {
        self.jobs.values().filter(|job| job.acknowledged).count()
    }

    /// The node ended: leases and delays in memory are gone.
    pub fn life_ends(&mut self) {
        for job in self.jobs.values_mut() {
            (job.lease, job.not_before_ms, job.attempt) = (None, None, 0);
        }
    }

    pub fn deliver(&mut self, delivered: ReceivedDelivery, rules: &Rules, verdict: &Verdict) {
        let ReceivedDelivery { job: id, session, place, attempt, leased_from_ms, now_ms, wall_ms } =
            delivered;
        self.delivered += 1;
        let Some(job) = self.jobs.get(&id) else {
            return verdict.violated(Invariant::Once, format!("job {id} was never sent"));
        };
        let violated = |invariant, what: &str| {
            verdict.violated(invariant, format!("{what}: {delivered:?}, {job:?}"));
        };
        if job.place.is_some_and(|known| known != place) {
            violated(Invariant::Once, "a job is at two places");
        }
        if job.confirmed.is_some() {
            violated(Invariant::Settled, "a settled job is delivered");
        }
        if job.lease.is_some_and(|lease| lease.is_live(now_ms)) {
            violated(Invariant::Exclusive, "a leased job is delivered");
        }
        let not_enough = attempt < job.attempt || attempt <= job.counted;
        if not_enough || rules.attempts_max.is_some_and(|max| attempt > max) {
            violated(Invariant::Attempts, "the number of the delivery is wrong");
        }
        let early = job.due.is_some_and(|due| wall_ms < due.wall_ms && now_ms < due.at_ms)
            || job.not_before_ms.is_some_and(|at_ms| now_ms < at_ms);
        if early {
            violated(Invariant::Delayed, "a job is early");
        }
        if rules.by_key {
            for (other, before) in &self.jobs {
                if before.key != job.key || *other == id {
                    continue;
                }
                if before.lease.is_some_and(|lease| lease.is_live(now_ms)) {
                    violated(Invariant::KeyOrder, &format!("job {other} of its key is out"));
                }
                let is_older = before.place.is_some_and(|it| it.0 == place.0 && it.1 < place.1);
                if is_older && before.requested.is_empty() {
                    violated(Invariant::KeyOrder, &format!("job {other} of its key waits"));
                }
            }
        }
        let until_ms = leased_from_ms + rules.lease_ms.saturating_sub(ROUNDED_MS);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        (job.place, job.attempt, job.not_before_ms) = (Some(place), attempt, None);
        job.lease = Some(Lease { session, until_ms, settling: false });
    }

    /// To be called before the settle is sent.
    pub fn settle(&mut self, id: JobId, way: JobEnd) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.requested.insert(way);
            if let Some(lease) = &mut job.lease {
                lease.settling = true;
            }
        }
    }

    pub fn settled(&mut self, id: JobId, session: u64, way: JobEnd) {
        self.settled += 1;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.confirmed = Some(way);
            job.end_lease(session);
        }
    }

    /// The settle was rejected, or its outcome is unknown.
    pub fn not_settled(&mut self, id: JobId, session: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.end_lease(session);
        }
    }

    /// To be called before the release is sent.
    pub fn release(&mut self, id: JobId, session: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.end_lease(session);
        }
    }

    /// A release that counts its delivery was confirmed. A release after the lease has expired is rejected, and
    /// delays nothing.
    pub fn released(&mut self, id: JobId, attempt: u16, not_before_ms: Option<u64>) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.counted = job.counted.max(attempt);
            if job.attempt == attempt {
                job.not_before_ms = not_before_ms;
            }
        }
    }

    /// A consumer's session was closed.
    pub fn close(&mut self, session: u64) {
        for job in self.jobs.values_mut() {
            job.end_lease(session);
        }
    }

    /// Checks the final state once the queue is empty: the jobs of its log with their positions, the dead letters,
    /// and the topic that jobs are moved to.
    pub fn check(
        &self,
        log: &[(JobId, (u32, u64))],
        dead: &[JobId],
        moved: &[JobId],
        rules: &Rules,
        verdict: &Verdict,
    ) {
        let mut places: BTreeMap<JobId, (u32, u64)> = BTreeMap::new();
        for (id, place) in log {
            if places.insert(*id, *place).is_some() {
                verdict.violated(Invariant::Once, format!("job {id} is in the log twice"));
            }
        }
        let count = |ids: &[JobId], id| ids.iter().filter(|it| **it == id).count();
        for (id, job) in &self.jobs {
            let (found, dead, moved) = (places.get(id), count(dead, *id), count(moved, *id));
            let violated = |invariant, what: &str| {
                let counts = format!("{dead} dead letters, moved {moved} times");
                verdict.violated(invariant, format!("job {id} {what}: {counts}, {job:?}"));
            };
            if job.acknowledged && found != job.place.as_ref() {
                violated(Invariant::Durable, "is not where it was acknowledged");
            }
            if dead > 1 {
                violated(Invariant::DeadLetters, "is a dead letter more than once");
            }
            if moved > 1 || dead + moved > 1 {
                violated(Invariant::Transfers, "left the queue more than once");
            }
            let expected = match job.confirmed {
                Some(JobEnd::Accepted) => Some((0, 0)),
                Some(JobEnd::Rejected) => Some((1, 0)),
                Some(JobEnd::Moved) => Some((0, 1)),
                None => None,
            };
            if expected.is_some_and(|expected| expected != (dead, moved)) {
                violated(Invariant::Settled, "did not leave as was confirmed");
            }
            let may_be_dead =
                job.requested.contains(&JobEnd::Rejected) || rules.attempts_max.is_some();
            if dead > 0 && !may_be_dead {
                violated(Invariant::DeadLetters, "is a dead letter, and nobody rejected it");
            }
            if moved > 0 && !job.requested.contains(&JobEnd::Moved) {
                violated(Invariant::Transfers, "was moved by nobody");
            }
            let left = dead + moved > 0 || job.requested.contains(&JobEnd::Accepted);
            if found.is_some() && !left {
                violated(Invariant::Durable, "is gone from the queue, and nobody settled it");
            }
        }
    }
}

impl Job {
    fn end_lease(&mut self, session: u64) {
        if self.lease.is_some_and(|lease| lease.session == session) {
            self.lease = None;
        }
    }
}

impl Lease {
    fn is_live(&self, now_ms: u64) -> bool {
        !self.settling && now_ms < self.until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    const RULES: Rules = Rules { by_key: false, lease_ms: 30_000, attempts_max: Some(3) };

    /// The violation found in a history of two acknowledged jobs of one key.
    fn judged(story: impl FnOnce(&mut Jobs, &Verdict)) -> Option<Invariant> {
        let verdict = Verdict::new(Trace::default());
        let mut jobs = Jobs::default();
        for offset in 0..2 {
            let due = EarliestDelivery { wall_ms: 100, at_ms: 100 };
            let id = jobs.send(7, Some(due).filter(|_| offset == 1));
            jobs.acknowledge(id, (0, offset));
        }
        story(&mut jobs, &verdict);
        verdict.first().map(|violation| violation.invariant)
    }

    fn delivered(job: JobId, attempt: u16, now_ms: u64) -> ReceivedDelivery {
        let (place, wall_ms) = ((0, u64::from(job)), now_ms as i64);
        ReceivedDelivery {
            job,
            session: 1,
            place,
            attempt,
            leased_from_ms: now_ms,
            now_ms,
            wall_ms,
        }
    }

    #[test]
    fn allowed_history_is_no_violation() {
        let story = |jobs: &mut Jobs, verdict: &Verdict| {
            jobs.deliver(delivered(0, 1, 10), &RULES, verdict);
            jobs.release(0, 1);
            jobs.released(0, 1, Some(500));
            jobs.deliver(delivered(0, 2, 500), &RULES, verdict);
            jobs.settle(0, JobEnd::Rejected);
            jobs.settled(0, 1, JobEnd::Rejected);
            jobs.deliver(delivered(1, 1, 600), &RULES, verdict);
            jobs.life_ends();
            jobs.deliver(delivered(1, 1, 700), &RULES, verdict);
            jobs.settle(1, JobEnd::Accepted);
            jobs.not_settled(1, 1);
            jobs.check(&[(0, (0, 0)), (1, (0, 1))], &[0], &[], &RULES, verdict);
        };
        assert_eq!(judged(story), None);
    }

    #[test]
    fn every_wrong_delivery_is_detected() {
        let first = |jobs: &mut Jobs, verdict: &Verdict| {
            jobs.deliver(delivered(0, 1, 10), &RULES, verdict);
        };
        let leased = judged(|jobs, verdict| {
            first(jobs, verdict);
            jobs.deliver(delivered(0, 2, 20), &RULES, verdict);
        });
        assert_eq!(leased, Some(Invariant::Exclusive));
        let settled = judged(|jobs, verdict| {
            first(jobs, verdict);
            jobs.settle(0, JobEnd::Accepted);
            jobs.settled(0, 1, JobEnd::Accepted);
            jobs.deliver(delivered(0, 2, 20), &RULES, verdict);
        });
        assert_eq!(settled, Some(Invariant::Settled));
        let uncounted = judged(|jobs, verdict| {
            first(jobs, verdict);
            jobs.release(0, 1);
            jobs.released(0, 1, None);
            jobs.deliver(delivered(0, 1, 20), &RULES, verdict);
        });
        assert_eq!(uncounted, Some(Invariant::Attempts));
        let too_often = judged(|jobs, verdict| jobs.deliver(delivered(0, 4, 10), &RULES, verdict));
        assert_eq!(too_often, Some(Invariant::Attempts));
        let early = judged(|jobs, verdict| jobs.deliver(delivered(1, 1, 99), &RULES, verdict));
        assert_eq!(early, Some(Invariant::Delayed));
        let elsewhere = judged(|jobs, verdict| {
            jobs.deliver(
                ReceivedDelivery { place: (1, 5), ..delivered(0, 1, 10) },
                &RULES,
                verdict,
            );
        });
        assert_eq!(elsewhere, Some(Invariant::Once));
    }

    #[test]
    fn second_or_out_of_order_delivery_of_a_key_is_detected() {
        let rules = Rules { by_key: true, attempts_max: None, ..RULES };
        let both = judged(|jobs, verdict| {
            jobs.deliver(delivered(0, 1, 200), &rules, verdict);
            jobs.settle(0, JobEnd::Accepted);
            jobs.not_settled(0, 1);
            jobs.deliver(delivered(0, 2, 200), &rules, verdict);
            jobs.deliver(delivered(1, 1, 200), &rules, verdict);
        });
        assert_eq!(both, Some(Invariant::KeyOrder));
        let younger = judged(|jobs, verdict| jobs.deliver(delivered(1, 1, 200), &rules, verdict));
        assert_eq!(younger, Some(Invariant::KeyOrder));
    }

    #[test]
    fn every_wrong_final_state_is_detected() {
        let ends = |way: Option<JobEnd>, confirmed, dead: &[JobId], moved: &[JobId]| {
            judged(|jobs, verdict| {
                jobs.settle(1, JobEnd::Accepted);
                if let Some(way) = way {
                    jobs.settle(0, way);
                    if confirmed {
                        jobs.settled(0, 1, way);
                    }
                }
                jobs.check(&[(0, (0, 0)), (1, (0, 1))], dead, moved, &RULES, verdict);
            })
        };
        assert_eq!(ends(None, false, &[], &[]), Some(Invariant::Durable));
        assert_eq!(ends(Some(JobEnd::Rejected), true, &[], &[]), Some(Invariant::Settled));
        assert_eq!(ends(Some(JobEnd::Accepted), true, &[0], &[]), Some(Invariant::Settled));
        assert_eq!(ends(Some(JobEnd::Rejected), true, &[0, 0], &[]), Some(Invariant::DeadLetters));
        assert_eq!(ends(Some(JobEnd::Moved), true, &[0], &[0]), Some(Invariant::Transfers));
        assert_eq!(ends(Some(JobEnd::Accepted), false, &[], &[0]), Some(Invariant::Transfers));
        assert_eq!(ends(Some(JobEnd::Moved), false, &[], &[0]), None);
    }

    #[test]
    fn job_missing_at_its_acknowledged_position_is_lost() {
        let lost = judged(|jobs, verdict| {
            jobs.settle(0, JobEnd::Accepted);
            jobs.settle(1, JobEnd::Accepted);
            jobs.check(&[(0, (0, 0))], &[], &[], &RULES, verdict);
        });
        assert_eq!(lost, Some(Invariant::Durable));
    }
}
