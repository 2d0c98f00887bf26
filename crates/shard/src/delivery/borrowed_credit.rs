//! A driver's side of credit that sessions split over shards: the debt of a share, and what was reported to the
//! session.

use std::collections::BTreeSet;

use base::LeaseGroupId;
use serde::{Deserialize, Serialize};

use super::divided_credit::ReturnedCredit;

/// One share.
#[derive(Clone, Debug, Default)]
pub struct BorrowedCredit {
    round: u32,
    granted: u64,
    /// Total that the session requested back in this round. The driver owes the difference to `returned`: it
    /// returns that as leases end, before it uses the credit again.
    requested: u64,
    returned: u64,
    /// Groups in which records wait for more of it.
    starved_in: BTreeSet<LeaseGroupId>,
    /// The session was notified that it is not enough.
    starved_reported: bool,
    /// It was changed since then.
    report_again: bool,
    /// It was used for a delivery since it was last returned.
    used: bool,
}

/// A share as it goes from one driver to another: its amounts, without the records that wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BorrowedCreditState {
    round: u32,
    granted: u64,
    requested: u64,
    returned: u64,
    starved_reported: bool,
}

impl BorrowedCredit {
    pub fn resume(loan: BorrowedCreditState) -> Self {
        let BorrowedCreditState { round, granted, requested, returned, starved_reported } = loan;
        let (starved_in, used) = (BTreeSet::new(), false);
        Self {
            round,
            granted,
            requested,
            returned,
            starved_in,
            starved_reported,
            report_again: true,
            used,
        }
    }

    pub fn loan(&self) -> BorrowedCreditState {
        let Self { round, granted, requested, returned, starved_reported, .. } = *self;
        BorrowedCreditState { round, granted, requested, returned, starved_reported }
    }

    /// Another node's driver has the share; this is what it reported to this node.
    pub fn note_returned(&mut self, given: &ReturnedCredit) -> bool {
        let is_of_round = given.round == self.round;
        if is_of_round {
            self.returned = self.returned.max(given.in_all);
        }
        is_of_round
    }

    /// See [`Self::note_returned`].
    #[inline]
    pub fn note_starved_notice(&mut self, starved: bool) {
        self.starved_reported = starved;
    }

    pub fn new(granted: u64, round: u32) -> Self {
        Self { granted, round, ..Self::default() }
    }

    pub fn set(&mut self, amount: u64, round: u32) {
        (self.granted, self.round) = (amount, round);
        (self.requested, self.returned, self.report_again) = (0, 0, true);
    }

    #[inline]
    pub fn grant(&mut self, amount: u64) {
        self.granted = self.granted.saturating_add(amount);
        self.report_again = true;
    }

    /// Sets the total to return.
    #[inline]
    pub fn request_return(&mut self, in_all: u64) {
        self.requested = in_all;
    }

    /// It was used for a delivery.
    #[inline]
    pub fn note_used(&mut self) {
        self.used = true;
    }

    /// Whether nothing of it is returned now. `could_use`: a record needs it and has the credit of earlier
    /// kinds; credit of later kinds may be about to come. If it were returned on every request, two kinds of
    /// credit might pass each other between two shards without end.
    #[inline]
    pub fn keeps(&self, could_use: bool) -> bool {
        could_use && !self.used
    }

    #[inline]
    pub fn owed(&self) -> u64 {
        self.requested.saturating_sub(self.returned)
    }

    /// Returns `given` of it; `left` is the unused rest. `returns`: whether leases that end return their
    /// credit; if not, no debt remains. The result is the notice to the session, if any.
    pub fn return_credit(
        &mut self,
        given: u64,
        left: u64,
        returns: bool,
    ) -> Option<ReturnedCredit> {
        self.returned += given;
        self.used &= given == 0;
        if !returns {
            self.returned = self.returned.max(self.requested);
        }
        let told = given > 0 || !returns;
        let (round, granted, in_all) = (self.round, self.granted, self.returned);
        told.then_some(ReturnedCredit { round, amount: given, in_all, left, granted })
    }

    /// Records whether records of a group wait for more. Returns the notice to the session, if any.
    pub fn on_served(&mut self, group: LeaseGroupId, starved: bool) -> Option<bool> {
        match starved {
            true => self.starved_in.insert(group),
            false => self.starved_in.remove(&group),
        };
        let starved = !self.starved_in.is_empty();
        let again = std::mem::take(&mut self.report_again) && starved;
        let changed = std::mem::replace(&mut self.starved_reported, starved) != starved;
        (changed || again).then_some(starved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: LeaseGroupId = LeaseGroupId(1);
    const TWO: LeaseGroupId = LeaseGroupId(2);

    #[test]
    fn starved_share_is_reported_once_and_again_after_an_insufficient_grant() {
        let mut lent = BorrowedCredit::new(3, 0);
        assert_eq!(lent.on_served(ONE, false), None);
        assert_eq!((lent.on_served(ONE, true), lent.on_served(ONE, true)), (Some(true), None));
        assert_eq!(lent.on_served(TWO, true), None);
        lent.grant(1);
        assert_eq!((lent.on_served(ONE, true), lent.on_served(ONE, true)), (Some(true), None));
        assert_eq!((lent.on_served(ONE, false), lent.on_served(TWO, false)), (None, Some(false)));
        lent.grant(1);
        assert_eq!(lent.on_served(ONE, false), None);
    }

    #[test]
    fn debt_is_returned_in_parts_as_leases_end() {
        let mut lent = BorrowedCredit::new(5, 0);
        lent.request_return(3);
        assert_eq!(lent.return_credit(0, 0, true), None);
        assert_eq!(lent.return_credit(2, 0, true).map(|it| it.amount), Some(2));
        assert_eq!(lent.owed(), 1);
        let given = lent.return_credit(0, 0, false).expect("what is used up does not come back");
        assert_eq!((given.amount, given.in_all, given.granted, lent.owed()), (0, 3, 5, 0));
    }

    #[test]
    fn credit_returned_before_a_repeated_request_is_not_owed_twice() {
        let mut lent = BorrowedCredit::new(5, 0);
        lent.request_return(2);
        lent.return_credit(2, 0, true).expect("given back");
        // Sent before the session was notified of that.
        lent.request_return(2);
        assert_eq!(lent.owed(), 0);
        lent.request_return(3);
        assert_eq!(lent.owed(), 1);
    }
}
