//! Log-ins that failed: counted, logged once a minute for each address and name, and answered the later the more
//! there are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::limits::LOGIN_FAILURES_KEPT_MAX;
use parking_lot::Mutex;
use world::Instant;

use crate::audit::Audit;

/// Failures of an address and a name that are not further apart are one row.
const ROW: Duration = Duration::from_secs(60);
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(3);
/// Of a name, in the log.
const NAME_CHARS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Failures {
    rows: Mutex<BTreeMap<(IpAddr, Box<str>), Row>>,
    count: AtomicU64,
    audit: OnceLock<Audit>,
}

#[derive(Debug)]
struct Row {
    since: Instant,
    count: u32,
}

impl Failures {
    /// Counts one more. Answers for how long it is not answered.
    pub(crate) fn note(&self, peer: IpAddr, name: &str, reason: &str) -> Duration {
        self.count.fetch_add(1, Ordering::Relaxed);
        // As it is kept, so that a long name costs no more than a short one.
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
        // Once, as those who set it see to.
        let _ = self.audit.set(audit);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many there are in the row by now, and how many there were in the one before.
    fn count_row(&self, peer: IpAddr, name: &str, now: Instant) -> (u32, u32) {
        let mut rows = self.rows.lock();
        let key = (peer, Box::from(name));
        if let Some(row) = rows.get_mut(&key) {
            if now.duration_since(row.since) < ROW {
                row.count = row.count.saturating_add(1);
                return (row.count, 0);
            }
            let earlier = std::mem::replace(row, Row { since: now, count: 1 }).count;
            return (1, earlier);
        }
        if rows.len() >= LOGIN_FAILURES_KEPT_MAX {
            rows.retain(|_, row| now.duration_since(row.since) < ROW);
        }
        if rows.len() >= LOGIN_FAILURES_KEPT_MAX {
            // Somebody tries very many names: any of them is forgotten.
            rows.pop_first();
        }
        rows.insert(key, Row { since: now, count: 1 });
        (1, 0)
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
    async fn who_fails_often_waits_longer_and_is_logged_once_a_minute() {
        let failures = Failures::default();
        let note = |name: &str| failures.note(HERE, name, "wrong").as_millis();
        assert_eq!([(); 7].map(|()| note("a")), [100, 200, 400, 800, 1600, 3000, 3000]);
        assert_eq!(note("b"), 100, "another name is another row");
        assert_eq!(failures.count(), 8);
        tokio::time::sleep(ROW).await;
        assert_eq!(failures.count_row(HERE, "a", Instant::now()), (1, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn many_names_take_no_more_memory() {
        let failures = Failures::default();
        for i in 0..LOGIN_FAILURES_KEPT_MAX + 10 {
            failures.count_row(HERE, &i.to_string(), Instant::now());
        }
        assert_eq!(failures.rows.lock().len(), LOGIN_FAILURES_KEPT_MAX);
    }
}
