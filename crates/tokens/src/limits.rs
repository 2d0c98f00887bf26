//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

use std::time::Duration;

use base::json::JsonLimits;
use base::limits::JSON_DEPTH_MAX;

/// The keys of a token issuer.
pub const TOKEN_KEYS_LIMITS: JsonLimits =
    JsonLimits { values: 20_000, depth: JSON_DEPTH_MAX, bytes: 8 << 20 };

/// Size of a token. One with many claims has some 8 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Allowed difference between the clocks of a token issuer and of the node.
pub const TOKEN_LEEWAY: Duration = Duration::from_secs(60);
/// Size of the document with an issuer's keys, and number of keys in it.
pub const TOKEN_KEYS_BYTES_MAX: u64 = 1 << 20;
pub const TOKEN_KEYS_MAX: usize = 100;
/// Refresh interval of an issuer's keys, and the minimum between two reads: tokens with unknown keys do not make
/// the node read more often.
pub const TOKEN_KEYS_READ_EVERY: Duration = Duration::from_secs(300);
pub const TOKEN_KEYS_READ_AT_MOST_EVERY: Duration = Duration::from_secs(10);
/// The same for keys in a file.
pub const TOKEN_KEY_FILE_READ_EVERY: Duration = Duration::from_secs(10);
/// Time limit for the issuer's reply.
pub const TOKEN_KEYS_READ_WITHIN: Duration = Duration::from_secs(10);
