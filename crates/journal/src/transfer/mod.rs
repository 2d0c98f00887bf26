//! A replica that lacks more than the log of the others has is brought to a later log index: by another one's
//! snapshot, and by the live batches of the entries between, in segments as a rewrite makes them.
//!
//! The decision that shapes it: nothing is pinned but what is read just now. The sender's segments may be
//! rewritten, deleted and trimmed meanwhile, because what is dead by the time that it would be sent is not
//! missed: the entry that made it dead comes after the snapshot, and the receiver applies it before anybody
//! reads there. The receiver writes whole segments, each durable before the next is asked for. All in them is
//! committed data, so that what it has of one attempt is good for the next, from whichever sender.
//!
//! * [`manifest`]: what a sender says before it sends anything
//! * [`piece`]: batches on their way
//! * [`export`]: the sender's end
//! * [`import`]: the receiver's, up to the last segment
//! * [`install`]: the other state takes the place of the receiver's
//! * [`repair`]: a damaged segment is written anew from what the sender has of it
//! * [`marker`]: which segments are none of the receiver's own yet, for recovery

mod export;
mod import;
mod install;
pub(crate) mod manifest;
pub(crate) mod marker;
pub(crate) mod piece;
mod repair;

pub use export::{Export, SegmentPiece};
pub use import::{Import, ImportError};
pub(crate) use import::{ImportState, give_up_useless};
pub use install::{Here, Received};
pub use manifest::{Manifest, Section, SectionSize};
pub use repair::{Covered, NotYet, Repair};
