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
