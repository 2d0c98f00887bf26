//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

/// Bytes kept of a client's self-description (name, version), for logs and operators.
pub const CONNECTION_TEXT_BYTES_MAX: usize = 256;
/// A client finishes its TLS handshake within this time, from connecting on.
pub const TLS_HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Handshakes in progress at a time, on all encrypted ports of a node; the others wait. Each holds at most 64 KiB
/// from its client, and costs a signature.
pub const TLS_HANDSHAKES_AT_ONCE_MAX: usize = 256;
/// Bytes read from a client after a failed handshake, and how long they are read, so that the client receives the
/// alert.
pub const TLS_REFUSED_READ_BYTES_MAX: usize = 64 << 10;
pub const TLS_REFUSED_CLOSES_WITHIN: Duration = Duration::from_secs(1);
/// Bytes that are encrypted before the socket has taken them.
pub const TLS_WRITTEN_AT_ONCE_BYTES_MAX: usize = 32 << 10;
/// Slices given to one system call; Linux takes 1,024.
pub const WRITTEN_AT_ONCE_SLICES_MAX: usize = 256;
/// A session's empty output buffer is freed if it grew beyond this.
pub const UNSENT_KEPT_BYTES_MAX: usize = 64 << 10;
/// Addresses and kinds of lines about closed connections that are counted instead of written.
pub const CLOSED_LINES_KEPT_MAX: usize = 1_000;
