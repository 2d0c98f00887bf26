//! A stored record, and the death of one that became a dead letter.

use serde::{Deserialize, Serialize};

use crate::payload::Payload;

/// A record as stored in the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredRecord {
    pub partition: u32,
    pub offset: u64,
    pub timestamp_ms: i64,
    pub key: Option<Payload>,
    pub value: Option<Payload>,
    pub headers: Vec<StoredHeader>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredHeader {
    pub name: String,
    pub value: Option<Payload>,
}

/// Death of a record, from the headers of its dead letter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Death {
    pub reason: Option<String>,
    /// Number of deliveries before.
    pub attempts: Option<u64>,
    /// Place before.
    pub topic: Option<String>,
    pub partition: Option<u32>,
    pub offset: Option<u64>,
    pub group: Option<String>,
    pub time_ms: Option<i64>,
}
