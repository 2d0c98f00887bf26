//! A shard for one term: its requests get their offsets, become entries of its log, and are answered once those are
//! applied. It knows no other shard, no session and no protocol.
//!
//! * [`append`]: append requests and replies; [`built_batch`]: batches built of single records
//! * [`request`]: requests to the log
//! * [`sequencer`]: gives batches their offsets and makes one proposal of all waiting requests
//! * [`state_machine`]: applies committed entries, and answers the requests waiting for them
//! * `pending`, `pending_proposals`: the requests that wait for a proposal; [`receipts`]: those that wait for a message
//!   to another shard
//! * [`dedup`]: finds copies of records that were appended before; [`record_ids`]: the hashes that it compares
//! * [`delivery`]: the messages to the shard's driver of leases, which crate `delivery` has, and the data in them
//! * [`local_shard`]: a shard on this node, with its part in consensus and its tasks; its role and its group's members
//! * [`undeliverable`]: records of other shards whose topic was deleted
//! * [`watch`]: waiting for records; [`document_watch`]: changed documents; [`barrier`]: freshness of a copy of the
//!   catalog
//! * [`timeline`]: time that continues when the wall clock is set; [`cpu`]: long work on records, away from the threads
//!   of sockets; [`majority`]: connection to a majority of the voters
//! * [`journal_batches`]: batches in the results of the journal; [`committed`]: those of committed transactions
//! * [`error`]: errors of each operation

pub mod append;
pub mod barrier;
pub mod built_batch;
pub mod committed;
pub mod cpu;
pub mod dedup;
pub mod delivery;
pub mod document_watch;
pub mod error;
pub mod journal_batches;
pub mod limits;
pub mod local_shard;
pub mod majority;
mod pending;
mod pending_proposals;
pub mod receipts;
pub mod record_ids;
pub mod request;
pub mod sequencer;
pub mod state_machine;
pub mod timeline;
pub mod undeliverable;
pub mod watch;

pub use local_shard::LocalShard;
pub use state_machine::{Shard, View};
