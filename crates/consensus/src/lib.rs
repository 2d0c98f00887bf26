//! openraft over the journal; the only crate that knows it.
//!
//! A shard is one Raft group whose log is the shard's [`journal`]. This crate proposes payloads,
//! hands committed ones in log order to the shard's [`StateMachine`] and decides when a snapshot
//! is taken. One decision shaped it: nothing of openraft shows in the API, so that its next alpha
//! (or another engine) is a change to this crate alone.
//!
//! * [`consensus`]: the handle: start, lead, shut down
//! * [`leadership`]: the right to propose, for one term
//! * [`machine`]: what the shard implements, and what it is handed
//! * [`error`]: what can go wrong
//! * `types`: the names openraft gives our types
//! * `log_store`: openraft's log, on the journal
//! * `replica`: applies committed entries
//! * `runtime`: tokio, as openraft may use it
//! * `snapshot`: when the state is saved, and how
//! * `network`: links to other nodes, of which there are none yet
//! * `encoding`: what of consensus is stored: votes, members, the head of a snapshot

#[cfg(test)]
mod conformance;
pub mod consensus;
mod encoding;
pub mod error;
pub mod leadership;
mod log_store;
pub mod machine;
mod network;
mod replica;
mod runtime;
mod snapshot;
mod types;

pub use consensus::{Consensus, ConsensusOptions};
pub use error::{Failure, ProposeError, RestoreError, SnapshotError, StartError};
pub use leadership::{Leadership, Proposed};
pub use machine::{Committed, Encode, Payload, StateMachine};
