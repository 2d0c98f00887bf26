//! What happened to records, in memory and in a topic, and spans of it.

use std::time::Duration;

/// To remember what happened to records (`--history-bytes`), and whose sessions those were.
pub const HISTORY_BYTES_PER_SHARD_DEFAULT: usize = 2 << 20;
pub const HISTORY_SESSIONS_KEPT: usize = 1_024;

/// Steps of records of topics that ask for it which are not written yet; what is more is not written, and counted.
pub const TRACED_STEPS_QUEUED_MAX: usize = 16_384;
/// They wait so long for others, so that a request to the log has several.
pub const TRACED_STEPS_WRITTEN_EVERY: Duration = Duration::from_millis(100);
pub const TRACED_STEPS_AT_ONCE_MAX: usize = 1_000;
/// Bytes of them in one batch, before it is compressed.
pub const TRACED_BATCH_BYTES: usize = 256 << 10;
/// Of records that go the same way, those of a share that are written one by one.
pub const TRACED_RUNS_OF_STEP_MAX: usize = 100;
/// What cannot be written is tried so often, and then counted as what there was no room for.
pub const TRACED_TRIES_MAX: usize = 10;
/// How long the topic with the steps of records is kept, and how much of it, unless an administrator sets something else.
pub const TRACED_KEPT_MS: i64 = 7 * 24 * 60 * 60 * 1000;
pub const TRACED_KEPT_BYTES: i64 = 1 << 30;
/// What is read of that topic for one record, for how long, and for how many at a time.
pub const TRACED_READ_BYTES_MAX: usize = 16 << 20;
pub const TRACED_READ_WITHIN: Duration = Duration::from_millis(500);
pub const TRACED_READS_AT_ONCE: usize = 2;
/// What was written this long before the time that a record says it is of is read, too: clients' clocks may be ahead.
pub const TRACED_READ_FROM_BEFORE_MS: i64 = 60 * 60 * 1000;

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
