//! A shard's journal: the Raft log **is** the store.
//!
//! Entries are appended in log order. All waiting entries are written as ONE checksummed frame and
//! synced, while the next frame collects (group commit without a timer). A batch of records is part
//! of an entry as a *body* and is written once: the index holds addresses into the segments, and
//! consumers are served from the same bytes.
//!
//! * [`journal`]: the handle, which all other crates call
//! * [`entry`]: entries of the log
//! * [`encoded`]: encoded entries, for segments and for other nodes
//! * [`address`]: addresses of bodies, and the batches read there
//! * [`stats`]: counters and reports
//! * [`scrub`]: verifying stored data
//! * [`transfer`]: another replica's snapshot with its batches, sent and received
//! * [`damage`]: damaged segments
//! * [`error`]: error types
//! * [`inspect`]: reads a journal's directory without opening the journal

pub mod address;
pub mod damage;
pub mod encoded;
pub mod entry;
pub mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod inspect;
pub mod journal;
mod limits;
pub mod scrub;
pub mod stats;
pub mod transfer;

mod buffers;
mod commit;
mod file_readers;
mod frame;
mod index;
mod little_endian;
mod log;
mod options;
mod queue;
mod read;
mod received;
mod reclaim;
mod recover;
mod segment;
mod shared;
mod snapshot;
mod vote;

pub use address::{Address, StoredBatches};
pub use damage::{BatchCheck, Damage};
pub use encoded::Encoded;
pub use entry::{Body, Entry, EntryId, EntryKind};
pub use error::{JournalFailed, OpenError, ReadError};
pub use frame::NotAnEntry;
pub use journal::{Journal, LogPin, OpenedJournal, PendingSnapshot, Snapshot};
pub use options::Options;
pub use reclaim::CompactionDecision;
pub use scrub::{Scrub, ScrubStep};
pub use stats::{
    Age, DiskRoom, ReclaimReport, RecoveryReport, SYNC_BUCKETS_MICROS, SegmentInfo, Stats, TornTail,
};
