//! What a message says of itself, in the one set of properties that protocols share. Which are text
//! is not checked: `correlation_id` holds raw bytes in many applications, and what came in goes out.

use values::EncodedTable;

/// Views of the properties that a message has. `None`: it does not have that one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Properties<'a> {
    pub content_type: Option<&'a [u8]>,
    pub content_encoding: Option<&'a [u8]>,
    /// The message's own.
    pub headers: Option<EncodedTable<'a>>,
    /// 1: it need not survive a restart; 2: it must.
    pub delivery_mode: Option<u8>,
    pub priority: Option<u8>,
    pub correlation_id: Option<&'a [u8]>,
    pub reply_to: Option<&'a [u8]>,
    /// Milliseconds to live, as text.
    pub expiration: Option<&'a [u8]>,
    pub message_id: Option<&'a [u8]>,
    /// Seconds since the epoch.
    pub timestamp: Option<u64>,
    /// What applications call the type of the message.
    pub kind: Option<&'a [u8]>,
    pub user_id: Option<&'a [u8]>,
    pub app_id: Option<&'a [u8]>,
    pub cluster_id: Option<&'a [u8]>,
}
