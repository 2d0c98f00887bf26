//! Tokens by which somebody logs in (JWT), and the keys that they are signed with.

use std::time::Duration;

/// Of a token. One with many claims has some 8 KiB.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// By how much the clock of whoever issues tokens may differ from the node's.
pub const TOKEN_LEEWAY: Duration = Duration::from_secs(60);
/// Of the document with an issuer's keys, and keys in it.
pub const TOKEN_KEYS_BYTES_MAX: u64 = 1 << 20;
pub const TOKEN_KEYS_MAX: usize = 100;
/// An issuer's keys are read anew after so long, and at most once in this time: tokens of keys that nobody knows
/// make the node ask no more often.
pub const TOKEN_KEYS_READ_EVERY: Duration = Duration::from_secs(300);
pub const TOKEN_KEYS_READ_AT_MOST_EVERY: Duration = Duration::from_secs(10);
/// The same where they are in a file.
pub const TOKEN_KEY_FILE_READ_EVERY: Duration = Duration::from_secs(10);
/// What it may take to answer.
pub const TOKEN_KEYS_READ_WITHIN: Duration = Duration::from_secs(10);
