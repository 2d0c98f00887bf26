//! A compacted topic: the newest record of each key stays, whatever else is removed.

use std::collections::BTreeMap;

use crate::verdict::{Invariant, Verdict};

#[derive(Debug, Default)]
pub struct Keys {
    next: u32,
    by_key: BTreeMap<u8, Key>,
}

#[derive(Debug, Default)]
struct Key {
    sent: u32,
    acknowledged: u32,
}

impl Keys {
    /// The number of the key's next record, above all earlier ones.
    pub fn send(&mut self, key: u8) -> u32 {
        self.next += 1;
        self.by_key.entry(key).or_default().sent = self.next;
        self.next
    }

    pub fn acknowledge(&mut self, key: u8, number: u32) {
        let found = self.by_key.entry(key).or_default();
        found.acknowledged = found.acknowledged.max(number);
    }

    /// Checks the records that a reader found, in order: the numbers of each key rise, and the last is the newest.
    pub fn check(&self, found: &[(u8, u32)], verdict: &Verdict) {
        let mut last: BTreeMap<u8, u32> = BTreeMap::new();
        for &(key, number) in found {
            if last.insert(key, number).is_some_and(|before| before >= number) {
                let what = format!("key {key} has record {number} behind a later one");
                verdict.violated(Invariant::Compacted, what);
            }
        }
        for (key, Key { sent, acknowledged }) in &self.by_key {
            let last = last.get(key).copied().unwrap_or(0);
            if last < *acknowledged || last > *sent {
                let what = format!(
                    "the last record of key {key} is {last}; {acknowledged} was acknowledged, {sent} sent"
                );
                verdict.violated(Invariant::Compacted, what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn missing_newest_record_and_decreasing_numbers_of_a_key_are_detected() {
        let judged = |found: &[(u8, u32)]| {
            let verdict = Verdict::new(Trace::default());
            let mut keys = Keys::default();
            for key in [1, 2, 1] {
                let number = keys.send(key);
                keys.acknowledge(key, number);
            }
            keys.check(found, &verdict);
            verdict.first().map(|violation| violation.invariant)
        };
        assert_eq!(judged(&[(2, 2), (1, 3)]), None);
        assert_eq!(judged(&[(1, 1), (2, 2), (1, 3)]), None);
        for wrong in
            [&[(1, 3)][..], &[(1, 1), (2, 2)], &[(2, 2), (1, 3), (1, 1)], &[(2, 2), (1, 9)]]
        {
            assert_eq!(judged(wrong), Some(Invariant::Compacted), "{wrong:?}");
        }
    }
}
