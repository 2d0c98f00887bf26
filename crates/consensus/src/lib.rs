//! openraft over the journal; the only crate that knows it.
//!
//! A shard is one Raft group whose log is the shard's [`journal`]. This crate proposes payloads,
//! hands committed ones in log order to the shard's [`StateMachine`] and decides when a snapshot
//! is taken. One decision shaped it: nothing of openraft shows in the API, so that its next alpha
//! (or another engine) is a change to this crate alone.
//!
//! * [`consensus`]: the handle: start, lead, shut down
//! * [`leadership`]: the right to propose, for one term
//! * [`role`]: what a node is in its group
//! * [`group`]: which group, and who is in it
//! * `succession`: taking the place of a leader that is dead
//! * [`members`]: founding a group, changing its members, handing leadership over
//! * [`peers`]: the way to the other members, which the group is given
//! * [`machine`]: what the shard implements, and what it is handed
//! * [`error`]: what can go wrong
//! * `types`: the names openraft gives our types
//! * `log_store`: openraft's log, on the journal
//! * `replica`: applies committed entries
//! * `runtime`: tokio, as openraft may use it
//! * `snapshot`: when the state is saved, and how
//! * `network`: openraft's links, on [`peers`]
//! * `incoming`: what other members send, and what is answered
//! * [`message`]: what members say to each other, as bytes
//! * `window`: how much of it may be unanswered
//! * `catch_up`: snapshots for members that lack more than that
//! * `retention`: how much of the log is kept for members that do not have it
//! * [`recovery`]: a group that lost its majority for good goes on with one member
//! * `confirmed`: what a member acknowledged to this leader
//! * `settings`: what openraft is set to
//! * `entry`: an entry as openraft holds it
//! * `floor`: what a member promised that has given its log up
//! * `encoding`: what of consensus is stored: votes, members, the head of a snapshot

mod catch_up;
mod confirmed;
#[cfg(test)]
mod conformance;
pub mod consensus;
mod encoding;
mod entry;
pub mod error;
pub mod floor;
pub mod group;
mod incoming;
pub mod leadership;
mod log_store;
pub mod machine;
pub mod members;
pub mod message;
mod network;
pub mod peers;
pub mod recovery;
mod replica;
mod retention;
pub mod role;
mod runtime;
mod settings;
mod snapshot;
pub mod starvation;
mod succession;
mod types;
mod window;

pub use catch_up::{CatchUpPace, Fetched};
pub use consensus::{Consensus, ConsensusOptions};
pub use error::{
    ApplyError, ChangeError, Failure, FoundError, ProposeError, RestoreError, SnapshotError,
    StartError, TransferError,
};
pub use floor::{Floor, NotAFloor};
pub use group::{Group, Members};
pub use leadership::{Leadership, Proposed};
pub use machine::{Committed, Encode, Payload, Put, Replace, StateMachine};
pub use members::Progress;
pub use message::{GroupId, Refusal};
pub use peers::{AppendMessage, PeerError, Peers, ReceivedAppend, Target};
pub use retention::CatchUp;
pub use role::{Role, ToldLeader};
pub use starvation::Starvation;
pub use succession::LogEnd;
