//! The election after a leader's process is gone.
//!
//! A silent leader keeps its lease: it may be slow. When a process is killed, however, its system closes its
//! connections, and its address refuses new ones. A follower that sees this queries the other voters. If a
//! majority sees it too, the follower campaigns at once.
//!
//! One voter alone may be mistaken: the network between it and the leader may have been cut. A majority may be as
//! well, if a device between the nodes resets connections. Then a live leader loses its term, but not more often
//! than once in [`STANDS_EVERY`]. A node whose last campaign was right, since that process is still gone, does not
//! wait.
//!
//! A process is a node's boot: a leader that was restarted before its election is not mistaken for the dead one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Weak;
use std::time::Duration;

use base::ShardId;
use consensus::{Consensus, LogEnd, Members, Role};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use links::{Lane, Links, NodeId, StatusWatch};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout_at};
use world::Instant;

use crate::wire::{ControlRequest, Opinion, Process};

/// A voter without a reply for this long counts as not having seen it.
const ANSWERED_WITHIN: Duration = Duration::from_millis(150);
/// Poll interval while a leader's process may be gone.
const LOOKS_EVERY: Duration = Duration::from_millis(25);
/// Voters campaign one after the other, so that they do not split the votes: first the one with the last log end.
/// A voter with a shorter log cannot win, and would use up the term in which the other one campaigns.
const STANDS_AFTER: Duration = Duration::from_millis(60);
/// Delay of a node that is to campaign last, so that another can be elected. It has to campaign nevertheless: its
/// log may be the only one that is long enough.
const STANDS_LAST_AFTER: Duration = Duration::from_millis(250);
/// Minimum interval between campaigns of a mistaken node in a group.
const STANDS_EVERY: Duration = Duration::from_secs(10);

/// Whether a process looks gone, as this node sees it.
pub(crate) fn looks_gone(links: &Links, process: Process) -> bool {
    let status = links.peer(process.node).map(|peer| peer.status(Lane::Control));
    status.is_some_and(|status| status.looks_gone(process.boot, Instant::now()))
}

/// Watches one group, until its links or consensus have ended.
pub(crate) struct Succession {
    links: Weak<Links>,
    shard: ShardId,
    group: Consensus,
    /// The time and the dead process of the last campaign.
    stood: Option<(Instant, Process)>,
}

impl Succession {
    pub(crate) fn new(links: Weak<Links>, shard: ShardId, group: Consensus) -> Self {
        Self { links, shard, group, stood: None }
    }

    pub(crate) async fn run(mut self) {
        let mut role = self.group.role();
        loop {
            let now = *role.borrow_and_update();
            if let Role::Follower { leader, term } = now {
                let replaced = pin!(changed(&mut role));
                let gone = pin!(self.follow(leader, term));
                tokio::select! {
                    biased;
                    () = replaced => {}
                    () = gone => {}
                }
            } else {
                changed(&mut role).await;
            }
        }
    }

    /// Watches a leader until it is gone, then campaigns.
    async fn follow(&mut self, leader: u64, term: u64) {
        self.link_members();
        let Some(process) = self.process_of(NodeId(leader)).await else {
            return std::future::pending().await;
        };
        let mut has_told = false;
        loop {
            self.until_it_looks_gone(process).await;
            if let Some(turn) = self.turn(process).await {
                let last = self.group.campaigns_last().then_some(STANDS_LAST_AFTER);
                sleep(STANDS_AFTER * turn + last.unwrap_or_default()).await;
                self.stood = Some((Instant::now(), process));
                let stands = self.group.succeed(leader, term).await;
                if stands || !has_told {
                    tracing::info!(shard = %self.shard, leader, term, stands, "the leader's process is gone");
                }
                has_told = true;
            }
            sleep(LOOKS_EVERY).await;
        }
    }

    /// Connects the members: the end of a process that was never connected cannot be seen.
    fn link_members(&self) {
        let Some(links) = self.links.upgrade() else { return };
        let Members { voters, learners } = self.group.members();
        for (node, address) in voters.into_iter().chain(learners) {
            if links.peer(NodeId(node)).is_none() {
                links.set_peer(NodeId(node), &address);
            }
        }
    }

    /// The leader's process, once this node is connected to it; `None` if it never will be.
    async fn process_of(&self, leader: NodeId) -> Option<Process> {
        let mut status = self.status_of(leader)?;
        let mut seen = status.get();
        loop {
            if let Some(boot) = seen.connected_boot() {
                return Some(Process { node: leader, boot });
            }
            seen = status.changed().await?;
        }
    }

    fn status_of(&self, node: NodeId) -> Option<StatusWatch> {
        Some(self.links.upgrade()?.peer(node)?.watch(Lane::Control))
    }

    /// The earliest time of the next campaign.
    fn may_stand_at(&self) -> Instant {
        let now = Instant::now();
        let Some((at, former)) = self.stood else { return now };
        let was_right = self.links.upgrade().is_some_and(|links| looks_gone(&links, former));
        if was_right { now } else { at + STANDS_EVERY }
    }

    async fn until_it_looks_gone(&self, process: Process) {
        let Some(mut status) = self.status_of(process.node) else {
            return std::future::pending().await;
        };
        loop {
            let seen = status.get();
            if seen.looks_gone(process.boot, Instant::now()) {
                let may_stand_at = self.may_stand_at();
                if may_stand_at <= Instant::now() {
                    return;
                }
                // It may be there again by then.
                sleep_until(may_stand_at.min(Instant::now() + LOOKS_EVERY)).await;
                continue;
            }
            // A connection attempt without a reply becomes evidence after some time.
            let passes = async {
                match seen.last.is_some_and(|last| last.end.is_by_peer()) {
                    true => sleep(LOOKS_EVERY).await,
                    false => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = status.changed() => if changed.is_none() {
                    return std::future::pending().await;
                },
                () = passes => {}
            }
        }
    }

    /// The voters except the leader, in the order in which they campaign.
    fn voters(&self, leader: u64) -> (usize, BTreeMap<u64, String>) {
        let mut voters = self.group.members().voters;
        let count = voters.len();
        voters.remove(&leader);
        (count, voters)
    }

    /// Number of voters that campaign before this one; `None` if no majority sees that the process is gone.
    async fn turn(&self, process: Process) -> Option<u32> {
        let links = self.links.upgrade()?;
        let here = links.identity().at.node.0;
        let (count, others) = self.voters(process.node.0);
        if !others.contains_key(&here) || !looks_gone(&links, process) {
            return None;
        }
        let deadline = Instant::now() + ANSWERED_WITHIN;
        let asked = others.into_keys().filter(|node| *node != here).filter_map(|node| {
            let peer = links.peer(NodeId(node))?;
            let message = ControlRequest::LooksGone(process).into();
            let shard = self.shard;
            let answer = async move { peer.request(Lane::Control, shard, message, deadline).await };
            Some(answer.map(move |answer| (node, answer)))
        });
        let mut answers: FuturesUnordered<_> = asked.collect();
        drop(links);
        let mut opinions = BTreeMap::new();
        while let Ok(Some((node, answer))) = timeout_at(deadline, answers.next()).await {
            if let Some(opinion) = answer.ok().as_ref().and_then(Opinion::of) {
                opinions.insert(node, opinion);
            }
        }
        let agree = 1 + opinions.values().filter(|opinion| opinion.looks_gone).count();
        let own = (self.group.log_end(), here);
        (agree > count / 2).then(|| standing_before(own, &opinions))
    }
}

/// Number of voters that campaign before one, given its log end: those with later log ends, and those with equal
/// ends and smaller numbers.
fn standing_before((log_end, here): (LogEnd, u64), others: &BTreeMap<u64, Opinion>) -> u32 {
    let before = |(node, other): &(&u64, &Opinion)| {
        (Reverse(other.log_end), **node) < (Reverse(log_end), here)
    };
    others.iter().filter(before).count() as u32
}

async fn changed(role: &mut watch::Receiver<Role>) {
    if role.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voters_campaign_by_longest_log_then_smallest_number() {
        let end = |term, index| LogEnd { term, index };
        let ends = [(1, end(3, 50)), (2, end(4, 7)), (3, end(4, 9)), (4, end(4, 9))];
        let turn = |here: u64| {
            let opinion = |(node, log_end): &(u64, LogEnd)| {
                let opinion = Opinion { looks_gone: true, log_end: *log_end };
                (*node != here).then_some((*node, opinion))
            };
            let (_, own) = ends[here as usize - 1];
            standing_before((own, here), &ends.iter().filter_map(opinion).collect())
        };
        assert_eq!([1, 2, 3, 4].map(turn), [3, 2, 0, 1]);
    }
}
