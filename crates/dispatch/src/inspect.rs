//! What an operator sees and does.

use base::Offset;
use thiserror::Error;

/// Where the records of a group are. `depth` is the sum of the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Offsets from the floors to the ends that are not settled.
    pub depth: u64,
    /// Not looked at yet, or ready.
    pub ready: u64,
    /// Behind an earlier record of their key.
    pub blocked: u64,
    pub leased: u64,
    pub delayed: u64,
    /// Dead letters that are not buried yet.
    pub dead: u64,
    pub consumers: u32,
    /// Bytes of leased records.
    pub leased_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RemoveRefused {
    #[error("record {partition}/{offset} is settled, or was never written")]
    Absent { partition: u32, offset: Offset },
    #[error("record {partition}/{offset} is leased, or about to be buried")]
    Busy { partition: u32, offset: Offset },
    /// It was to be taken off the delayed ones, and is not delayed.
    #[error("record {partition}/{offset} is not delayed")]
    NotDelayed { partition: u32, offset: Offset },
}
