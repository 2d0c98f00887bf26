//! Failed log-ins: counted, logged once a minute for each address and name, and delayed longer the more there are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::audit::Audit;
use crate::limits::LOGIN_FAILURES_KEPT_MAX;
use parking_lot::Mutex;
use world::Instant;

/// Failures of an address and a name within this interval are one row.
const ROW: Duration = Duration::from_secs(60);
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(3);
/// Characters of a name that are kept and logged.
const NAME_CHARS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Failures {
    rows: Mutex<Rows>,
    count: AtomicU64,
    audit: OnceLock<Audit>,
}

type Key = (IpAddr, Box<str>);

#[derive(Debug, Default)]
struct Rows {
    of: BTreeMap<Key, Row>,
    /// Keyed by the order of last failures, so that the oldest row is evicted first.
    by_age: BTreeMap<u64, Key>,
    next: u64,
}

#[derive(Debug)]
struct Row {
    since: Instant,
    count: u32,
    /// Key in `by_age`.
    place: u64,
}

impl Rows {
    /// Counts a failure; returns the same as `count_row`.
    fn count(&mut self, key: Key, now: Instant) -> (u32, u32) {
        let place = self.next;
        self.next += 1;
        let found = self.of.get_mut(&key).map(|row| {
            self.by_age.remove(&row.place);
            row.place = place;
            if now.duration_since(row.since) < ROW {
                row.count = row.count.saturating_add(1);
                (row.count, 0)
            } else {
                row.since = now;
                (1, std::mem::replace(&mut row.count, 1))
            }
        });
        self.by_age.insert(place, key.clone());
        found.unwrap_or_else(|| {
            self.of.insert(key, Row { since: now, count: 1, place });
            if self.of.len() > LOGIN_FAILURES_KEPT_MAX
                && let Some((_, oldest)) = self.by_age.pop_first()
            {
                self.of.remove(&oldest);
            }
            (1, 0)
        })
    }
}

impl Failures {
    /// Counts a failure. Returns the delay of its reply.
    pub(crate) fn note(&self, peer: IpAddr, name: &str, reason: &str) -> Duration {
        self.count.fetch_add(1, Ordering::Relaxed);
        // Truncated first, so that a long name costs no more than a short one.
        let name: String = name.chars().take(NAME_CHARS_MAX).collect();
        let (count, earlier) = self.count_row(peer, &name, Instant::now());
        if count == 1 {
            if let Some(audit) = self.audit.get() {
                audit.log_in_refused(&name, peer, reason, earlier.saturating_sub(1));
            }
            tracing::warn!(%peer, user = ?name, reason, earlier, "a log-in was refused");
        } else {
            tracing::debug!(%peer, user = ?name, reason, count, "a log-in was refused");
        }
        delay(count)
    }

    pub(crate) fn set_audit(&self, audit: Audit) {
        // The callers set it once.
        let _ = self.audit.set(audit);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Number of failures in the current row and, at its start, in the one before.
    fn count_row(&self, peer: IpAddr, name: &str, now: Instant) -> (u32, u32) {
        self.rows.lock().count((peer, Box::from(name)), now)
    }
}

fn delay(count: u32) -> Duration {
    let doublings = count.saturating_sub(1).min(5);
    (DELAY_MIN * (1 << doublings)).min(DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test(start_paused = true)]
    async fn repeated_failures_are_delayed_longer_and_logged_once_a_minute() {
        let failures = Failures::default();
        let note = |name: &str| failures.note(HERE, name, "wrong").as_millis();
        assert_eq!([(); 7].map(|()| note("a")), [100, 200, 400, 800, 1600, 3000, 3000]);
        assert_eq!(note("b"), 100, "another name is another row");
        assert_eq!(failures.count(), 8);
        tokio::time::sleep(ROW).await;
        assert_eq!(failures.count_row(HERE, "a", Instant::now()), (1, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_failure_rows_is_bounded() {
        let failures = Failures::default();
        for i in 0..LOGIN_FAILURES_KEPT_MAX + 10 {
            failures.count_row(HERE, &i.to_string(), Instant::now());
        }
        let rows = failures.rows.lock();
        assert_eq!(
            (rows.of.len(), rows.by_age.len()),
            (LOGIN_FAILURES_KEPT_MAX, LOGIN_FAILURES_KEPT_MAX)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_names_evicts_the_oldest_failure_first() {
        let failures = Failures::default();
        let high: IpAddr = "203.0.113.9".parse().expect("an address");
        let count = |peer, name: &str| failures.count_row(peer, name, Instant::now()).0;
        count(HERE, "guessed");
        for i in 0..LOGIN_FAILURES_KEPT_MAX - 1 {
            count(high, &i.to_string());
        }
        assert_eq!(count(HERE, "guessed"), 2, "all of them have room");
        count(high, "one more");
        assert_eq!(count(HERE, "guessed"), 3, "its last failure was not the oldest");
        assert_eq!(count(high, "0"), 1, "that one was forgotten");
    }
}
