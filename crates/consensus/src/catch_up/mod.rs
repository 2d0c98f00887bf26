//! A member that lacks more than the kept log, or has nothing yet, catches up by a snapshot.
//!
//! ```text
//! leader   the log does not have the member's next entry: offers its newest snapshot, again each second   control lane
//! member   begins to fetch, and replies to each offer with its progress
//!          saves its own state; requests the manifest, then the batches that it lacks             bulk lane
//!          requests segment after segment, each durable before the next one
//!          requests the state; hands it to its engine, which orders it between applied entries
//! leader   the reply to the next offer is "has": the engine continues with the log behind it
//! ```
//!
//! The decision behind it: the engine carries an offer and nothing else. No call of the engine waits for a
//! transfer, so that none has to be aborted: a transfer ends on both sides when the member stops requesting. The
//! member keeps what it has received, and needs not fetch it again, from any leader.
//!
//! * [`offers`]: replies to the leader's offers
//! * [`sending`]: replies to members that fetch a snapshot
//! * [`fetching`]: the transfer on the receiving side
//! * [`repairing`]: damaged segments, rewritten from another member's
//! * [`stepping_down`]: a leader whose log is damaged steps down

mod fetching;
mod offers;
mod repairing;
mod sending;
mod stepping_down;
