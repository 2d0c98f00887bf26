//! openraft over the journal; the only crate that knows it.
//!
//! A shard is one Raft group whose log is the shard's [`journal`]. This crate proposes payloads, hands committed
//! ones in log order to the shard's [`StateMachine`] and schedules snapshots. One decision shaped it: the API
//! shows nothing of openraft, so that its next alpha (or another engine) changes this crate alone.
//!
//! * [`consensus`]: the handle: start, lead, shut down
//! * [`leadership`]: the right to propose, for one term
//! * [`role`]: the role of a node in its group
//! * [`group`]: a group and its members
//! * `succession`: election after a leader's death
//! * [`members`]: founding a group, changing its members, transferring leadership
//! * [`peers`]: the way to the other members, provided by the caller
//! * [`machine`]: the interface that the shard implements, and its inputs
//! * [`error`]: error types
//! * `types`: the names openraft gives our types
//! * `log_store`: openraft's log, on the journal
//! * `replica`: applies committed entries
//! * `runtime`: tokio, adapted for openraft
//! * `snapshot`: scheduling and writing of snapshots
//! * `network`: openraft's links, on [`peers`]
//! * `incoming`: requests of other members, and their replies
//! * [`message`]: messages between members, as bytes
//! * `window`: limit of unanswered appends
//! * `catch_up`: snapshots for members that lack more than the kept log
//! * `retention`: the part of the log that is kept for members without it
//! * [`recovery`]: continuing a group with one member after the permanent loss of its majority
//! * `confirmed`: entries that a member acknowledged to this leader
//! * `settings`: configuration of openraft
//! * `entry`: an entry as openraft holds it
//! * `floor`: the promises of a member whose log was deleted
//! * `encoding`: the stored state: votes, members, the head of a snapshot

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
mod limits;
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

pub use catch_up::{BulkReply, CatchUpPace};
pub use consensus::{Consensus, ConsensusOptions};
pub use error::{
    ApplyError, ChangeError, Failure, FoundingError, ProposeError, RestoreError, SnapshotError,
    StartError, TransferError,
};
pub use floor::{Floor, NotAFloor};
pub use group::{Group, Members};
pub use leadership::{Leadership, PendingProposal};
pub use machine::{CommittedEntry, Encode, Payload, Replace, StateMachine, StateReplacement};
pub use members::Progress;
pub use message::{GroupId, Refusal};
pub use peers::{AppendMessage, MessageTarget, PeerError, Peers, ReceivedAppend};
pub use retention::CatchUp;
pub use role::{ReportedLeader, Role};
pub use starvation::Starvation;
pub use succession::LogEnd;
