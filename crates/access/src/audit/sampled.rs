//! Rate limits of frequent events: denials of a user, and log-ins by protocols that send credentials with each
//! request.

use base::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::limits::{AUDIT_DENIALS_A_MINUTE_MAX, AUDIT_SAMPLED_KEPT_MAX};
use world::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// Interval in which repeated log-ins with each request count as one.
const LOG_IN: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Denials(HashMap<Box<str>, Row>);

#[derive(Debug)]
struct Row {
    since: Instant,
    written: u32,
    skipped: u32,
}

impl Denials {
    /// Number of denials that were left out before this one; `None`: this one is left out, too.
    pub(super) fn next(&mut self, principal: &str) -> Option<u32> {
        let now = Instant::now();
        if let Some(row) = self.0.get_mut(principal) {
            if now.duration_since(row.since) >= MINUTE {
                (row.since, row.written) = (now, 0);
            }
            if row.written >= AUDIT_DENIALS_A_MINUTE_MAX {
                row.skipped = row.skipped.saturating_add(1);
                return None;
            }
            row.written += 1;
            return Some(std::mem::take(&mut row.skipped));
        }
        if self.0.len() >= AUDIT_SAMPLED_KEPT_MAX {
            self.0.retain(|_, row| now.duration_since(row.since) < MINUTE);
        }
        if self.0.len() < AUDIT_SAMPLED_KEPT_MAX {
            self.0.insert(principal.into(), Row { since: now, written: 1, skipped: 0 });
        }
        Some(0)
    }
}

#[derive(Debug, Default)]
pub(super) struct LogIns(HashMap<(Box<str>, IpAddr), Instant>);

impl LogIns {
    pub(super) fn is_new(&mut self, principal: &str, address: IpAddr) -> bool {
        let (now, key) = (Instant::now(), (Box::from(principal), address));
        if let Some(since) = self.0.get_mut(&key) {
            let is_new = now.duration_since(*since) >= LOG_IN;
            if is_new {
                *since = now;
            }
            return is_new;
        }
        if self.0.len() >= AUDIT_SAMPLED_KEPT_MAX {
            self.0.retain(|_, since| now.duration_since(*since) < LOG_IN);
        }
        if self.0.len() < AUDIT_SAMPLED_KEPT_MAX {
            self.0.insert(key, now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn denials_over_the_rate_are_counted_instead_of_written() {
        let mut denials = Denials::default();
        let written = (0..100).filter(|_| denials.next("ada").is_some()).count();
        assert_eq!(written, AUDIT_DENIALS_A_MINUTE_MAX as usize);
        assert_eq!(denials.next("bob"), Some(0));
        tokio::time::sleep(MINUTE).await;
        assert_eq!(denials.next("ada"), Some(100 - AUDIT_DENIALS_A_MINUTE_MAX));
        assert_eq!(denials.next("ada"), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_log_in_counts_as_new_once_per_interval() {
        let (mut log_ins, here) = (LogIns::default(), IpAddr::from([127, 0, 0, 1]));
        assert!(log_ins.is_new("ada", here) && !log_ins.is_new("ada", here));
        assert!(log_ins.is_new("bob", here) && log_ins.is_new("ada", IpAddr::from([10, 0, 0, 1])));
        tokio::time::sleep(LOG_IN).await;
        assert!(log_ins.is_new("ada", here) && !log_ins.is_new("ada", here));
    }
}
