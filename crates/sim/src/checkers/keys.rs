//! A compacted topic: of each key the newest record stays, whatever else goes.

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
    /// A number for the key's next record, above all before.
    pub fn send(&mut self, key: u8) -> u32 {
        self.next += 1;
        self.by_key.entry(key).or_default().sent = self.next;
        self.next
    }

    pub fn acknowledge(&mut self, key: u8, number: u32) {
        let found = self.by_key.entry(key).or_default();
        found.acknowledged = found.acknowledged.max(number);
    }

    /// Judges what a reader found, in order: the numbers of each key rise, and the last is the newest.
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
    fn a_key_whose_newest_record_is_gone_or_goes_back_is_seen() {
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
