//! A member that lacks more than the log that is kept, or has nothing yet, catches up by a snapshot.
//!
//! ```text
//! leader   the engine has no entry to begin with: offers its newest snapshot, again each second   control lane
//! member   begins to fetch, and answers each offer with how far it is
//!          saves its own state; asks for the manifest, for what it lacks since then               bulk lane
//!          asks for segment after segment, each durable before the next one
//!          asks for the state; gives it to its engine, which orders it between what is applied
//! leader   the next offer is answered with "has": the engine goes on with the log behind it
//! ```
//!
//! The decision that shapes it: the engine carries an offer and nothing else. Nobody waits for a transfer in
//! one of its calls, so that nothing there has to be given up: who asks no more has ended it, on either side.
//! What a member has by then it keeps, and needs not fetch again, from whichever leader.
//!
//! * [`offers`]: the leader's offers, answered
//! * [`sending`]: snapshots that are being sent
//! * [`fetching`]: the member's way through one
//! * [`repairing`]: damaged segments, written anew from another member's
//! * [`stepping_down`]: a leader whose log is damaged steps down
//! * [`pace`]: how much a node takes in a second

mod fetching;
mod offers;
mod pace;
mod repairing;
mod sending;
mod stepping_down;

use bytes::Bytes;
use journal::transfer::{Import, Received};

use crate::machine::Replace;

pub use pace::CatchUpPace;

pub(crate) use offers::Reception;
pub(crate) use sending::Sending;

/// A snapshot of another member, all here and not installed yet.
pub(crate) struct Ready {
    pub(crate) import: Import,
    pub(crate) received: Received,
    pub(crate) replace: Replace,
}

/// What is asked for on the bulk lane, answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetched {
    /// At most `GROUP_MESSAGE_BYTES_MAX`.
    pub head: Bytes,
    /// A piece, under checksums of its own.
    pub piece: Bytes,
}
