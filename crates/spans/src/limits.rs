//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// Records that a node examines in a second for traces; the others are passed over.
pub(crate) const TRACE_RECORDS_LOOKED_AT_MAX: u32 = 1_000;
/// Traced records of an appended batch, or of records with one event.
pub(crate) const TRACE_RECORDS_OF_EVENT_MAX: u32 = 16;
/// Events in the queue between their producers and the span builder.
pub(crate) const TRACE_EVENTS_WAITING_MAX: usize = 16_384;
/// Leases of traced records whose end is awaited.
pub(crate) const TRACE_LEASES_REMEMBERED_MAX: usize = 16_384;
/// Spans that wait to be sent.
pub(crate) const TRACE_SPANS_WAITING_MAX: usize = 8_192;
pub(crate) const TRACE_SPANS_A_REQUEST_MAX: usize = 512;
/// How long spans wait for others, so that a request carries several.
pub(crate) const TRACE_SENT_EVERY: Duration = Duration::from_millis(500);
/// Time limit for a collector to accept spans.
pub(crate) const TRACE_SENT_WITHIN: Duration = Duration::from_secs(5);
pub(crate) const TRACE_ANSWER_BYTES_MAX: usize = 64 << 10;
