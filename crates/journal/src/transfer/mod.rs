//! Brings a replica that lags behind the start of the other replicas' logs to a later log index: by
//! another replica's snapshot, and by the live batches of the entries between, in the format of
//! rewritten segments.
//!
//! Nothing is pinned except open files. The sender's segments may be rewritten, deleted and trimmed
//! concurrently. A batch that dies before it is sent is not missed: the entry that killed it comes
//! after the snapshot, and the receiver applies it before it serves reads. The receiver writes
//! whole segments, each durable before the next is requested. They contain only committed data, so
//! that the segments of one attempt are valid for the next, from any sender.
//!
//! * [`manifest`]: the sender's announcement
//! * [`piece`]: batches in transit
//! * [`export`]: the sender
//! * [`import`]: the receiver, up to the last segment
//! * [`install`]: replaces the receiver's state
//! * [`repair`]: rewrites a damaged segment from the sender's batches

mod export;
mod import;
mod install;
pub(crate) mod manifest;
pub(crate) mod piece;
mod repair;

pub use export::{Export, SegmentPiece};
pub use import::{Import, ImportError};
pub use install::{ReceivedSections, ReceiverState};
pub use manifest::{Manifest, Section, SectionSize};
pub use repair::{CoveredEntries, Repair, RepairDeferral};
