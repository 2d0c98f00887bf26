//! Meter of a session: the buckets that it is charged by, cached until a quota changes, and the time until which it
//! waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access_rules::OPERATOR;
use access_rules::quota::Quota;
use parking_lot::Mutex;
use tokio::time::sleep_until;
use world::Instant;

use super::bucket::Bucket;
use super::{Protocol, Quotas};
use crate::user_name::ANONYMOUS;

/// The client that is charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaClient<'a> {
    pub user: &'a str,
    /// The client's own name for itself; empty where it sends none.
    pub client: &'a str,
}

impl<'a> QuotaClient<'a> {
    /// `user`: `None` where the client did not log in.
    pub fn new(user: Option<&'a str>, client: &'a str) -> Self {
        Self { user: user.unwrap_or(ANONYMOUS), client }
    }
}

/// Meter of one session.
#[derive(Debug)]
pub struct Meter {
    quotas: Quotas,
    protocol: Protocol,
    held: Mutex<Option<CachedBuckets>>,
    /// On the clock of the quotas; 0: it does not wait.
    waits_until: AtomicU64,
}

#[derive(Debug)]
struct CachedBuckets {
    stamp: u64,
    user: Box<str>,
    client: Box<str>,
    buckets: [Option<Arc<Bucket>>; Quota::ALL.len()],
}

impl CachedBuckets {
    fn find(quotas: &Quotas, caller: QuotaClient<'_>) -> Self {
        // Read the stamp first: a concurrent change then triggers another lookup.
        let stamp = quotas.stamp();
        let QuotaClient { user, client } = caller;
        let of = |quota| match quota {
            Quota::ConnectionCreationRate => None,
            // The operator is exempt.
            _ if user == OPERATOR => None,
            quota => quotas.bucket(quota, user, client),
        };
        Self { stamp, user: user.into(), client: client.into(), buckets: Quota::ALL.map(of) }
    }
}

impl Meter {
    pub fn new(quotas: &Quotas, protocol: Protocol) -> Self {
        let (held, waits_until) = (Mutex::default(), AtomicU64::new(0));
        Self { quotas: quotas.clone(), protocol, held, waits_until }
    }

    /// Whether no quotas are set.
    pub fn is_idle(&self) -> bool {
        self.quotas.is_empty()
    }

    fn bucket(&self, quota: Quota, caller: QuotaClient<'_>) -> Option<Arc<Bucket>> {
        if self.is_idle() {
            return None;
        }
        let mut held = self.held.lock();
        let is_current = |held: &CachedBuckets| {
            held.stamp == self.quotas.stamp()
                && *held.user == *caller.user
                && *held.client == *caller.client
        };
        if !held.as_ref().is_some_and(is_current) {
            *held = Some(CachedBuckets::find(&self.quotas, caller));
        }
        held.as_ref().and_then(|held| held.buckets[quota.place()].clone())
    }

    /// Charges an amount; returns how long the session must wait.
    pub fn charge(&self, quota: Quota, caller: QuotaClient<'_>, amount: u64) -> Duration {
        let Some(bucket) = self.bucket(quota, caller) else { return Duration::ZERO };
        bucket.charge(amount, self.quotas.now_nanos())
    }

    /// Time until the debt of a quota is paid.
    pub fn debt(&self, quota: Quota, caller: QuotaClient<'_>) -> Duration {
        let bucket = self.bucket(quota, caller);
        bucket.map_or(Duration::ZERO, |bucket| bucket.debt(self.quotas.now_nanos()))
    }

    /// Counts a wait for metrics; the caller enforces it.
    pub fn note(&self, quota: Quota, wait: Duration) {
        if !wait.is_zero() {
            self.quotas.counters().add(self.protocol, quota, wait);
        }
    }

    /// As [`Meter::charge`], and makes the session wait ([`Meter::waited`]).
    pub fn take(&self, quota: Quota, caller: QuotaClient<'_>, amount: u64) -> Duration {
        let wait = self.charge(quota, caller, amount);
        self.wait_for(quota, wait);
        wait
    }

    /// Makes the session wait for this long from now.
    pub fn wait_for(&self, quota: Quota, wait: Duration) {
        if wait.is_zero() {
            return;
        }
        self.note(quota, wait);
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        let until = self.quotas.now_nanos().saturating_add(nanos);
        self.waits_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Whether the session must wait.
    pub fn waits(&self) -> bool {
        self.waits_until.load(Ordering::Relaxed) != 0
    }

    /// Returns at the end of the wait, which is earlier than announced if a quota is raised or removed.
    pub async fn waited(&self) {
        if !self.waits() {
            return;
        }
        let _waiting = self.quotas.counters().waits(self.protocol);
        let mut changes = self.quotas.changes();
        let mut looks_again = true;
        loop {
            if looks_again {
                self.look_again();
            }
            let until = self.waits_until.load(Ordering::Relaxed);
            if until <= self.quotas.now_nanos() {
                break;
            }
            looks_again = tokio::select! {
                biased;
                changed = changes.changed() => changed.is_ok(),
                () = sleep_until(self.due(until)) => false,
            };
        }
        self.waits_until.store(0, Ordering::Relaxed);
    }

    fn due(&self, until: u64) -> Instant {
        /// Longest duration that a timer accepts.
        const FAR: u64 = 365 * 24 * 3600 * 1_000_000_000;
        self.quotas.instant(until.min(self.quotas.now_nanos().saturating_add(FAR)))
    }

    /// Shortens the wait to the debt under the current quotas.
    fn look_again(&self) {
        let mut held = self.held.lock();
        let Some(before) = held.take() else { return };
        if before.stamp == self.quotas.stamp() {
            *held = Some(before);
            return;
        }
        let now = self.quotas.now_nanos();
        let caller = QuotaClient { user: &before.user, client: &before.client };
        let found = CachedBuckets::find(&self.quotas, caller);
        let debts = found.buckets.iter().flatten().map(|bucket| bucket.debt(now));
        let owed = debts.max().unwrap_or_default();
        let nanos = u64::try_from(owed.as_nanos()).unwrap_or(u64::MAX);
        self.waits_until.fetch_min(now.saturating_add(nanos), Ordering::Relaxed);
        *held = Some(found);
    }
}
