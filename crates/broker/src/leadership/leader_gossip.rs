//! Leadership gossip: the groups led by the other nodes.
//!
//! A node without a replica of a shard does not learn its leader from Raft. So each node sends all others the groups
//! that it leads, with the term and members of each. Gossip counts where Raft knows no leader, or one of an older
//! term: requests go to the node named by gossip, which checks itself whether it leads.
//!
//! A node's report is kept until its next one. It names a leader while that node is connected, and for [`COUNTS_FOR`]
//! after that. The members in it are used for longer, since they rarely change.

use std::collections::BTreeMap;
use std::time::Duration;

use base::ShardId;
use parking_lot::Mutex;
use shard::local_shard::{NewestReport, ReportedGroup};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Time for which a disconnected node still counts as a leader by gossip.
const COUNTS_FOR: Duration = Duration::from_secs(2);

/// The last report of each other node.
#[derive(Debug, Default)]
pub(crate) struct LeaderGossip {
    reports: Mutex<BTreeMap<u64, NodeReport>>,
    pub(crate) changed: Notify,
}

#[derive(Debug)]
struct NodeReport {
    groups: Vec<ReportedGroup>,
    /// Time of the loss of the connection, if the node is not connected.
    gone_since: Option<Instant>,
}

impl LeaderGossip {
    pub(crate) fn receive(&self, from: u64, groups: Vec<ReportedGroup>) {
        self.reports.lock().insert(from, NodeReport { groups, gone_since: None });
        self.changed.notify_one();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reports.lock().is_empty()
    }

    /// Updates the connection state of the reporting nodes.
    pub(crate) fn update_connections(&self, is_connected: impl Fn(u64) -> bool, now: Instant) {
        for (node, report) in &mut *self.reports.lock() {
            report.gone_since = match is_connected(*node) {
                true => None,
                false => report.gone_since.or(Some(now)),
            };
        }
    }

    /// Returns the newest report on each group.
    pub(crate) fn known(&self, now: Instant) -> BTreeMap<ShardId, NewestReport> {
        let mut newest: BTreeMap<ShardId, NewestReport> = BTreeMap::new();
        for (by, NodeReport { groups, gone_since }) in &*self.reports.lock() {
            let counts = gone_since.is_none_or(|since| now < since + COUNTS_FOR);
            for group in groups {
                let is_newer = |known: &NewestReport| known.group.term < group.term;
                if newest.get(&group.shard).is_none_or(is_newer) {
                    newest.insert(
                        group.shard,
                        NewestReport { by: *by, group: group.clone(), counts },
                    );
                }
            }
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use consensus::ReportedLeader;

    use super::*;

    const SHARD: ShardId = ShardId::FIRST;

    fn group(term: u64) -> ReportedGroup {
        ReportedGroup { shard: SHARD, term, voters: vec![1, 2, 3], learners: vec![5] }
    }

    fn leader(leader_gossip: &LeaderGossip, now: Instant) -> Option<ReportedLeader> {
        leader_gossip.known(now).get(&SHARD)?.leader()
    }

    #[test]
    fn newest_reported_term_names_the_leader() {
        let (leader_gossip, now) = (LeaderGossip::default(), Instant::now());
        assert_eq!(leader(&leader_gossip, now), None);
        leader_gossip.receive(1, vec![group(5)]);
        leader_gossip.receive(2, vec![group(4)]);
        assert_eq!(leader(&leader_gossip, now), Some(ReportedLeader { node: 1, term: 5 }));
        leader_gossip.receive(3, vec![group(6)]);
        assert_eq!(leader(&leader_gossip, now), Some(ReportedLeader { node: 3, term: 6 }));
        leader_gossip.receive(3, Vec::new());
        assert_eq!(leader(&leader_gossip, now), Some(ReportedLeader { node: 1, term: 5 }));
        let known = leader_gossip.known(now);
        assert!(known[&SHARD].group.has(5) && !known[&SHARD].group.has(4));
    }

    #[test]
    fn disconnected_leader_counts_for_a_while_and_again_once_reconnected() {
        let (leader_gossip, begun) = (LeaderGossip::default(), Instant::now());
        leader_gossip.receive(1, vec![group(5)]);
        leader_gossip.update_connections(|_| false, begun);
        let soon = begun + COUNTS_FOR / 2;
        leader_gossip.update_connections(|_| false, soon);
        assert!(leader(&leader_gossip, soon).is_some());
        let later = begun + COUNTS_FOR;
        assert_eq!(leader(&leader_gossip, later), None);
        assert_eq!(
            leader_gossip.known(later)[&SHARD].group.voters,
            [1, 2, 3],
            "the members are known"
        );
        leader_gossip.update_connections(|_| true, later);
        assert!(leader(&leader_gossip, later).is_some());
    }

    #[test]
    fn older_term_does_not_count_while_the_newer_leader_is_disconnected() {
        let (leader_gossip, begun) = (LeaderGossip::default(), Instant::now());
        leader_gossip.receive(1, vec![group(5)]);
        leader_gossip.receive(2, vec![group(6)]);
        leader_gossip.update_connections(|node| node == 1, begun);
        // The leader of the older term was replaced, whatever it reports.
        assert_eq!(leader(&leader_gossip, begun + COUNTS_FOR), None);
    }
}
