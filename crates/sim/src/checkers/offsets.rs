//! Offsets that a group commits: what was confirmed stays, and what was never asked for is not there.

use crate::verdict::{Invariant, Verdict};

#[derive(Debug, Default)]
pub struct Offsets {
    /// The highest that was asked for.
    pub asked: u64,
    confirmed: Option<u64>,
}

impl Offsets {
    /// The next to be committed.
    pub fn ask(&mut self) -> u64 {
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
    fn what_went_back_and_what_nobody_asked_for_is_seen() {
        let judged = |found| {
            let verdict = Verdict::new(Trace::default());
            let mut offsets = Offsets::default();
            for confirmed in [true, true, false] {
                let offset = offsets.ask();
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
