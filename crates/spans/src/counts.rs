//! Counters of spans and events, for metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Clones share the counters.
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
    /// Spans accepted by the collector.
    pub fn exported(&self) -> u64 {
        self.0.exported.load(Ordering::Relaxed)
    }

    /// Spans that the collector rejected, or did not accept in time.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }

    /// Records not read, because an event or a second had more than the limit. They may have had no trace.
    pub fn passed_over(&self) -> u64 {
        self.0.passed_over.load(Ordering::Relaxed)
    }

    /// Events dropped for lack of room: one for each appended batch, or for records with the same outcome.
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
