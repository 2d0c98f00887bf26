//! The mark of a clean shutdown: all leases of the process were released, with their attempts counted.
//!
//! Deliveries are not written to the log. So after a process ended without this mark, each unsettled record of
//! the log may have been delivered, and counts as delivered once. The mark is an empty settle at the end of the
//! log; any later settle invalidates it. A node of a cluster writes none: another one leads before it ends.

use std::future::Future;
use std::pin::Pin;

use base::LeaseGroupId;
use machine::GroupSettle;

use super::{Driver, Purpose};
use crate::groups::view::earlier_deliveries_are_settled;

impl Driver {
    /// Invalidates the mark before the first record is delivered. False: the term is over.
    pub(super) async fn take_mark(&mut self, mut lost: Pin<&mut impl Future<Output = ()>>) -> bool {
        // Without a group: it changes nothing.
        let (group, partition) = (LeaseGroupId(0), 0);
        let (settled, attempts) = (Vec::new(), Vec::new());
        let settles = vec![GroupSettle { group, partition, settled, attempts }];
        let purpose = Purpose::Settles(Vec::new());
        self.commits.settle(&mut self.groups, Vec::new(), settles, purpose);
        while self.commits.is_in_flight() {
            tokio::select! {
                biased;
                () = lost.as_mut() => return false,
                Some(done) = self.commits.done() => self.on_committed(done),
            }
        }
        self.is_marked = false;
        true
    }

    /// Writes the mark, if nothing is leased and all records of earlier deliveries are settled.
    pub(super) async fn mark_end(&mut self) {
        let is_held = self.groups.iter().any(|group| {
            let counters = group.dispatch.counters();
            counters.leased > 0 || counters.dead > 0
        });
        let is_known =
            self.seen.is_none_or(|seen| earlier_deliveries_are_settled(&self.shard, seen));
        if self.here.is_some() || self.is_marked || is_held || !is_known {
            return;
        }
        let purpose = Purpose::Settles(Vec::new());
        self.commits.settle(&mut self.groups, Vec::new(), Vec::new(), purpose);
        while let Some(done) = self.commits.done().await {
            self.on_committed(done);
        }
    }
}
