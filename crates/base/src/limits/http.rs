//! Requests by HTTP.

use std::time::Duration;

/// All headers of a request together, about; what is much longer is not even read.
pub const HTTP_HEADER_BYTES_MAX: usize = 32 << 10;
pub const HTTP_HEADERS_MAX: usize = 100;
/// They must have come within this time, from the end of the request before or from connecting on: a connection that
/// says nothing for so long is closed.
pub const HTTP_HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// A path with its query.
pub const HTTP_URI_BYTES_MAX: usize = 8 << 10;
/// A request's body.
pub const HTTP_BODY_BYTES_MAX: usize = 64 << 20;
/// An id that a client gives its request.
pub const HTTP_REQUEST_ID_BYTES_MAX: usize = 64;
/// A client that takes nothing of its answer for so long is cut off.
pub const HTTP_ANSWER_TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// What a connection that an operator closes may take to finish its request.
pub const HTTP_CLOSES_WITHIN: Duration = Duration::from_secs(1);

// ------------------------------------------------------------------------------------------- HTTP/2

/// Requests of one connection at a time.
pub const HTTP2_STREAMS_MAX: u32 = 100;
/// What a client may send of one request's body, and of all of a connection together, before the node has read it. A body of
/// [`HTTP_BODY_BYTES_MAX`] comes within [`HTTP_BODY_WITHIN`] as long as a round trip takes no more than 60 ms, and four
/// requests whose bodies wait do not leave the others of the connection without room.
pub const HTTP2_STREAM_WINDOW_BYTES: u32 = 128 << 10;
pub const HTTP2_CONNECTION_WINDOW_BYTES: u32 = 512 << 10;
/// Bytes of one answer that were given to the protocol and that the client has not taken, besides one piece of it.
pub const HTTP2_UNSENT_BYTES_MAX: usize = 32 << 10;
/// A larger part of an answer is given to the protocol in pieces of this size, which is what fits a frame.
pub const HTTP2_ANSWER_PIECE_BYTES: usize = 16 << 10;
/// A connection that has said nothing for so long is asked whether it is still there, and is closed when it has not answered
/// within the time after that.
pub const HTTP2_PING_EVERY: Duration = Duration::from_secs(10);
pub const HTTP2_PING_ANSWERED_WITHIN: Duration = Duration::from_secs(20);
/// Requests that a client takes back before the node has looked at them (h2's own default): a client that means what it sends
/// has at most a few of them in what is read at once.
pub const HTTP2_RESETS_UNSEEN_MAX: usize = 20;
/// Requests that the node refuses because the client broke the protocol, such as those beyond the number that it may have, as
/// long as the connection lasts. Clients in order have none, but for what was under way when an answer ended its request.
pub const HTTP2_ERRORS_MAX: usize = 200;
/// Requests that a client takes back, and frames that ask for nothing (`PING`, `SETTINGS`, `PRIORITY`, `GOAWAY`, unknown ones),
/// within [`HTTP2_COUNTED_FOR`]. Twice all requests of a connection may be given up at once, as by a program that stops and
/// begins again, and clients measure their connections with some ten pings in a second.
pub const HTTP2_RESETS_MAX: u32 = 2 * HTTP2_STREAMS_MAX;
pub const HTTP2_CONTROL_FRAMES_MAX: u32 = 1_000;
pub const HTTP2_COUNTED_FOR: Duration = Duration::from_secs(10);

// ------------------------------------------------------------------------------- documents, records

/// A body must have come within this time.
pub const HTTP_BODY_WITHIN: Duration = Duration::from_secs(30);
/// A body that is a document, but for records.
pub const HTTP_DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Bodies of a node that have not come whole; others wait for their turn.
pub const HTTP_ARRIVING_BYTES_MAX: usize = 64 << 20;
/// Records of one request or one answer.
pub const HTTP_RECORDS_MAX: usize = 10_000;
/// What an answer with records has, about: the first is given whatever its size.
pub const HTTP_READ_BYTES_MAX: usize = 16 << 20;
pub const HTTP_READ_BYTES_DEFAULT: usize = 1 << 20;
pub const HTTP_READ_RECORDS_DEFAULT: usize = 100;
/// Answers with records that are in memory: others wait for their turn.
pub const HTTP_ANSWER_BYTES_IN_FLIGHT_MAX: usize = 256 << 20;
/// What of them is handed to the socket at a time.
pub const HTTP_ANSWER_PIECE_BYTES: usize = 64 << 10;
/// How long a request may wait for a record.
pub const HTTP_WAIT_MAX: Duration = Duration::from_secs(60);
/// Records are appended, and settled, within this time, or nobody knows.
pub const HTTP_APPENDED_WITHIN: Duration = Duration::from_secs(60);
pub const HTTP_SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// Committed offsets of a group that an answer has.
pub const HTTP_OFFSETS_MAX: usize = 10_000;
/// Rows of a list.
pub const HTTP_PAGE_DEFAULT: usize = 100;
pub const HTTP_PAGE_MAX: usize = 1_000;
/// Leases that are taken, or settled, at a time.
pub const HTTP_SETTLES_MAX: usize = 1_000;
pub const HTTP_LEASE_DEFAULT: Duration = Duration::from_secs(30);
pub const HTTP_LEASE_MIN: Duration = Duration::from_secs(1);
pub const HTTP_LEASE_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// A stream of events says that it is there.
pub const HTTP_SSE_COMMENT_EVERY: Duration = Duration::from_secs(15);
/// Of a topic that is followed as a stream: each event says where all of them go on.
pub const HTTP_STREAM_PARTITIONS_MAX: usize = 100;
/// Sessions of browsers on a node, those of one user, and how long one lasts without a request and at most.
pub const HTTP_SESSIONS_MAX: usize = 10_000;
pub const HTTP_SESSIONS_OF_A_USER_MAX: usize = 100;
pub const HTTP_SESSION_IDLE_MAX: Duration = Duration::from_secs(30 * 60);
pub const HTTP_SESSION_MAX: Duration = Duration::from_secs(8 * 60 * 60);
/// What one request of a search reads at most, by default and if more is asked for, and for how long.
pub const HTTP_SEARCH_BYTES_DEFAULT: usize = 8 << 20;
pub const HTTP_SEARCH_BYTES_MAX: usize = 64 << 20;
pub const HTTP_SEARCH_WITHIN: Duration = Duration::from_secs(3);
pub const HTTP_SEARCH_MATCHES_MAX: usize = 1_000;
/// Of what a search looks for.
pub const HTTP_SEARCH_TEXT_BYTES_MAX: usize = 1 << 10;
/// Partitions whose ends a list of topics looks up to count their records.
pub const HTTP_COUNTED_PARTITIONS_MAX: usize = 20_000;
/// Groups with committed offsets that are asked where a record is to them.
pub const HTTP_GROUPS_ASKED_MAX: usize = 1_000;
/// Records that one request finds and tells what became of.
pub const HTTP_TRACED_MAX: usize = 50;

/// Series of single topics and groups that an answer has.
pub const HTTP_METRICS_SERIES_DEFAULT: usize = 10_000;
pub const HTTP_METRICS_SERIES_MAX: usize = 100_000;

// ------------------------------------------------------------------------------- the management API

/// A page of a list.
pub const HTTP_API_PAGE_DEFAULT: usize = 100;
pub const HTTP_API_PAGE_MAX: usize = 500;
/// Rows of a list that is not asked for by pages.
pub const HTTP_API_ROWS_MAX: usize = 10_000;
/// Queues whose messages are added up for an overview; where there are more it has no sums.
pub const HTTP_API_QUEUES_SUMMED_MAX: usize = 1_000;
/// Queues that are asked about at a time.
pub const HTTP_API_QUEUES_AT_ONCE: usize = 16;
/// How long sessions may take to say what they have. One that takes longer is shown without that.
pub const HTTP_API_SESSION_TELLS_WITHIN: Duration = Duration::from_secs(2);
/// A message that is published, with its properties, in base64.
pub const HTTP_API_MESSAGE_BYTES_MAX: usize = 24 << 20;
/// A file of definitions. One is imported at a time.
pub const HTTP_API_DEFINITIONS_BYTES_MAX: usize = 64 << 20;
/// Messages of a queue that are looked at for an answer.
pub const HTTP_API_MESSAGES_MAX: usize = 1_000;
