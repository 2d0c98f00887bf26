//! The part of the log that is kept although a snapshot covers it: entries that a member lacks, within bounds.
//!
//! A member that lacks more receives a snapshot (`catch_up`), which costs more than entries do. So the log is
//! purged up to where all members have it. Only the leader knows that index. It sends it with its appends, so that
//! every member may lead next and still has the entries that another one lacks. Beyond a bound of bytes the log is
//! purged regardless, or one member that is down would fill the disks of the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use openraft::async_runtime::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use parking_lot::Mutex;

use crate::engine::{LogId, ServerMetrics, TypeConfig};

type Server = WatchReceiverOf<TypeConfig, ServerMetrics>;

pub(crate) struct Retention {
    kept_bytes_max: u64,
    /// One more than the last index that all members have; 0: none, or not known.
    with_all: AtomicU64,
    /// The last index that is purged, or about to be; 0: none is.
    purging: AtomicU64,
    snapshots: Mutex<VecDeque<Point>>,
    catching_up: Mutex<BTreeMap<u64, CatchUp>>,
    lost: Mutex<BTreeSet<u64>>,
    /// Has the members, once the engine has started.
    server: OnceLock<Server>,
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retention").field("with_all", &self.with_all()).finish_non_exhaustive()
    }
}

/// Progress of a member that receives a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CatchUp {
    /// Bytes of the batches that it lacked at its last request. 0 of 0: it has not reported yet.
    pub bytes: u64,
    pub of_bytes: u64,
}

/// A snapshot of this run: it covers the log up to an entry, at a count of its bytes.
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

    /// Sets the last index that all members have, as the leader reports it. It may decrease: a new member has
    /// nothing.
    pub(crate) fn set_with_all(&self, index: Option<u64>) {
        self.with_all.store(index.map_or(0, |index| index.saturating_add(1)), Ordering::Relaxed);
    }

    /// Sets it on the leader, which knows the matched index of each other member. Its own is that of its disk: the
    /// others may be ahead of that.
    pub(crate) fn matched(&self, own: Option<u64>, others: &BTreeSet<u64>, matched: &MatchIndexes) {
        let has = |node: &u64| matched.get(node).copied().flatten().map(|id| id.index);
        self.set_with_all(others.iter().map(has).chain([own]).min().flatten());
        let kept_from = self.kept_from();
        self.catching_up.lock().retain(|node, _| others.contains(node) && has(node) < kept_from);
    }

    fn kept_from(&self) -> Option<u64> {
        self.snapshots.lock().front().map(|point| point.index)
    }

    /// Records a snapshot that covers the log up to `index`, with this many bytes written by then.
    pub(crate) fn covered(&self, index: u64, log_bytes: u64) {
        self.snapshots.lock().push_back(Point { index, log_bytes });
    }

    /// The last index that may be purged, given the bytes of the log.
    pub(crate) fn purge_up_to(&self, log_bytes: u64) -> Option<u64> {
        let mut snapshots = self.snapshots.lock();
        let covered = snapshots.back()?.index;
        // The last entry that all have stays: a restarted leader sends it as the predecessor to members with
        // nothing behind it, and knows no purged entry.
        let all = self.with_all().and_then(|all| all.checked_sub(1)).map(|all| all.min(covered));
        let too_much = snapshots
            .iter()
            .rev()
            .find(|point| log_bytes.saturating_sub(point.log_bytes) >= self.kept_bytes_max);
        let up_to = all.max(too_much.map(|point| point.index))?;
        // The newest stays: the log may be purged up to it later.
        while snapshots.len() > 1 && snapshots[1].index <= up_to {
            snapshots.pop_front();
        }
        Some(up_to)
    }

    /// Announces a purge up to this entry.
    pub(crate) fn purge_begins(&self, index: u64) {
        self.purging.fetch_max(index, Ordering::Relaxed);
    }

    /// Whether the log keeps the entry after this one.
    pub(crate) fn keeps_entry_after(&self, previous: Option<LogId>) -> bool {
        previous.map_or(0, |id| id.index) >= self.purging.load(Ordering::Relaxed)
    }

    /// Records the progress of a member that lacks purged entries and receives a snapshot.
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

    /// Whether the node votes in the group. A learner may delete its log: a removed replica is deleted at the next
    /// start of its node, also if the node was added again meanwhile.
    pub(crate) fn is_voter(&self, node: u64) -> bool {
        let Some(server) = self.server.get() else { return false };
        let members = Arc::clone(&server.borrow_watched().membership_config);
        members.membership().voter_ids().any(|id| id == node)
    }

    /// Records that the member lacks entries that it acknowledged to this leader.
    pub(crate) fn found_lost(&self, node: u64) {
        self.lost.lock().insert(node);
    }

    pub(crate) fn take_lost(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lost.lock()).into_iter().collect()
    }

    /// This node does not lead: other nodes have this state.
    pub(crate) fn clear_catching_up(&self) {
        self.catching_up.lock().clear();
    }

    pub(crate) fn is_catching_up(&self, node: u64) -> bool {
        self.catching_up.lock().contains_key(&node)
    }

    pub(crate) fn catching_up(&self) -> BTreeMap<u64, CatchUp> {
        self.catching_up.lock().clone()
    }
}

/// The last durable entry of each other member, as the leader knows it.
pub(crate) type MatchIndexes = BTreeMap<u64, Option<LogId>>;

#[cfg(test)]
mod tests {
    use base::limits::KEPT_LOG_BYTES_MAX;

    use super::*;
    use crate::engine::log_id;

    #[test]
    fn log_is_purged_up_to_an_entry_that_all_have_and_a_snapshot_covers() {
        let retention = Retention::new(KEPT_LOG_BYTES_MAX);
        assert_eq!(retention.purge_up_to(0), None);
        retention.covered(100, 5_000);
        assert_eq!(retention.purge_up_to(6_000), None, "nobody knows what the others have");
        let matched =
            |second| MatchIndexes::from([(2, Some(log_id(1, second))), (3, Some(log_id(1, 80)))]);
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
    fn log_kept_for_a_dead_member_is_bounded_in_bytes() {
        let retention = Retention::new(KEPT_LOG_BYTES_MAX);
        for point in 1..=10 {
            retention.covered(point * 100, point * (KEPT_LOG_BYTES_MAX / 4));
        }
        assert_eq!(retention.purge_up_to(10 * (KEPT_LOG_BYTES_MAX / 4)), Some(600));
        assert_eq!(retention.purge_up_to(11 * (KEPT_LOG_BYTES_MAX / 4)), Some(700));
    }
}
