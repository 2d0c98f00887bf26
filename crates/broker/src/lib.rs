//! The broker: all shards of a node, their catalog, and the way to their leaders. The one API that gateways call; it
//! knows no protocol. Crate `shard` sequences and applies the requests of one shard, `shard-peers` connects shards,
//! `delivery` leases records, and `upkeep` works on the shards in the background.
//!
//! * [`broker`]: the handle, and the start of a node's tasks
//! * `opening`: a node's data directory, and its shards; [`restore`] and [`recovery`] prepare one
//! * `leadership`: leaders of the shards, and gossip on them; `remote`: requests to and from other nodes
//! * [`catalog`]: topics, groups and documents, and changing them; `adoption`: rows follow the catalog
//! * `propagation`: a change of the catalog is confirmed once every connected node follows it
//! * `routing`: the shard of a partition or group
//! * [`shard_client`]: queries and changes of partitions, progress and committed offsets
//! * `producer_appends`: entry points for appends; `command_execution`: commands in the log of their shard
//! * `fetch`: reading by offset and by time; `shard_reads`: in one shard
//! * [`delivery`]: leasing records one by one, and settling each
//! * `transactions`: transactions of Kafka's producers
//! * `operator_requests`: changes of groups, elections, scrubs, and [moves](move_requests); [`backup`]: of this node's
//!   shards
//! * `status`: state for probes, metrics and operators
//! * [`budget`]: bytes in flight, bounded for the whole node
//! * [`yield_budget`]: scheduling of long work on the threads of sockets
//! * [`error`]: errors of opening

mod adoption;
pub mod broker;
pub mod budget;
pub mod catalog;
mod command_execution;
pub mod delivery;
pub mod error;
mod fetch;
mod leadership;
pub mod limits;
mod opening;
mod operator_requests;
mod options;
mod producer_appends;
mod propagation;
mod remote;
mod routing;
pub mod shard_client;
mod shard_reads;
mod status;
#[cfg(test)]
mod tests;
mod transactions;
pub mod yield_budget;

pub use crate::delivery::{
    ConsumeOptions, Credit, Delivery, Event, Events, LeaseSession, Settle, SettleTarget,
    Settlement, TakeOptions,
};
pub use broker::{Broker, Storage, WeakBroker};
pub use budget::{Budget, Permit};
pub use catalog::{CatalogView, ProducerIdentity};
pub use consensus::Members;
pub use error::OpenError;
pub use journal::{SYNC_BUCKETS_MICROS, StoredBatches};
pub use machine::config;
pub use machine::producer::SequenceRefusal;
pub use machine::rows::transactions::partition::AbortedRange;
pub use machine::{
    Catalog, CatalogStamp, Check, CommitOffset, CommittedOffset, Document, DocumentChange,
    DocumentsChange, NewGroup, NewTopic, ProducerKey, Refusal, TopicChange, TopicDefinition,
    TopicNameError, TransactionRefusal, validate_topic_name,
};
pub use opening::{level, recovery, restore};
pub use operator_requests::elections::{ElectionError, NotElected};
pub use operator_requests::groups::GroupChangeError;
pub use operator_requests::moves as move_requests;
pub use operator_requests::moves::{MoveState, MoveStatus};
pub use options::BrokerOptions;
pub use routing::{Coordination, HomeTerm, Leader, LeaderChanges, Leaders, ShardLeaders};
pub use shard::append::{AppendBatch, AppendReply, AppendedBatch};
pub use shard::built_batch::{batch_options, refuses_when_full};
pub use shard::cpu::CpuPool;
pub use shard::document_watch::{DocumentChanges, DocumentNames, DocumentWatch};
pub use shard::error::{AppendError, ExecuteError, FetchError, Unavailable};
pub use shard::journal_batches::batches_in;
pub use shard::local_shard::ReportedGroup;
pub use shard::record_ids::RecordIds;
pub use shard::watch::Watch;
pub use shard_client::{EpochEnd, Producer, ShardClient};
pub use shard_peers::bounds::{Bounds, TimedOffset};
pub use shard_peers::group_status::{GroupStatus, MemberLag};
pub use shard_peers::shard_query::{LeaseProgress, OffsetAges};
pub use shard_peers::stored_status::StoredStatus;
pub use shard_reads::{Batches, RawBatches};
pub use status::shard_status::{CatchUpProgress, ShardStatus};
pub use status::vitals::{RecordIdVitals, ShardVitals, UnreadyReason, Vitals};
pub use transactions::{KnownTransaction, TransactionState};
pub use upkeep::backup;
pub use yield_budget::{YieldBudget, YieldSlots};
