//! Records that a topic refuses, though their batch is valid: each is listed, so that a producer
//! can distinguish them from the others of its batch (Kafka's KIP-467).

use std::fmt;

/// The refused records of one batch, up to the limit of listed ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedRecords {
    /// Ascending by index; at least one, unless the limit is 0.
    pub named: Vec<RefusedRecord>,
    /// Number of refused records, listed or not.
    pub count: u32,
    /// One of them, listed or not, has a timestamp out of range.
    pub has_bad_timestamp: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedRecord {
    /// Its place in the batch.
    pub index: u32,
    pub reason: RefusalReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    MissingKey,
    TimestampOutOfRange { timestamp: i64 },
}

impl RefusedRecords {
    pub(crate) fn add(&mut self, index: u32, reason: RefusalReason, named_max: usize) {
        self.count += 1;
        self.has_bad_timestamp |= matches!(reason, RefusalReason::TimestampOutOfRange { .. });
        if self.named.len() < named_max {
            self.named.push(RefusedRecord { index, reason });
        }
    }
}

impl fmt::Display for RefusedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = self.index;
        match self.reason {
            RefusalReason::MissingKey => {
                write!(f, "record {index} has no key, and its topic is compacted by key")
            }
            RefusalReason::TimestampOutOfRange { timestamp } => write!(
                f,
                "record {index} has the timestamp {timestamp}, which is out of its topic's range"
            ),
        }
    }
}

impl fmt::Display for RefusedRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records of the batch were refused", self.count)?;
        match self.named.first() {
            Some(first) => write!(f, "; the first: {first}"),
            None => Ok(()),
        }
    }
}
