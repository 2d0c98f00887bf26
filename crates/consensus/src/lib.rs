//! openraft over the journal; the only crate that knows it.
//!
//! A shard is one Raft group whose log is the shard's [`journal`]. This crate proposes payloads, hands committed
//! ones in log order to the shard's [`StateMachine`] and schedules snapshots. One decision shaped it: the API
//! shows nothing of openraft, so that its next alpha (or another engine) changes this crate alone.
//!
//! From the lowest to the highest:
//!
//! * `machine`: the interface that the shard implements, and its inputs
//! * `error`: error types
//! * `engine`: openraft's names for our types, and its configuration
//! * `encoding`: the stored state: votes, members, the head of a snapshot
//! * `floor`: the promises of a member whose log was deleted
//! * `log_store`: openraft's log, on the journal
//! * `message`: messages between members, as bytes
//! * [`peers`]: the way to the other members, provided by the caller
//! * `transfer`: state of snapshot transfers
//! * `retention`: the part of the log that is kept for members without it
//! * `starvation`: delay of due tasks in this process
//! * `group`: a group and its members
//! * [`recovery`]: continuing a group with one member after the permanent loss of its majority
//! * `options`: the options of a member
//! * `replica`: applies committed entries, and saves the state
//! * `network`: openraft's links, on [`peers`]
//! * `role`: the role of a node in its group
//! * `consensus`: the handle of a member
//! * `leadership`: the right to propose, for one term
//! * `members`: founding a group, changing its members, transferring leadership
//! * `campaign`: the conditions under which a member campaigns
//! * `succession`: election after a leader's death
//! * `catch_up`: snapshots for members that lack more than the kept log
//! * `incoming`: requests of other members, and their replies
//! * `lifecycle`: start and shutdown

mod campaign;
mod catch_up;
mod consensus;
mod encoding;
mod engine;
mod error;
mod floor;
mod group;
mod incoming;
mod leadership;
mod lifecycle;
mod limits;
mod log_store;
mod machine;
mod members;
mod message;
mod network;
mod options;
pub mod peers;
pub mod recovery;
mod replica;
mod retention;
mod role;
mod starvation;
mod succession;
mod transfer;

pub use consensus::Consensus;
pub use error::{
    ApplyError, ChangeError, Failure, FoundingError, ProposeError, RestoreError, SnapshotError,
    StartError, TransferError,
};
pub use floor::{Floor, LogEnd, NotAFloor};
pub use group::{Group, Members};
pub use leadership::{Leadership, PendingProposal};
pub use machine::{CommittedEntry, Encode, Payload, Replace, StateMachine, StateReplacement};
pub use members::Progress;
pub use message::{GroupId, Refusal};
pub use options::ConsensusOptions;
pub use peers::{AppendMessage, BulkReply, MessageTarget, PeerError, Peers, ReceivedAppend};
pub use retention::CatchUp;
pub use role::{ReportedLeader, Role};
pub use starvation::Starvation;
pub use transfer::CatchUpPace;
