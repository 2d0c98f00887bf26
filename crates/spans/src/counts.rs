//! What became of what was seen, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    exported: AtomicU64,
    dropped: AtomicU64,
    passed_over: AtomicU64,
    missed: AtomicU64,
}

impl Counts {
    /// Spans that the collector took.
    pub fn exported(&self) -> u64 {
        self.0.exported.load(Ordering::Relaxed)
    }

    /// Spans that it did not take, or not in time.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Records that nobody looked at, since there were more than may be looked at in a second. They may have had no trace.
    pub fn passed_over(&self) -> u64 {
        self.0.passed_over.load(Ordering::Relaxed)
    }

    /// Events that there was no room for: each of a batch that was appended, or of records that went the same way.
    pub fn missed(&self) -> u64 {
        self.0.missed.load(Ordering::Relaxed)
    }

    pub(crate) fn export(&self, spans: u64) {
        self.0.exported.fetch_add(spans, Ordering::Relaxed);
    }

    pub(crate) fn drop_spans(&self, spans: u64) {
        self.0.dropped.fetch_add(spans, Ordering::Relaxed);
    }

    pub(crate) fn pass_over(&self, records: u64) {
        self.0.passed_over.fetch_add(records, Ordering::Relaxed);
    }

    pub(crate) fn set_missed(&self, events: u64) {
        self.0.missed.store(events, Ordering::Relaxed);
    }
}
