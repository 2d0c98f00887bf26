//! Propagation of changes of the catalog: a change is confirmed once every connected node follows it.
//!
//! The node that made the change requests each connected node to follow the catalog's log up to the change. A node
//! replies once its copy has the change, and memory follows the copy: declared queues and bindings, users, quotas.
//! Changes made meanwhile share the next requests.
//!
//! A change does not wait for a node that starts, is cut off, paused, or behind by more than [`BEHIND_AFTER`]. Such a node
//! detects that itself, and is *behind* from then on, until it has passed the catalog's barrier. Meanwhile its gateways
//! wait before they route a message or judge a right ([`crate::Broker::definitions_are_current`]), at most for
//! [`HELD_FOR`]. A node that is connected to a majority of the catalog's voters, but not to their leader, then rejects
//! messages. A node without that majority goes on with the definitions that it has, so that the loss of the catalog
//! stops no producer.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use links::limits::LINK_SILENT_AFTER;
use links::{Lane, NodeId};
use parking_lot::Mutex;
use shard::barrier::Barriers;
use shard::error::Unavailable;
use shard::{LocalShard, Shard};
use shard_peers::Remote;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use world::Instant;

/// Time limit for a connected node's reply. A link to a silent node ends earlier.
const PROPAGATED_WITHIN: Duration = Duration::from_secs(2);
/// A node that does not have a change this long after the request for it is behind.
const BEHIND_AFTER: Duration = Duration::from_millis(500);
/// A node that did not run for this long is behind, for the same reason.
const PAUSED_AFTER: Duration = Duration::from_secs(1);
/// A node is cut off if the catalog's leader is silent for this long. Shorter than [`LINK_SILENT_AFTER`], as others
/// may regard the node as disconnected after that.
const LEADER_SILENT_AFTER: Duration = Duration::from_secs(1);
/// Longest time for which a gateway waits on a node that is behind.
const HELD_FOR: Duration = Duration::from_secs(2);
const _: () = assert!(PAUSED_AFTER.as_millis() + 400 < LINK_SILENT_AFTER.as_millis());
/// Interval of checks, and of barriers on a node that is behind.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Delay before a request is sent again over a link that was lost.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Brings a part of memory up to date with the copy of the catalog; false once that part is gone.
pub(crate) type CatchUp = Box<dyn Fn() -> bool + Send + Sync>;

/// A node's part in the propagation of changes.
pub(crate) struct Propagation {
    followers: Mutex<Vec<CatchUp>>,
    /// Requests to the other nodes.
    rounds: Barriers,
    behind: watch::Sender<Behind>,
    /// As in `behind`, for gateways.
    is_behind: AtomicBool,
    started: Instant,
    /// Time of the last check, in milliseconds since `started`.
    checked_ms: AtomicU64,
    /// Whether the catalog's leader was in touch at the last check.
    had_leader: AtomicBool,
}

/// Whether this node's copy may lack changes that were confirmed at other nodes.
#[derive(Clone, Copy, Debug)]
struct Behind {
    since: Option<Instant>,
    /// Number of times that the node fell behind: a barrier ends only those before it.
    times: u64,
}

/// Effect on the time for which gateways wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It begins now: the node may catch up soon.
    Begun,
    /// It goes on if the node was behind before.
    Continued,
}

impl Default for Propagation {
    /// A node that starts is behind.
    fn default() -> Self {
        Self {
            followers: Mutex::default(),
            rounds: Barriers::default(),
            behind: watch::Sender::new(Behind { since: Some(Instant::now()), times: 0 }),
            is_behind: AtomicBool::new(true),
            started: Instant::now(),
            checked_ms: AtomicU64::new(0),
            had_leader: AtomicBool::new(false),
        }
    }
}

impl fmt::Debug for Propagation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Propagation")
            .field("behind", &*self.behind.borrow())
            .finish_non_exhaustive()
    }
}

impl Propagation {
    /// Serves the request of another node: waits until this node follows the log up to `index`. False: it is behind.
    pub(crate) async fn follow(&self, catalog: &Shard, index: u64) -> bool {
        self.follow_once(catalog.applied() >= index, catalog.applied_to(index)).await
    }

    async fn follow_once(&self, has_applied: bool, applied: impl Future<Output = ()>) -> bool {
        if !has_applied {
            let is_behind = self.is_behind.load(Ordering::Acquire);
            if is_behind || timeout(BEHIND_AFTER, applied).await.is_err() {
                self.fall_behind(Hold::Continued);
                return false;
            }
        }
        self.catch_up();
        true
    }

    /// Brings memory up to date with the copy.
    fn catch_up(&self) {
        self.followers.lock().retain(|catch_up| catch_up());
    }

    fn fall_behind(&self, hold: Hold) {
        self.behind.send_modify(|behind| {
            behind.since =
                behind.since.filter(|_| hold == Hold::Continued).or(Some(Instant::now()));
            behind.times += 1;
            self.is_behind.store(true, Ordering::Release);
        });
    }

    /// The copy has all changes that were confirmed before the node fell behind for the given time.
    fn is_current_again(&self, times: u64) {
        self.catch_up();
        self.behind.send_modify(|behind| {
            if behind.times == times {
                behind.since = None;
                self.is_behind.store(false, Ordering::Release);
            }
        });
    }

    async fn held(&self) -> Result<(), Unavailable> {
        let mut behind = self.behind.subscribe();
        let since = behind.borrow_and_update().since;
        let Some(since) = since else { return Ok(()) };
        let held = HELD_FOR.saturating_sub(since.elapsed());
        match timeout(held, behind.wait_for(|behind| behind.since.is_none())).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Unavailable::Unanswered),
        }
    }

    fn unchecked_for(&self) -> Duration {
        let checked = Duration::from_millis(self.checked_ms.load(Ordering::Acquire));
        self.started.elapsed().saturating_sub(checked)
    }

    /// Detects that the node was paused or cut off, or is cut off.
    fn check(&self, has_leader: bool) {
        let had_leader = self.had_leader.swap(has_leader, Ordering::AcqRel);
        if has_leader != had_leader || self.unchecked_for() > PAUSED_AFTER {
            self.fall_behind(Hold::Begun);
        }
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.checked_ms.store(now, Ordering::Release);
    }
}

impl Propagation {
    /// Waits until every connected node follows the changes that the copy of this node has, or knows that it is behind.
    pub(crate) async fn reach_all(&self, remote: &Remote, catalog: &Shard) {
        let round = async {
            let (index, deadline) = (catalog.applied(), Instant::now() + PROPAGATED_WITHIN);
            let nodes = remote.node().links().connected(Lane::Control);
            let requests = nodes.into_iter().map(|node| propagate(remote, node, index, deadline));
            for (node, _) in join_all(requests).await.into_iter().filter(|(_, follows)| !follows) {
                tracing::warn!(%node, index, "a change is confirmed although this node has not replied");
            }
            Ok(())
        };
        // A round cannot fail.
        let _: Result<(), Unavailable> = self.rounds.pass(round).await;
    }

    /// Whether this node may lack definitions that were confirmed at other nodes.
    pub(crate) fn may_be_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire) || self.unchecked_for() > PAUSED_AFTER
    }

    /// Waits until this node is not behind, within [`HELD_FOR`] after it fell behind.
    pub(crate) async fn hold(&self, catalog: &LocalShard) -> Result<(), Unavailable> {
        self.check(has_leader(catalog));
        self.held().await
    }

    /// Calls `catch_up` before a change of another node is confirmed, until it returns false.
    pub(crate) fn add_follower(&self, catch_up: CatchUp) {
        self.followers.lock().push(catch_up);
    }
}

/// Requests a node to follow the log up to `index`, for as long as it is connected. Returns false if it does not
/// reply in time.
async fn propagate(remote: &Remote, node: NodeId, index: u64, deadline: Instant) -> (NodeId, bool) {
    let links = remote.node().links();
    while !remote.follow_catalog(node, index, deadline).await {
        if Instant::now() >= deadline {
            return (node, false);
        }
        if !links.connected(Lane::Control).contains(&node) {
            break;
        }
        sleep(RETRY_DELAY).await;
    }
    (node, true)
}

/// Whether this node serves as the catalog's leader, or the leader is in touch.
fn has_leader(catalog: &LocalShard) -> bool {
    catalog.serves_in().is_some() || catalog.consensus.has_recent_leader(LEADER_SILENT_AFTER)
}

/// Detects that this node is behind, until the catalog's shard is closed.
pub(crate) async fn watch(propagation: Arc<Propagation>, catalog: Weak<LocalShard>) {
    loop {
        sleep(CHECK_INTERVAL).await;
        let Some(catalog) = catalog.upgrade() else { return };
        propagation.check(has_leader(&catalog));
    }
}

/// Passes the catalog's barrier whenever this node is behind, until there is no `barrier` any more.
pub(crate) async fn recover(
    propagation: Arc<Propagation>,
    barrier: impl Fn() -> Option<BoxFuture<'static, Result<(), Unavailable>>>,
) {
    let mut behind = propagation.behind.subscribe();
    // The wait ends with an error only once the sender is gone, which `propagation` owns.
    while behind.wait_for(|behind| behind.since.is_some()).await.is_ok() {
        let times = behind.borrow().times;
        let Some(passing) = barrier() else { return };
        match passing.await {
            Ok(()) => propagation.is_current_again(times),
            Err(error) => {
                tracing::debug!(%error, "this node may lack definitions of other nodes");
                sleep(CHECK_INTERVAL).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::AtomicU32;

    use futures_util::FutureExt;

    use super::*;

    /// A node that is not behind, and the number of times that it has followed the catalog.
    fn node() -> (Propagation, Arc<AtomicU32>) {
        let (propagation, followed) = (Propagation::default(), Arc::<AtomicU32>::default());
        propagation.check(true);
        propagation.is_current_again(1);
        let counter = Arc::clone(&followed);
        propagation.followers.lock().push(Box::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
            true
        }));
        (propagation, followed)
    }

    fn is_behind(propagation: &Propagation) -> bool {
        propagation.is_behind.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn node_that_starts_is_behind_until_it_passes_a_barrier_of_the_catalogs_leader() {
        let propagation = Propagation::default();
        assert!(is_behind(&propagation));
        sleep(HELD_FOR).await;
        propagation.check(true);
        propagation.is_current_again(0);
        assert!(is_behind(&propagation));
        assert_eq!(propagation.held().now_or_never(), None);
        propagation.is_current_again(1);
        assert!(!is_behind(&propagation));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_follows_before_a_node_replies() {
        let (propagation, followed) = node();
        assert!(propagation.follow_once(false, sleep(BEHIND_AFTER / 2)).await);
        assert_eq!(followed.load(Ordering::SeqCst), 1);
        assert!(propagation.follow_once(true, pending()).await);
        assert_eq!(followed.load(Ordering::SeqCst), 2);
        assert!(!is_behind(&propagation));
        assert_eq!(propagation.held().now_or_never(), Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn node_without_the_change_is_behind_until_it_passes_a_barrier() {
        let (propagation, _) = node();
        assert!(!propagation.follow_once(false, pending()).await);
        assert!(is_behind(&propagation));
        assert_eq!(
            propagation.follow_once(false, pending()).now_or_never(),
            Some(false),
            "at once"
        );
        let times = propagation.behind.borrow().times;
        propagation.is_current_again(times - 1);
        assert!(is_behind(&propagation), "the barrier began before");
        let mut held = Box::pin(propagation.held());
        assert_eq!((&mut held).now_or_never(), None);
        propagation.is_current_again(times);
        assert_eq!(held.await, Ok(()));
        assert!(!is_behind(&propagation));
    }

    #[tokio::test(start_paused = true)]
    async fn gateways_wait_for_a_node_that_is_behind_for_a_limited_time() {
        let (propagation, _) = node();
        propagation.check(false);
        let begun = Instant::now();
        assert!(propagation.held().await.is_err());
        assert_eq!(begun.elapsed(), HELD_FOR);
        assert!(!propagation.follow_once(false, ready(())).await);
        assert!(propagation.held().now_or_never().is_some(), "it was behind before");
        sleep(CHECK_INTERVAL).await;
        propagation.check(true);
        assert_eq!(propagation.held().now_or_never(), None, "it may catch up now");
    }

    #[tokio::test(start_paused = true)]
    async fn pause_of_a_node_is_detected_by_its_next_check() {
        let (propagation, _) = node();
        for _ in 0..20 {
            sleep(CHECK_INTERVAL).await;
            propagation.check(true);
        }
        assert!(!is_behind(&propagation));
        sleep(PAUSED_AFTER + CHECK_INTERVAL).await;
        assert!(propagation.unchecked_for() > PAUSED_AFTER);
        propagation.check(true);
        assert!(is_behind(&propagation));
        assert!(propagation.unchecked_for() <= PAUSED_AFTER);
    }
}
