//! Names of groups and members as messages have them.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

/// A copy with memory of its own. What is decoded from a request points into its frame, and
/// whatever kept ten bytes of it would keep the whole frame.
pub(crate) fn own(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// As [`own`], for bytes.
pub(crate) fn own_bytes(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
