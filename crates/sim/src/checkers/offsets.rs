//! Offsets that a group commits: a confirmed one stays, and one that was never requested does not appear.

use crate::verdict::{Invariant, Verdict};

#[derive(Debug, Default)]
pub struct Offsets {
    /// The highest requested offset.
    pub asked: u64,
    confirmed: Option<u64>,
}

impl Offsets {
    /// The next offset to be committed.
    pub fn next_commit(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    pub fn confirm(&mut self, offset: u64) {
        self.confirmed = self.confirmed.max(Some(offset));
    }

    pub fn check(&self, found: Option<u64>, verdict: &Verdict) {
        let fits = found >= self.confirmed && found.is_none_or(|found| found <= self.asked);
        if !fits {
            let Self { asked, confirmed } = self;
            let what =
                format!("{found:?} is committed; {confirmed:?} was confirmed, {asked} asked for");
            verdict.violated(Invariant::Offsets, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    #[test]
    fn decreasing_and_unrequested_offsets_are_detected() {
        let judged = |found| {
            let verdict = Verdict::new(Trace::default());
            let mut offsets = Offsets::default();
            for confirmed in [true, true, false] {
                let offset = offsets.next_commit();
                if confirmed {
                    offsets.confirm(offset);
                }
            }
            offsets.check(found, &verdict);
            verdict.first().is_none()
        };
        assert_eq!(
            [None, Some(1), Some(2), Some(3), Some(4)].map(judged),
            [false, false, true, true, false]
        );
    }
}
