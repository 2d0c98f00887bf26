//! Bounds of the events of records, in memory and in a topic, and of their spans.

use std::time::Duration;

/// Memory of the history of records (`--history-bytes`), and ended sessions whose users it remembers.
pub const HISTORY_BYTES_PER_SHARD_DEFAULT: usize = 2 << 20;
pub const HISTORY_SESSIONS_KEPT: usize = 1_024;

/// Events of traced topics that wait to be written; further ones are dropped and counted.
pub const TRACED_STEPS_QUEUED_MAX: usize = 16_384;
/// How long they wait for others, so that a request to the log carries several.
pub const TRACED_STEPS_WRITTEN_EVERY: Duration = Duration::from_millis(100);
pub const TRACED_STEPS_AT_ONCE_MAX: usize = 1_000;
/// Bytes of them in one batch, before it is compressed.
pub const TRACED_BATCH_BYTES: usize = 256 << 10;
/// Ranges written for one event of a topic that traces a share of its records.
pub const TRACED_RUNS_OF_STEP_MAX: usize = 100;
/// Write attempts, after which the events are counted as dropped.
pub const TRACED_TRIES_MAX: usize = 10;
/// Retention of the trace topic in time and bytes, unless an administrator sets something else.
pub const TRACED_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
pub const TRACED_KEPT_BYTES: i64 = 1 << 30;
/// Bytes read of that topic for one record, the time limit of a read, and concurrent reads.
pub const TRACED_READ_BYTES_MAX: usize = 16 << 20;
pub const TRACED_READ_WITHIN: Duration = Duration::from_millis(500);
pub const TRACED_READS_AT_ONCE: usize = 2;
/// The read begins this long before a record's own timestamp: clients' clocks may be ahead.
pub const TRACED_READ_FROM_BEFORE_MS: i64 = 60 * 60 * 1000;

/// Records that a node examines in a second for traces; the others are passed over.
pub const TRACE_RECORDS_LOOKED_AT_MAX: u32 = 1_000;
/// Traced records of an appended batch, or of records with one event.
pub const TRACE_RECORDS_OF_EVENT_MAX: u32 = 16;
/// Events in the queue between their producers and the span builder.
pub const TRACE_EVENTS_WAITING_MAX: usize = 16_384;
/// Leases of traced records whose end is awaited.
pub const TRACE_LEASES_REMEMBERED_MAX: usize = 16_384;
/// Spans that wait to be sent.
pub const TRACE_SPANS_WAITING_MAX: usize = 8_192;
pub const TRACE_SPANS_A_REQUEST_MAX: usize = 512;
/// How long spans wait for others, so that a request carries several.
pub const TRACE_SENT_EVERY: Duration = Duration::from_millis(500);
/// Time limit for a collector to accept spans.
pub const TRACE_SENT_WITHIN: Duration = Duration::from_secs(5);
pub const TRACE_ANSWER_BYTES_MAX: usize = 64 << 10;
