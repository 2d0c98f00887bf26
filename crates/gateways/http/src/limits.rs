//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

use base::json::JsonLimits;
use base::limits::JSON_DEPTH_MAX;

/// A request body of `/v1`, except records: 1,000 settles, or some hundred settings.
pub const HTTP_DOCUMENT_LIMITS: JsonLimits =
    JsonLimits { values: 50_000, depth: JSON_DEPTH_MAX, bytes: 16 << 20 };
/// Records of one request, with their keys, values and headers.
pub const HTTP_RECORDS_HELD_BYTES_MAX: usize = 96 << 20;
/// Headers of one record.
pub const HTTP_RECORD_HEADERS_MAX: usize = 10_000;
/// A file of definitions: some 100,000 queues with arguments. More are imported as several files.
pub const HTTP_API_DEFINITIONS_LIMITS: JsonLimits =
    JsonLimits { values: 4_000_000, depth: JSON_DEPTH_MAX, bytes: 160 << 20 };
/// A message that is published through the management API, with its properties.
pub const HTTP_API_MESSAGE_LIMITS: JsonLimits =
    JsonLimits { values: 50_000, depth: JSON_DEPTH_MAX, bytes: 40 << 20 };

/// Approximate size of all headers of a request; much longer headers are not read.
pub const HTTP_HEADER_BYTES_MAX: usize = 32 << 10;
pub const HTTP_HEADERS_MAX: usize = 100;
/// Time limit for the headers, from the end of the previous request or from connecting on. A connection that is
/// silent for so long is closed.
pub const HTTP_HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// A path with its query.
pub const HTTP_URI_BYTES_MAX: usize = 8 << 10;
/// A request's body.
pub const HTTP_BODY_BYTES_MAX: usize = 64 << 20;
/// An id that a client gives its request.
pub const HTTP_REQUEST_ID_BYTES_MAX: usize = 64;
/// A client that reads nothing of its response for so long is disconnected.
pub const HTTP_ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Time for a connection that an operator closes to finish its request.
pub const HTTP_CLOSES_WITHIN: Duration = Duration::from_secs(1);
/// Requests of one connection at a time.
pub const HTTP2_STREAMS_MAX: u32 = 100;
/// Flow-control windows: unread body bytes of one request, and of all requests of a connection. A body of
/// [`HTTP_BODY_BYTES_MAX`] arrives within [`HTTP_BODY_WITHIN`] as long as a round trip takes no more than 60 ms.
/// Four requests whose bodies wait do not leave the other requests of the connection without room.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 128 << 10;
pub const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 512 << 10;
/// Bytes of one response in the protocol's buffer that the client has not read, besides one piece of it.
pub const HTTP2_UNSENT_BYTES_MAX: usize = 32 << 10;
/// A larger part of a response is passed to the protocol in pieces of this size, which fit a frame.
pub const HTTP2_ANSWER_PIECE_BYTES: usize = 16 << 10;
/// Silence of a connection after which it is pinged, and the time for the reply before it is closed.
pub const HTTP2_PING_EVERY: Duration = Duration::from_secs(10);
pub const HTTP2_PING_ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// Requests that a client resets before the node has seen them (h2's own default). A well-behaved client has at
/// most a few of them in one read.
pub const HTTP2_RESETS_UNSEEN_MAX: usize = 20;
/// Requests rejected because the client broke the protocol, for example by exceeding the number of streams, over
/// the life of a connection. Correct clients have none, except requests in flight when a response ended its
/// request.
pub const HTTP2_ERRORS_MAX: usize = 200;
/// Requests that a client resets, and frames without a request (`PING`, `SETTINGS`, `PRIORITY`, `GOAWAY`, unknown
/// ones), within [`HTTP2_COUNTED_FOR`]. Twice all requests of a connection may be reset at once, as by a program
/// that restarts. Clients measure their connections with some ten pings in a second.
pub const HTTP2_RESETS_MAX: u32 = 2 * HTTP2_STREAMS_MAX;
pub const HTTP2_CONTROL_FRAMES_MAX: u32 = 1_000;
pub const HTTP2_COUNTED_FOR: Duration = Duration::from_secs(10);
/// Time limit for a body to arrive.
pub const HTTP_BODY_WITHIN: Duration = Duration::from_secs(30);
/// Size limit of a body that is a document, except records.
pub const HTTP_DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Bytes of incomplete bodies in a node; others wait for their turn.
pub const HTTP_ARRIVING_BYTES_MAX: usize = 64 << 20;
/// Records of one request or one response.
pub const HTTP_RECORDS_MAX: usize = 10_000;
/// Body of a transaction, and of records with an expected offset: they are one entry of a log (as
/// `AMQP_TRANSACTION_BYTES_MAX`).
pub const HTTP_TRANSACTION_BYTES_MAX: usize = 16 << 20;
/// Appends of one transaction, each for a topic.
pub const HTTP_APPENDS_MAX: usize = 1_000;
/// Approximate size of a response with records; the first record is included whatever its size.
pub const HTTP_READ_BYTES_MAX: usize = 16 << 20;
pub const HTTP_READ_BYTES_DEFAULT: usize = 1 << 20;
pub const HTTP_READ_RECORDS_DEFAULT: usize = 100;
/// Bytes of responses with records in memory: others wait for their turn.
pub const HTTP_ANSWER_BYTES_IN_FLIGHT_MAX: usize = 256 << 20;
/// Bytes of such a response that are passed to the socket at a time.
pub const HTTP_ANSWER_PIECE_BYTES: usize = 64 << 10;
/// How long a request may wait for a record.
pub const HTTP_WAIT_MAX: Duration = Duration::from_secs(60);
/// Time limit of appends and of settles. Beyond it their outcome is unknown.
pub const HTTP_APPENDED_WITHIN: Duration = Duration::from_secs(60);
pub const HTTP_SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// Committed offsets of a group in a response.
pub const HTTP_OFFSETS_MAX: usize = 10_000;
/// Rows of a list.
pub const HTTP_PAGE_DEFAULT: usize = 100;
/// Leases that are taken or settled in one request.
pub const HTTP_SETTLES_MAX: usize = 1_000;
pub const HTTP_LEASE_DEFAULT: Duration = Duration::from_secs(30);
pub const HTTP_LEASE_MIN: Duration = Duration::from_secs(1);
pub const HTTP_LEASE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Keep-alive interval of an event stream.
pub const HTTP_SSE_COMMENT_EVERY: Duration = Duration::from_secs(15);
/// Partitions of a topic that is followed as a stream: each event carries the resume position of all of them.
pub const HTTP_STREAM_PARTITIONS_MAX: usize = 100;
/// Browser sessions of a node and of one user, the idle time after which one ends, and its longest life.
pub const HTTP_SESSIONS_MAX: usize = 10_000;
pub const HTTP_SESSIONS_OF_A_USER_MAX: usize = 100;
pub const HTTP_SESSION_IDLE_MAX: Duration = Duration::from_secs(30 * 60);
pub const HTTP_SESSION_MAX: Duration = Duration::from_secs(8 * 60 * 60);
/// Bytes that one request of a search reads by default and at most, and its time limit.
pub const HTTP_SEARCH_BYTES_DEFAULT: usize = 8 << 20;
pub const HTTP_SEARCH_BYTES_MAX: usize = 64 << 20;
pub const HTTP_SEARCH_WITHIN: Duration = Duration::from_secs(3);
pub const HTTP_SEARCH_MATCHES_MAX: usize = 1_000;
/// Length of the text that a search looks for.
pub const HTTP_SEARCH_TEXT_BYTES_MAX: usize = 1 << 10;
/// Partitions whose ends a list of topics looks up to count their records.
pub const HTTP_COUNTED_PARTITIONS_MAX: usize = 20_000;
/// Records that one request finds and returns the events of.
pub const HTTP_TRACED_MAX: usize = 50;
/// Series of single topics and groups in a response.
pub const HTTP_METRICS_SERIES_DEFAULT: usize = 10_000;
pub const HTTP_METRICS_SERIES_MAX: usize = 100_000;
/// A page of a list.
pub const HTTP_API_PAGE_DEFAULT: usize = 100;
pub const HTTP_API_PAGE_MAX: usize = 500;
/// Rows of a list that is requested without pages.
pub const HTTP_API_ROWS_MAX: usize = 10_000;
/// Queues whose messages are summed for an overview. With more queues it has no sums.
pub const HTTP_API_QUEUES_SUMMED_MAX: usize = 1_000;
/// Queues that are queried at a time.
pub const HTTP_API_QUEUES_AT_ONCE: usize = 16;
/// Time limit for sessions to report their state. A slower one is shown without it.
pub const HTTP_API_SESSION_TELLS_WITHIN: Duration = Duration::from_secs(2);
/// Size of a published message, with its properties, in base64.
pub const HTTP_API_MESSAGE_BYTES_MAX: usize = 24 << 20;
/// Size of a file of definitions. One is imported at a time.
pub const HTTP_API_DEFINITIONS_BYTES_MAX: usize = 64 << 20;
/// Messages of a queue that are examined for a response.
pub const HTTP_API_MESSAGES_MAX: usize = 1_000;
