//! How much of the log is kept that a snapshot covers: what a member does not have yet, within bounds.
//!
//! A member that lacks more is sent a snapshot (`catch_up`), which costs more than entries do. So the log is
//! let go of where all members have it. Only the leader knows that; it says so with what it appends, so
//! that every member may lead next and still has what another one lacks. Beyond a bound of bytes it is let
//! go of regardless, or one member that is down would fill the disks of the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use openraft::async_runtime::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use parking_lot::Mutex;

use crate::consensus::ServerMetrics;
use crate::types::{LogId, TypeConfig};

type Server = WatchReceiverOf<TypeConfig, ServerMetrics>;

pub(crate) struct Retention {
    kept_bytes_max: u64,
    /// One more than the last entry that all members have; 0: none, or not known.
    with_all: AtomicU64,
    /// The last entry that is purged, or about to be; 0: none is.
    purging: AtomicU64,
    snapshots: Mutex<VecDeque<Point>>,
    catching_up: Mutex<BTreeMap<u64, CatchUp>>,
    lost: Mutex<BTreeSet<u64>>,
    /// Has the members, from the start of the engine on.
    server: OnceLock<Server>,
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retention").field("with_all", &self.with_all()).finish_non_exhaustive()
    }
}

/// How far a member is that is sent a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CatchUp {
    /// Of the batches that it lacked when it was asked last. 0 of 0: it has not said yet.
    pub bytes: u64,
    pub of_bytes: u64,
}

/// A snapshot that was taken in this life: it covers the log up to an entry, at a count of its bytes.
#[derive(Clone, Copy, Debug)]
struct Point {
    index: u64,
    log_bytes: u64,
}

impl Retention {
    pub(crate) fn new(kept_bytes_max: u64) -> Self {
        Self {
            kept_bytes_max,
            with_all: AtomicU64::new(0),
            purging: AtomicU64::new(0),
            snapshots: Mutex::default(),
            catching_up: Mutex::default(),
            lost: Mutex::default(),
            server: OnceLock::new(),
        }
    }

    pub(crate) fn with_all(&self) -> Option<u64> {
        self.with_all.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The leader says that all members have the log up to here. It may take that back: a new member has
    /// nothing.
    pub(crate) fn set_with_all(&self, index: Option<u64>) {
        self.with_all.store(index.map_or(0, |index| index.saturating_add(1)), Ordering::Relaxed);
    }

    /// This node leads, and knows what each other member has. What it has itself is what its own disk has:
    /// the others may be ahead of that.
    pub(crate) fn matched(&self, own: Option<u64>, others: &BTreeSet<u64>, matched: &Matched) {
        let has = |node: &u64| matched.get(node).copied().flatten().map(|id| id.index);
        self.set_with_all(others.iter().map(has).chain([own]).min().flatten());
        let kept_from = self.kept_from();
        self.catching_up.lock().retain(|node, _| others.contains(node) && has(node) < kept_from);
    }

    fn kept_from(&self) -> Option<u64> {
        self.snapshots.lock().front().map(|point| point.index)
    }

    /// A snapshot covers the log up to `index`, of which so many bytes were written by then.
    pub(crate) fn covered(&self, index: u64, log_bytes: u64) {
        self.snapshots.lock().push_back(Point { index, log_bytes });
    }

    /// Up to where the log may go, now that it has so many bytes.
    pub(crate) fn purge_up_to(&self, log_bytes: u64) -> Option<u64> {
        let mut snapshots = self.snapshots.lock();
        let covered = snapshots.back()?.index;
        // The last one that all have stays: a leader that was started again names it to who has nothing behind it,
        // and knows no entry that was let go of.
        let all = self.with_all().and_then(|all| all.checked_sub(1)).map(|all| all.min(covered));
        let too_much = snapshots
            .iter()
            .rev()
            .find(|point| log_bytes.saturating_sub(point.log_bytes) >= self.kept_bytes_max);
        let up_to = all.max(too_much.map(|point| point.index))?;
        // The newest stays: the log may be let go of up to it later.
        while snapshots.len() > 1 && snapshots[1].index <= up_to {
            snapshots.pop_front();
        }
        Some(up_to)
    }

    /// The log is about to be purged up to this entry.
    pub(crate) fn purge_begins(&self, index: u64) {
        self.purging.fetch_max(index, Ordering::Relaxed);
    }

    /// Whether the log keeps the entry after this one.
    pub(crate) fn keeps_entry_after(&self, previous: Option<LogId>) -> bool {
        previous.map_or(0, |id| id.index) >= self.purging.load(Ordering::Relaxed)
    }

    /// The member lacks what the log no longer has, and says how much of a snapshot it took.
    pub(crate) fn catches_up(&self, node: u64, at: CatchUp) {
        if self.catching_up.lock().insert(node, at).is_none() {
            tracing::info!(
                node,
                "a member lacks more than the log that is kept: it is sent a snapshot"
            );
        }
    }

    pub(crate) fn caught_up(&self, node: u64) {
        if self.catching_up.lock().remove(&node).is_some() {
            tracing::info!(node, "a member has the snapshot that it was sent");
        }
    }

    pub(crate) fn watch_members(&self, server: Server) -> Server {
        let _ = self.server.set(server.clone());
        server
    }

    /// Whether the node votes in the group. A learner may give its log up: a replica that was removed is deleted at the next
    /// start of its node, also if the node was added again meanwhile.
    pub(crate) fn is_voter(&self, node: u64) -> bool {
        let Some(server) = self.server.get() else { return false };
        let members = Arc::clone(&server.borrow_watched().membership_config);
        members.membership().voter_ids().any(|id| id == node)
    }

    /// The member lacks entries that it acknowledged to this leader.
    pub(crate) fn found_lost(&self, node: u64) {
        self.lost.lock().insert(node);
    }

    pub(crate) fn take_lost(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lost.lock()).into_iter().collect()
    }

    /// This node does not lead: others know.
    pub(crate) fn knows_nobody(&self) {
        self.catching_up.lock().clear();
    }

    pub(crate) fn is_catching_up(&self, node: u64) -> bool {
        self.catching_up.lock().contains_key(&node)
    }

    pub(crate) fn catching_up(&self) -> BTreeMap<u64, CatchUp> {
        self.catching_up.lock().clone()
    }
}

/// What each other member has durably, as the leader knows it.
pub(crate) type Matched = BTreeMap<u64, Option<LogId>>;

#[cfg(test)]
mod tests {
    use base::limits::KEPT_LOG_BYTES_MAX;

    use super::*;
    use crate::types::log_id;

    #[test]
    fn the_log_goes_up_to_where_all_members_have_it_and_a_snapshot_covers_it() {
        let retention = Retention::new(KEPT_LOG_BYTES_MAX);
        assert_eq!(retention.purge_up_to(0), None);
        retention.covered(100, 5_000);
        assert_eq!(retention.purge_up_to(6_000), None, "nobody knows what the others have");
        let matched =
            |second| Matched::from([(2, Some(log_id(1, second))), (3, Some(log_id(1, 80)))]);
        retention.matched(Some(900), &[2, 3].into(), &matched(60));
        assert_eq!(retention.purge_up_to(6_000), Some(59));
        retention.matched(Some(70), &[2, 3].into(), &matched(300));
        assert_eq!(retention.purge_up_to(6_000), Some(69), "the leader's own disk is behind");
        retention.matched(Some(900), &[2, 3].into(), &matched(300));
        assert_eq!(retention.purge_up_to(6_000), Some(79));
        retention.matched(Some(900), &[2, 3, 4].into(), &matched(300));
        assert_eq!(retention.purge_up_to(6_000), None, "a new member has nothing");
        retention.set_with_all(Some(900));
        assert_eq!(retention.purge_up_to(6_000), Some(100));
    }

    #[test]
    fn a_member_that_is_down_does_not_keep_more_than_so_many_bytes() {
        let retention = Retention::new(KEPT_LOG_BYTES_MAX);
        for point in 1..=10 {
            retention.covered(point * 100, point * (KEPT_LOG_BYTES_MAX / 4));
        }
        assert_eq!(retention.purge_up_to(10 * (KEPT_LOG_BYTES_MAX / 4)), Some(600));
        assert_eq!(retention.purge_up_to(11 * (KEPT_LOG_BYTES_MAX / 4)), Some(700));
    }
}
