//! Metric families of the counters of this gateway's own requests.

use std::fmt::Result;

use crate::metrics::writer::Writer;
use crate::request_counts::{BUCKETS_SECS, Requests};

impl Requests {
    pub(super) fn write(&self, writer: &mut Writer<'_>) -> Result {
        let counted = self.0.lock();
        let series = counted.by_route.iter().map(|((route, status), count)| {
            (vec![("route", route.to_string()), ("status", status.to_string())], *count)
        });
        writer.counters("http_requests", "Requests by HTTP that were answered", series)?;
        let bounds = BUCKETS_SECS.into_iter().chain([f64::MAX]);
        let buckets: Vec<_> = bounds.zip(counted.buckets).collect();
        writer.durations(
            "http_request_duration_seconds",
            "From a request's head to its answer's head",
            counted.seconds,
            &buckets,
        )
    }
}
