//! A message's properties, in the one set that protocols share. Text is not checked for UTF-8: many applications keep
//! raw bytes in `correlation_id`, and these bytes are passed on unchanged.

use values::EncodedTable;

/// Views of a message's properties. `None`: the property is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Properties<'a> {
    pub content_type: Option<&'a [u8]>,
    pub content_encoding: Option<&'a [u8]>,
    /// The message's own headers.
    pub headers: Option<EncodedTable<'a>>,
    /// 1: transient; 2: persistent.
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub correlation_id: Option<&'a [u8]>,
    pub reply_to: Option<&'a [u8]>,
    /// Milliseconds to live, as text.
    pub expiration: Option<&'a [u8]>,
    pub message_id: Option<&'a [u8]>,
    /// Seconds since the epoch.
    pub timestamp: Option<u64>,
    /// The application's name for the type of the message.
    pub kind: Option<&'a [u8]>,
    pub user_id: Option<&'a [u8]>,
    pub app_id: Option<&'a [u8]>,
    pub cluster_id: Option<&'a [u8]>,
}
