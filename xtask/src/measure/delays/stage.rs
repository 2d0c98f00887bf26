//! State of the records, and the figures.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use super::DelaysOptions;
use super::schedule::Schedule;
use crate::failure::{Failure, Outcome};
use crate::figures::Figures;

/// Lateness that fails the chore, for a record that became due while the server was up.
const LATE_MAX: Duration = Duration::from_secs(5);

/// State of a record: not delivered yet.
pub(super) const WAITS: u8 = 0;
/// Delivered and not settled: it must be redelivered if the server dies now.
pub(super) const CAME: u8 = 1;
/// Its settle was sent and not confirmed: it may be redelivered.
pub(super) const ASKED: u8 = 2;
/// Its settle was confirmed.
pub(super) const SETTLED: u8 = 3;

#[derive(Debug)]
pub(super) struct Stage {
    pub(super) address: SocketAddr,
    pub(super) schedule: Schedule,
    pub(super) records: Vec<AtomicU8>,
    pub(super) stops: AtomicBool,
    /// Time at which the server was last ready.
    pub(super) ready_ms: AtomicI64,
    pub(super) came: AtomicU64,
    pub(super) came_again: AtomicU64,
    pub(super) seen: Mutex<DelayObservations>,
}

#[derive(Debug, Default)]
pub(super) struct DelayObservations {
    pub(super) failure: Option<String>,
    /// Lateness of records that became due while the server was up.
    pub(super) late: Lateness,
    /// Lateness, since the server was ready, of records that became due before.
    pub(super) late_after_restart: Lateness,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    pub(super) records: u64,
    pub(super) sum_ms: i64,
    pub(super) worst_ms: i64,
}

impl Lateness {
    pub(super) fn take(&mut self, late_ms: i64) {
        self.records += 1;
        self.sum_ms += late_ms;
        self.worst_ms = self.worst_ms.max(late_ms);
    }

    fn mean_ms(&self) -> f64 {
        self.sum_ms as f64 / self.records.max(1) as f64
    }
}

impl Stage {
    pub(super) fn new(address: SocketAddr, records: u64, schedule: Schedule) -> Stage {
        Stage {
            address,
            schedule,
            records: (0..records).map(|_| AtomicU8::new(WAITS)).collect(),
            stops: AtomicBool::new(false),
            ready_ms: AtomicI64::new(i64::MIN),
            came: AtomicU64::new(0),
            came_again: AtomicU64::new(0),
            seen: Mutex::new(DelayObservations::default()),
        }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, DelayObservations> {
        self.seen.lock().expect("no consumer panics")
    }

    pub(super) fn failed(&self) -> Outcome {
        match &self.seen().failure {
            Some(failure) => Err(Failure::new(failure.clone())),
            None => Ok(()),
        }
    }

    /// Whether all records were delivered, and those that a kill took from their consumer were redelivered.
    pub(super) fn is_complete(&self) -> bool {
        let open = |state: &AtomicU8| state.load(Ordering::Relaxed) < ASKED;
        self.came.load(Ordering::Relaxed) >= self.records.len() as u64
            && !self.records.iter().any(open)
    }

    pub(super) fn report(&self, options: &DelaysOptions, figures: &mut Figures) {
        let seen = self.seen();
        figures.add("came", self.came.load(Ordering::Relaxed) as f64, "records");
        let again = self.came_again.load(Ordering::Relaxed);
        figures.add("came again, settle not confirmed", again as f64, "records");
        figures.add("late on the average", seen.late.mean_ms(), "ms");
        let late_max = LATE_MAX.as_millis() as i64;
        figures.judge(
            "late at worst, server up",
            seen.late.worst_ms as f64,
            "ms",
            format!("< {} s", LATE_MAX.as_secs()),
            seen.late.worst_ms < late_max,
        );
        if options.kills > 0 {
            let after = seen.late_after_restart;
            figures.add("due while it was down", after.records as f64, "records");
            figures.add("  late on the average, since ready", after.mean_ms(), "ms");
            figures.add("  late at worst, since ready", after.worst_ms as f64, "ms");
        }
        figures.judge("came early", 0.0, "records", "none", true);
        figures.judge("came after a confirmed settle", 0.0, "records", "none", true);
        figures.judge("never came", 0.0, "records", "none", true);
    }
}
