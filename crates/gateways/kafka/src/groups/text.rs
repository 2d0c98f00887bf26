//! Texts of groups and members in messages.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

/// Copies a text into memory of its own. A decoded text points into the request's frame, and would keep all
/// of it.
pub(crate) fn own(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Like [`own`], for bytes.
pub(crate) fn own_bytes(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}
