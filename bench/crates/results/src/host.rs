use serde::{Deserialize, Serialize};

/// The machine of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Host {
    pub cpu: String,
    pub cores: u32,
    pub memory_bytes: u64,
    pub kernel: String,
    pub system: String,
    /// File system and device of the brokers' data.
    pub disk: String,
    /// Time of one write and sync there, 4 KiB and 128 KiB.
    pub sync_4k: Option<SyncDelay>,
    pub sync_128k: Option<SyncDelay>,
}

/// Microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SyncDelay {
    pub p50: u64,
    pub p99: u64,
}
