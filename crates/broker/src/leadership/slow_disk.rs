//! Moves leadership off a disk that is slow, hangs or is full, while other members of the shard work. A follower with
//! such a disk delays no client: a majority acknowledges without it. A leader with such a disk delays all its
//! clients.
//!
//! A disk that was stuck or full is *unwell* until it has been well for a while. Meanwhile its node gets no shard
//! handed over, and campaigns after the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::limits::APPEND_ENTRIES_MAX;
use cluster::Node;
use consensus::{Progress, Role};
use futures_util::future::join_all;
use shard::LocalShard;
use shard_peers::Remote;
use tokio::time::{Instant, MissedTickBehavior, timeout};

use super::disk_health::DiskHealth;
use super::leader_balance::{connected_for, hand_over};
use crate::limits::{CAMPAIGNS_ANYWAY_AFTER, DISK_SLOW_AFTER, DISK_STUCK_AFTER, DISK_WELL_AFTER};

const STUCK_REASON: &str = "the disk is stuck";
const FULL_REASON: &str = "the disk is full";
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Delay of a check from which the process counts as paused meanwhile.
const PAUSED_AFTER: Duration = Duration::from_millis(250);
/// Time from one attempt to hand a shard over to the next one. Writes of the shard fail or wait meanwhile.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Silence after which a leader counts as lost: it sends several heartbeats in this time.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// A disk that hangs may block the engine, too.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(2);

/// Time since which this process has run without a pause. During a pause (SIGSTOP, a paused virtual machine) the
/// state of the disk is unknown.
#[derive(Debug)]
struct UninterruptedRun {
    since: Instant,
    checked: Instant,
}

impl UninterruptedRun {
    fn new(now: Instant) -> Self {
        Self { since: now, checked: now }
    }

    fn note_check(&mut self, now: Instant) {
        if now >= self.checked + PAUSED_AFTER {
            self.since = now;
        }
        self.checked = now;
    }

    /// Returns for how long a busy disk was observed to be busy, given its own report `busy_for`.
    fn seen(&self, busy_for: Option<Duration>) -> Option<Duration> {
        busy_for.map(|busy_for| busy_for.min(self.checked - self.since))
    }
}

/// Observations of a shard whose journal is busy for long.
#[derive(Debug, Default)]
struct Stall {
    /// Progress of the other members when it began.
    begun: Option<BTreeMap<u64, u64>>,
    not_before: Option<Instant>,
    leaderless_since: Option<Instant>,
}

impl Stall {
    /// Returns the members that make progress while this node's disk does not, and lag by little, in ascending order
    /// of lag.
    fn candidates(&mut self, busy_for: Option<Duration>, progress: Option<&Progress>) -> Vec<u64> {
        let busy_for = busy_for.filter(|busy| *busy >= DISK_SLOW_AFTER);
        let Some((busy_for, progress)) = busy_for.zip(progress) else {
            self.begun = None;
            return Vec::new();
        };
        let begun = self.begun.get_or_insert_with(|| progress.matched.clone());
        if busy_for < DISK_STUCK_AFTER {
            return Vec::new();
        }
        let makes_progress = |(node, has): &(&u64, &u64)| {
            let lacks = progress.last.saturating_sub(**has);
            let moved = begun.get(node).is_none_or(|had| had < has);
            lacks == 0 || (moved && lacks <= APPEND_ENTRIES_MAX as u64)
        };
        let mut found: Vec<(u64, u64)> = progress
            .matched
            .iter()
            .filter(makes_progress)
            .map(|(node, has)| (*has, *node))
            .collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, node)| node).collect()
    }

    /// Whether a hand-over may be tried, at most once in [`RETRY_AFTER`].
    fn may_try(&mut self, now: Instant) -> bool {
        let may = self.not_before.is_none_or(|at| at <= now);
        if may {
            self.not_before = Some(now + RETRY_AFTER);
        }
        may
    }

    /// Whether the node may campaign in the shard. `has_leader`: another leader sent a heartbeat lately.
    fn may_campaign(&mut self, is_well: bool, role: Role, has_leader: bool, now: Instant) -> bool {
        let leaderless = match role {
            Role::None => true,
            Role::Leader { .. } => false,
            // The leader may be gone, and without a campaign this node finds no other one.
            Role::Follower { .. } | Role::Learner { .. } => !has_leader,
        };
        let since = leaderless.then(|| self.leaderless_since.unwrap_or(now));
        self.leaderless_since = since;
        is_well || since.is_some_and(|since| now >= since + CAMPAIGNS_ANYWAY_AFTER)
    }
}

/// Returns the members that lag by little, in ascending order of lag.
fn up_to_date(progress: &Progress) -> Vec<u64> {
    let lacks_little = |has: &u64| progress.last.saturating_sub(*has) <= APPEND_ENTRIES_MAX as u64;
    let mut found: Vec<(u64, u64)> = progress
        .matched
        .iter()
        .filter(|(_, has)| lacks_little(has))
        .map(|(node, has)| (*has, *node))
        .collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, node)| node).collect()
}

/// Hands a shard over to the first of these nodes with a well disk, otherwise to the first one with a disk that
/// works: a disk that was unwell a minute ago is better than one that is stuck or full now. `why`: the state of this
/// node's disk.
async fn hand_on(
    remote: &Remote,
    health: &DiskHealth,
    shard: &LocalShard,
    candidates: Vec<u64>,
    why: &str,
) {
    let connected = |node: &u64| connected_for(remote.node(), *node).is_some();
    let queries = candidates.into_iter().filter(connected).map(async |node| {
        let has_well_disk = remote.has_well_disk(node).await?;
        (has_well_disk || !health.is_full_elsewhere(node)).then_some((node, has_well_disk))
    });
    let mut able: Vec<(u64, bool)> = join_all(queries).await.into_iter().flatten().collect();
    // The sort is stable: the most complete members stay first.
    able.sort_by_key(|(_, has_well_disk)| !has_well_disk);
    if let Some((to, _)) = able.first().copied() {
        tracing::warn!(shard = %shard.id(), to, "{why}: the shard is handed over");
        let _ = timeout(HANDED_OVER_WITHIN, hand_over(shard, to)).await;
    }
}

/// Watches the disk. Ends when the shards are gone.
pub(crate) async fn run(node: Arc<Node>, health: Arc<DiskHealth>, shards: Vec<Weak<LocalShard>>) {
    let remote = Remote::new(&node);
    let mut was_full = false;
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stalls: Vec<Stall> = Vec::new();
    stalls.resize_with(shards.len(), Stall::default);
    let mut awake = UninterruptedRun::new(Instant::now());
    loop {
        ticks.tick().await;
        let now = Instant::now();
        awake.note_check(now);
        let is_full = shards.iter().filter_map(Weak::upgrade).any(|shard| shard.disk_is_full());
        if is_full {
            health.note_stuck(now);
        }
        if std::mem::replace(&mut was_full, is_full) != is_full {
            match is_full {
                true => tracing::warn!(
                    "the disk is full: other nodes are to lead where they can; free some space, or delete records or topics"
                ),
                false => tracing::info!(
                    well_in_s = DISK_WELL_AFTER.as_secs(),
                    "the disk has room: this node is to lead again in a while"
                ),
            }
        }
        let mut handing = Vec::new();
        for (stall, shard) in stalls.iter_mut().zip(&shards) {
            let Some(shard) = shard.upgrade() else { return };
            let busy_for = awake.seen(shard.journal().stats().busy_for);
            if busy_for >= Some(DISK_STUCK_AFTER) {
                if health.is_well(now) {
                    tracing::warn!(shard = %shard.id(), "the disk is stuck: other nodes are to lead where they can");
                }
                health.note_stuck(now);
            } else if busy_for >= Some(DISK_SLOW_AFTER) {
                health.note_slow(now);
            }
            if let Some(role) = shard.role() {
                let role = *role.borrow();
                let has_leader = shard.consensus.has_recent_leader(SILENT_AFTER);
                let may_campaign = stall.may_campaign(health.is_well(now), role, has_leader, now);
                shard.consensus.set_may_campaign(may_campaign);
            }
            // Determined only where needed: this loop runs twenty times a second.
            let is_slow = busy_for >= Some(DISK_SLOW_AFTER);
            let progress = (is_slow || is_full).then(|| shard.consensus.progress()).flatten();
            let (mut candidates, mut why) =
                (stall.candidates(busy_for, progress.as_ref()), STUCK_REASON);
            if candidates.is_empty() && is_full {
                (candidates, why) =
                    (progress.as_ref().map(up_to_date).unwrap_or_default(), FULL_REASON);
            }
            if !candidates.is_empty() && stall.may_try(now) {
                handing.push((shard, candidates, why));
            }
        }
        let (remote, health) = (&remote, health.as_ref());
        let handing = handing.into_iter().map(async |(shard, candidates, why)| {
            hand_on(remote, health, &shard, candidates, why).await;
        });
        join_all(handing).await;
        awake.checked = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUCK: Option<Duration> = Some(DISK_STUCK_AFTER);
    const SLOW: Option<Duration> = Some(DISK_SLOW_AFTER);

    fn progress(last: u64, matched: [(u64, u64); 2]) -> Progress {
        Progress { last, matched: matched.into() }
    }

    #[test]
    fn shard_of_a_stuck_disk_goes_to_the_most_complete_working_member() {
        let mut stall = Stall::default();
        let then = progress(10, [(2, 8), (3, 7)]);
        assert_eq!(stall.candidates(SLOW, Some(&then)), [0; 0]);
        let now = progress(20, [(2, 15), (3, 20)]);
        assert_eq!(stall.candidates(STUCK, Some(&now)), [3, 2]);
    }

    #[test]
    fn shard_stays_if_the_other_members_are_stuck_too() {
        let mut stall = Stall::default();
        let then = progress(10, [(2, 8), (3, 7)]);
        assert_eq!(stall.candidates(SLOW, Some(&then)), [0; 0]);
        assert_eq!(stall.candidates(STUCK, Some(&progress(20, [(2, 8), (3, 7)]))), [0; 0]);
        // A member that lags much would have to catch up first.
        let far = progress(20 + APPEND_ENTRIES_MAX as u64, [(2, 8), (3, 9)]);
        assert_eq!(stall.candidates(STUCK, Some(&far)), [0; 0]);
    }

    #[test]
    fn nearly_complete_members_are_candidates_and_the_most_complete_first() {
        let far = 1 + APPEND_ENTRIES_MAX as u64;
        let progress = Progress { last: far, matched: [(2, far - 1), (3, far), (4, 0)].into() };
        assert_eq!(up_to_date(&progress), [3, 2]);
    }

    #[test]
    fn full_disk_of_another_node_counts_until_it_reports_room() {
        let health = DiskHealth::default();
        health.set_full(2, true);
        assert!(health.is_full_elsewhere(2) && !health.is_full_elsewhere(3));
        health.set_full(2, false);
        assert!(!health.is_full_elsewhere(2));
    }

    #[test]
    fn pause_of_the_process_does_not_count_as_a_slow_disk() {
        let mut now = Instant::now();
        let mut awake = UninterruptedRun::new(now);
        let mut look = |after| {
            now += after;
            awake.note_check(now);
            awake.seen(Some(Duration::from_secs(9)))
        };
        for _ in 0..20 {
            look(CHECK_INTERVAL);
        }
        assert_eq!(look(CHECK_INTERVAL), Some(21 * CHECK_INTERVAL));
        assert_eq!(look(Duration::from_secs(4)), Some(Duration::ZERO));
        assert_eq!(look(CHECK_INTERVAL), Some(CHECK_INTERVAL));
        assert_eq!(awake.seen(None), None);
    }

    #[test]
    fn progress_of_others_is_recorded_again_for_each_stall() {
        let mut stall = Stall::default();
        let then = progress(10, [(2, 8), (3, 7)]);
        assert_eq!(stall.candidates(SLOW, Some(&then)), [0; 0]);
        assert_eq!(stall.candidates(None, Some(&then)), [0; 0]);
        let later = progress(30, [(2, 28), (3, 27)]);
        assert_eq!(stall.candidates(SLOW, Some(&later)), [0; 0]);
        assert_eq!(stall.candidates(STUCK, Some(&later)), [0; 0], "nobody has moved since");
        assert_eq!(stall.candidates(STUCK, None), [0; 0], "it does not lead");
    }

    #[test]
    fn stuck_disk_is_unwell_until_it_was_well_for_a_while() {
        let (health, mut now) = (DiskHealth::default(), Instant::now());
        health.note_slow(now);
        assert!(health.is_well(now), "slow is not stuck");
        health.note_stuck(now);
        now += DISK_WELL_AFTER / 2;
        health.note_slow(now);
        now += DISK_WELL_AFTER * 3 / 4;
        assert!(!health.is_well(now));
        now += DISK_WELL_AFTER / 2;
        assert!(health.is_well(now));
    }

    #[test]
    fn node_with_an_unwell_disk_campaigns_after_long_without_a_leader() {
        let (mut stall, mut now) = (Stall::default(), Instant::now());
        let follower = Role::Follower { leader: 2, term: 1 };
        assert!(stall.may_campaign(true, Role::None, false, now));
        assert!(!stall.may_campaign(false, follower, true, now));
        assert!(!stall.may_campaign(false, Role::None, false, now));
        now += CAMPAIGNS_ANYWAY_AFTER;
        assert!(stall.may_campaign(false, Role::None, false, now));
        assert!(!stall.may_campaign(false, follower, true, now));
        assert!(!stall.may_campaign(false, Role::None, false, now));
        // A follower's silent leader does not count as a leader.
        assert!(!stall.may_campaign(false, follower, true, now));
        assert!(!stall.may_campaign(false, follower, false, now));
        now += CAMPAIGNS_ANYWAY_AFTER;
        assert!(stall.may_campaign(false, follower, false, now));
    }
}
