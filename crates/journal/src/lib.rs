//! A shard's journal: the Raft log **is** the store.
//!
//! Entries are appended in log order; what waits is written as ONE checksummed frame and synced,
//! meanwhile the next frame collects (group commit without a timer). A batch of records rides in
//! an entry as a *body* and is written once: the index holds addresses into the segments, and
//! consumers are served from the same bytes.
//!
//! * [`journal`]: the handle, which all other crates call
//! * [`entry`]: what is appended
//! * [`encoded`]: an entry as it is written, and as it travels
//! * [`address`]: where a body lies, and what is read from there
//! * [`stats`]: its counters and reports
//! * [`scrub`]: looking through what is stored
//! * [`transfer`]: another replica's snapshot with its batches, sent and received
//! * [`damage`]: what cannot be read as it was written
//! * [`error`]: what can go wrong
//! * [`inspect`]: reading a journal's directory without opening the journal

pub mod address;
pub mod damage;
pub mod encoded;
pub mod entry;
pub mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod inspect;
pub mod journal;
pub mod scrub;
pub mod stats;
pub mod transfer;

mod ahead;
mod buffers;
mod commit;
mod frame;
mod frame_reader;
mod index;
mod little_endian;
mod log;
mod past_cache;
mod prepare;
mod queue;
mod read;
mod read_only;
mod reclaim;
mod recover;
mod segment;
mod shared;
mod snapshot;
mod tail;
mod vote;

pub use address::{Address, Stored};
pub use damage::{BatchCheck, Damage};
pub use encoded::Encoded;
pub use entry::{Body, Entry, EntryId, EntryKind};
pub use error::{JournalFailed, OpenError, ReadError};
pub use frame::NotAnEntry;
pub use journal::{Journal, Keep, LogPin, Opened, Options, PendingSnapshot, Snapshot};
pub use scrub::{Scrub, Scrubbed};
pub use stats::{
    Age, Reclaimed, RecoveryReport, Room, SYNC_BUCKETS_MICROS, SegmentInfo, Stats, TornTail,
};
