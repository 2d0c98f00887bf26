//! What happened to records, and spans of it.

use std::time::Duration;

/// To remember what happened to records (`--history-bytes`), and whose sessions those were.
pub const HISTORY_BYTES_PER_SHARD_DEFAULT: usize = 2 << 20;
pub const HISTORY_SESSIONS_KEPT: usize = 1_024;

/// Records that a node looks at in a second for traces; the others are passed over.
pub const TRACE_RECORDS_LOOKED_AT_MAX: u32 = 1_000;
/// Of a batch that is appended, or of records that go the same way.
pub const TRACE_RECORDS_OF_EVENT_MAX: u32 = 16;
/// Events between those who make them and who makes spans of them.
pub const TRACE_EVENTS_WAITING_MAX: usize = 16_384;
/// Leases of traced records whose end is waited for.
pub const TRACE_LEASES_REMEMBERED_MAX: usize = 16_384;
/// Spans that are not sent yet.
pub const TRACE_SPANS_WAITING_MAX: usize = 8_192;
pub const TRACE_SPANS_A_REQUEST_MAX: usize = 512;
/// Spans wait so long for others, so that a request has several.
pub const TRACE_SENT_EVERY: Duration = Duration::from_millis(500);
/// A collector takes spans within this time.
pub const TRACE_SENT_WITHIN: Duration = Duration::from_secs(5);
pub const TRACE_ANSWER_BYTES_MAX: usize = 64 << 10;
