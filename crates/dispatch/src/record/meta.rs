//! The engine's state of a record that is loaded, blocked or leased.

use serde::{Deserialize, Serialize};

use super::ScannedRecord;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Meta {
    pub(crate) timestamp: i64,
    pub(crate) expires_ms: i64,
    /// 0 = none.
    pub(crate) key: u64,
    pub(crate) bytes: u32,
    /// Bytes beside the value, at most `u16::MAX`; the rest counts as value.
    pub(crate) overhead: u16,
    pub(crate) priority: u8,
    /// It had a delivery time.
    pub(crate) scheduled: bool,
}

const _: () = assert!(size_of::<Meta>() == 32);

impl From<&ScannedRecord> for Meta {
    fn from(record: &ScannedRecord) -> Self {
        Self {
            timestamp: record.timestamp,
            expires_ms: record.expires_ms,
            key: record.key.unwrap_or(0),
            bytes: record.bytes,
            overhead: u16::try_from(record.bytes.saturating_sub(record.value_bytes))
                .unwrap_or(u16::MAX),
            priority: record.priority,
            scheduled: record.due_ms > i64::MIN,
        }
    }
}

impl Meta {
    pub(crate) fn value_bytes(&self) -> u64 {
        u64::from(self.bytes.saturating_sub(u32::from(self.overhead)))
    }
}
