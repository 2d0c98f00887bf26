//! The broker: all shards of a node, their catalog, and the way to their leaders. The one API that gateways call; it
//! knows no protocol. Crate `shard` sequences and applies the requests of one shard, `shard-peers` connects shards, and
//! `delivery` leases records.
//!
//! * [`broker`]: the handle, and the opening of a node
//! * [`catalog`]: topics, groups and documents, and changing them
//! * [`shard_client`]: queries and changes of partitions, progress and committed offsets
//! * `producer_appends`: entry points for appends
//! * `local_shard`: a shard on this node; `layout`, `directories`: its files
//! * `leader_balance`: spreads leaders over the nodes; `election_requests`: elections on request
//! * `leader_gossip`, `gossip_forwarding`: leadership gossip of other nodes
//! * `query_client`, `query_server`: client and server of queries to a shard's leader; `proxy`: server of all requests
//!   of other nodes
//! * `forwarding`: appends forwarded to the leader, in order; `command_execution`: forwarded commands
//! * `routing`: the shard of a partition or group; `adoption`: rows follow the catalog; `moves`: partitions move to
//!   other shards, and [`move_requests`]: their progress
//! * [`fetch`]: reading by offset and by time; `reading`: in one shard
//! * `copies`: replicas that are served though another node leads
//! * `remote_watch`: waiting for records of shards without rows on this node
//! * [`budget`]: bytes in flight, bounded for the whole node
//! * [`yield_budget`]: scheduling of long work on the threads of sockets
//! * [`delivery`]: leasing records one by one, and settling each
//! * `housekeeping`: retention, compaction, expiry and reclaiming of space
//! * `scrub`: verifies all stored data
//! * [`backup`]: sends the parts of a backup; `backups`: data retained for it; [`restore`]: creates shards from one
//! * `vitals`: state for probes and metrics
//! * `watchdog`: reports a hanging disk; `slow_disk`: moves leadership off it
//! * [`error`]: errors of opening

mod adoption;
pub mod backup;
mod backups;
pub mod broker;
pub mod budget;
pub mod catalog;
mod cluster_id;
mod command_execution;
mod copies;
pub mod delivery;
mod directories;
mod disk_health;
mod election_requests;
pub mod error;
pub mod fetch;
mod forwarding;
mod founding;
mod gossip_forwarding;
mod groups;
mod housekeeping;
mod layout;
mod leader_balance;
mod leader_gossip;
pub mod level;
pub mod limits;
mod local_shard;
mod majority_report;
pub mod move_requests;
mod moves;
mod options;
mod producer_appends;
mod proxy;
mod query_client;
mod query_server;
mod reading;
pub mod recovery;
mod remote_watch;
mod removed_replica;
pub mod restore;
mod routing;
mod scrub;
pub mod shard_client;
mod shard_status;
mod slow_disk;
#[cfg(test)]
mod tests;
mod vitals;
mod watchdog;
pub mod yield_budget;

pub use crate::delivery::{
    ConsumeOptions, Credit, Delivery, Event, Events, LeaseSession, Settle, SettleWhat, Settlement,
    TakeOptions,
};
pub use broker::{Broker, Storage, WeakBroker};
pub use budget::{Budget, Permit};
pub use catalog::{CatalogView, ProducerIdentity};
pub use consensus::Members;
pub use election_requests::{ElectionError, NotElected};
pub use error::OpenError;
pub use groups::GroupChangeError;
pub use journal::{SYNC_BUCKETS_MICROS, StoredBatches};
pub use leader_gossip::ReportedGroup;
pub use machine::config;
pub use machine::producer::SequenceRefusal;
pub use machine::{
    Catalog, CatalogStamp, Check, CommitOffset, CommittedOffset, Document, DocumentChange,
    DocumentsChange, NewGroup, NewTopic, Refusal, TopicChange, TopicDefinition, TopicNameError,
    validate_topic_name,
};
pub use move_requests::{MoveState, MoveStatus};
pub use options::BrokerOptions;
pub use reading::Batches;
pub use routing::{Coordination, HomeTerm, Leader, LeaderChanges, Leaders, ShardLeaders};
pub use shard::append::{AppendBatch, AppendReply, AppendedBatch};
pub use shard::built_batch::{batch_options, refuses_when_full};
pub use shard::cpu::CpuPool;
pub use shard::document_watch::{DocumentChanges, DocumentNames, DocumentWatch};
pub use shard::error::{AppendError, ExecuteError, FetchError, Unavailable};
pub use shard::journal_batches::batches_in;
pub use shard::record_ids::RecordIds;
pub use shard::watch::Watch;
pub use shard_client::{EpochEnd, Producer, ShardClient};
pub use shard_peers::bounds::{Bounds, TimedOffset};
pub use shard_peers::group_status::{GroupStatus, MemberLag};
pub use shard_peers::shard_query::{LeaseProgress, OffsetAges};
pub use shard_peers::stored_status::StoredStatus;
pub use shard_status::{CatchUpProgress, ShardStatus};
pub use vitals::{RecordIdVitals, ShardVitals, UnreadyReason, Vitals};
pub use yield_budget::{YieldBudget, YieldSlots};
