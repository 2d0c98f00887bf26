//! Live measurements: counters, and the latencies of the current second.
//!
//! Tasks record once a batch into one of a few intervals, each under its own lock. Every second
//! they are swapped out and merged.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use results::Latency;
use serde::{Deserialize, Serialize};

/// More than cores, so that tasks rarely contend.
const SHARDS: usize = 8;
/// Number of distinct errors that are kept; others are only counted.
const ERROR_KINDS_MAX: usize = 20;

/// All latencies of an interval of time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Interval {
    /// From the start of the call to the confirmation.
    pub send: Latency,
    /// From the due time to the confirmation.
    pub send_due: Latency,
    /// From the due time to the start of the call.
    pub send_delay: Latency,
    /// From the start of the call to a receiver.
    pub receive: Latency,
    /// From the due time to a receiver.
    pub receive_due: Latency,
    /// From the start of the call to the settle by a receiver.
    pub settle: Latency,
}

impl Interval {
    pub fn merge(&mut self, other: &Self) {
        self.send.merge(&other.send);
        self.send_due.merge(&other.send_due);
        self.send_delay.merge(&other.send_delay);
        self.receive.merge(&other.receive);
        self.receive_due.merge(&other.receive_due);
        self.settle.merge(&other.settle);
    }

    /// By their names in the result file.
    pub fn named(self) -> BTreeMap<String, Latency> {
        let named = [
            ("send", self.send),
            ("send-due", self.send_due),
            ("send-delay", self.send_delay),
            ("receive", self.receive),
            ("receive-due", self.receive_due),
            ("settle", self.settle),
        ];
        let some = named.into_iter().filter(|(_, latency)| latency.count() > 0);
        some.map(|(name, latency)| (name.to_owned(), latency)).collect()
    }
}

/// Totals since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub sent: u64,
    pub confirmed: u64,
    pub received: u64,
    pub settled: u64,
    pub errors: u64,
    pub repeated: u64,
}

impl Counts {
    pub fn since(self, before: Self) -> Self {
        Self {
            sent: self.sent - before.sent,
            confirmed: self.confirmed - before.confirmed,
            received: self.received - before.received,
            settled: self.settled - before.settled,
            errors: self.errors - before.errors,
            repeated: self.repeated - before.repeated,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) sent: AtomicU64,
    pub(crate) confirmed: AtomicU64,
    /// First deliveries, over all subscriptions.
    pub(crate) received: AtomicU64,
    pub(crate) settled: AtomicU64,
    errors: AtomicU64,
    pub(crate) repeated: AtomicU64,
    shards: [Mutex<Interval>; SHARDS],
    kinds: Mutex<BTreeMap<String, u64>>,
}

impl Recorder {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            sent: self.sent.load(Relaxed),
            confirmed: self.confirmed.load(Relaxed),
            received: self.received.load(Relaxed),
            settled: self.settled.load(Relaxed),
            errors: self.errors.load(Relaxed),
            repeated: self.repeated.load(Relaxed),
        }
    }

    pub(crate) fn record(&self, task: usize, with: impl FnOnce(&mut Interval)) {
        with(&mut self.shards[task % SHARDS].lock());
    }

    /// Takes the latencies recorded since the last call.
    pub(crate) fn take(&self) -> Interval {
        let mut all = Interval::default();
        for shard in &self.shards {
            let taken = std::mem::take(&mut *shard.lock());
            all.merge(&taken);
        }
        all
    }

    /// Records an error under its text.
    pub(crate) fn error(&self, doing: &str, what: &impl std::fmt::Display) {
        self.errors.fetch_add(1, Relaxed);
        let text = format!("{doing}: {what}");
        tracing::debug!("{text}");
        let mut kinds = self.kinds.lock();
        let known = kinds.len();
        if let Some(count) = kinds.get_mut(&text) {
            *count += 1;
        } else {
            let text = if known < ERROR_KINDS_MAX { text } else { "others".to_owned() };
            *kinds.entry(text).or_default() += 1;
        }
    }

    /// Each kind of error and its count.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.kinds.lock().clone()
    }
}
