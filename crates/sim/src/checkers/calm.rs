//! Progress without faults: replies that clients wait for arrive within a bound.
//!
//! Faults announce how long they disturb. The bound of a wait begins after them, so that a fault costs no more
//! than the node's recovery from it.

use std::collections::BTreeMap;

use crate::verdict::{Invariant, Verdict};

/// Bound of one wait: some ten times the longest that results from the smallest limits of a profile (segments of
/// 64 KiB, frames of 4 KiB, 5 ms per disk operation), with all clients active.
pub const BOUND_MS: u64 = 3_000;

#[derive(Debug, Default)]
pub struct Calm {
    /// End of the last disturbance of the node.
    disturbed_ms: u64,
    waiting: BTreeMap<u64, OpenWait>,
    next: u64,
    /// The longest counted wait.
    pub longest_ms: u64,
}

#[derive(Debug)]
struct OpenWait {
    what: &'static str,
    since_ms: u64,
}

impl Calm {
    /// Something fails, or is slow, until then.
    pub fn disturb(&mut self, until_ms: u64) {
        self.disturbed_ms = self.disturbed_ms.max(until_ms);
    }

    /// A life of the node begins: no client waits, and former disturbances are over.
    pub fn life_begins(&mut self, now_ms: u64) {
        (self.disturbed_ms, self.waiting) = (now_ms, BTreeMap::new());
    }

    /// Begins a wait; the returned number is for [`Calm::end`].
    pub fn begin(&mut self, what: &'static str, now_ms: u64) -> u64 {
        self.next += 1;
        self.waiting.insert(self.next, OpenWait { what, since_ms: now_ms });
        self.next
    }

    /// Cancels a wait.
    pub fn cancel(&mut self, wait: u64) {
        self.waiting.remove(&wait);
    }

    /// Ends a wait with its reply.
    pub fn end(&mut self, wait: u64, now_ms: u64, verdict: &Verdict) {
        let Some(waiting) = self.waiting.remove(&wait) else { return };
        self.judge(&waiting, now_ms, verdict);
        self.longest_ms = self.longest_ms.max(waiting.counted_ms(self.disturbed_ms, now_ms));
    }

    /// Checks all pending waits.
    pub fn check(&self, now_ms: u64, verdict: &Verdict) {
        self.waiting.values().for_each(|waiting| self.judge(waiting, now_ms, verdict));
    }

    fn judge(&self, waiting: &OpenWait, now_ms: u64, verdict: &Verdict) {
        let waited_ms = waiting.counted_ms(self.disturbed_ms, now_ms);
        if waited_ms > BOUND_MS {
            let what = format!("{} is waited for, {waited_ms} ms without a fault", waiting.what);
            verdict.violated(Invariant::Progress, what);
        }
    }
}

impl OpenWait {
    /// Duration of the wait without disturbance.
    fn counted_ms(&self, disturbed_ms: u64, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms.max(disturbed_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn judged(story: impl FnOnce(&mut Calm, &Verdict)) -> Option<Invariant> {
        let verdict = Verdict::new(Trace::default());
        story(&mut Calm::default(), &verdict);
        verdict.first().map(|violation| violation.invariant)
    }

    #[test]
    fn late_or_missing_reply_is_detected() {
        let late = judged(|calm, verdict| {
            let wait = calm.begin("an answer", 10);
            calm.end(wait, 11 + BOUND_MS, verdict);
        });
        assert_eq!(late, Some(Invariant::Progress));
        let never = judged(|calm, verdict| {
            calm.begin("an answer", 10);
            calm.check(11 + BOUND_MS, verdict);
        });
        assert_eq!(never, Some(Invariant::Progress));
    }

    #[test]
    fn faults_and_the_end_of_a_life_extend_the_bound() {
        let disturbed = judged(|calm, verdict| {
            let wait = calm.begin("an answer", 10);
            calm.disturb(500);
            calm.check(500 + BOUND_MS, verdict);
            calm.end(wait, 500 + BOUND_MS, verdict);
            assert_eq!(calm.longest_ms, BOUND_MS);
        });
        assert_eq!(disturbed, None);
        let next_life = judged(|calm, verdict| {
            calm.begin("an answer", 10);
            calm.life_begins(20);
            calm.check(100 + BOUND_MS, verdict);
        });
        assert_eq!(next_life, None);
    }
}
