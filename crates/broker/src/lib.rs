//! The broker: shards, sequencing, dispatch and back-pressure. The one API that gateways call; it
//! knows no protocol.
//!
//! * [`broker`]: the handle, and the opening of a node
//! * [`catalog`]: topics, groups and documents, and changing them
//! * [`shard_client`]: queries and changes of partitions, progress and committed offsets
//! * [`append`]: append requests and replies; `producer_appends`: entry points for them; `built_batch`: batches built
//!   of single records; `request`: requests to the log
//! * `sequencer`: gives batches their offsets and makes one proposal of all waiting requests
//! * `local_shard`: a shard on this node; `layout`, `directories`: its files
//! * `leader_balance`: spreads leaders over the nodes; `election_requests`: elections on request
//! * `peers`: connections between shards; `receipts`, `pusher`: messages from one shard to another
//! * `leader_gossip`, `gossip_forwarding`: leadership gossip of other nodes
//! * `shard_query`: queries to a shard's leader, and replies; `query_client`, `query_server`: their client and server
//! * `forwarding`: appends forwarded to the leader, in order; `command_execution`: forwarded commands
//! * `routing`: the shard of a partition or group; `adoption`: rows follow the catalog; `moves`: partitions move to
//!   other shards, and [`move_requests`]: their progress
//! * `shard`: applies committed entries, and answers the requests waiting for them
//! * [`fetch`]: reading by offset and by time; `reading`: in one shard; `bounds`: start and end of a partition
//! * `copies`: replicas that are served though another node leads
//! * [`watch`]: waiting for records
//! * `remote_watch`: the same for shards without rows on this node
//! * [`budget`]: bytes in flight, bounded for the whole node
//! * [`cpu`]: long work on records, away from the threads of sockets
//! * [`yield_budget`]: scheduling of long work on these threads
//! * [`delivery`]: leasing records one by one, and settling each
//! * `dedup`: finds copies of records that were appended before; `record_ids`: the hashes that it compares;
//!   `record_id_memory`: their memory in a node
//! * `barrier`: freshness of a copy of the catalog; `document_watch`: changed documents
//! * `changes`: partitions changed by applied entries; `housekeeping`: retention, compaction, expiry and reclaiming
//!   of space in these; `compaction_progress`: progress of compaction on this disk
//! * `scrub`: verifies all stored data
//! * [`backup`]: sends the parts of a backup; `backups`: data retained for it, `backup_parts`: parts sent by other
//!   nodes; [`restore`]: creates shards from one
//! * `vitals`: state for probes and metrics
//! * `watchdog`: reports a hanging disk; `slow_disk`: moves leadership off it
//! * [`error`]: errors of each operation

mod adoption;
pub mod append;
pub mod backup;
mod backup_parts;
mod backups;
mod barrier;
mod bounds;
pub mod broker;
pub mod budget;
mod built_batch;
pub mod catalog;
mod changes;
mod cluster_id;
mod command_execution;
mod compaction_progress;
mod copies;
pub mod cpu;
mod dedup;
pub mod delivery;
mod directories;
mod disk_health;
mod document_watch;
mod election_requests;
pub mod error;
pub mod fetch;
mod forwarding;
mod founding;
mod gossip_forwarding;
mod group_status;
mod groups;
mod housekeeping;
mod journal_batches;
mod layout;
mod leader_balance;
mod leader_gossip;
pub mod level;
pub mod limits;
mod local_shard;
mod majority;
mod majority_report;
pub mod move_requests;
mod moves;
mod options;
mod peers;
mod pending;
mod pending_proposals;
mod producer_appends;
mod proxy;
mod pusher;
mod query_client;
mod query_server;
mod reading;
mod receipts;
mod record_id_memory;
mod record_ids;
pub mod recovery;
mod remote;
mod remote_watch;
mod removed_replica;
mod replacement;
mod request;
pub mod restore;
mod routing;
mod scrub;
mod sequencer;
mod shard;
pub mod shard_client;
mod shard_query;
mod shard_status;
mod slow_disk;
mod state_lock;
mod stored_status;
#[cfg(test)]
mod tests;
pub mod timeline;
mod undeliverable;
mod vitals;
pub mod watch;
mod watchdog;
pub mod yield_budget;

pub use append::{AppendBatch, AppendReply, AppendedBatch};
pub use broker::{Broker, Storage, WeakBroker};
pub use budget::{Budget, Permit};
pub use built_batch::{batch_options, refuses_when_full};
pub use catalog::{CatalogView, ProducerIdentity};
pub use consensus::Members;
pub use cpu::CpuPool;
pub use delivery::{
    ConsumeOptions, Credit, Delivery, Event, Events, LeaseSession, Settle, SettleWhat, Settlement,
    TakeOptions,
};
pub use document_watch::{DocumentChanges, DocumentNames, DocumentWatch};
pub use election_requests::{ElectionError, NotElected};
pub use error::{AppendError, ExecuteError, FetchError, OpenError, Unavailable};
pub use fetch::{Batches, Bounds, TimedOffset};
pub use group_status::{GroupStatus, MemberLag};
pub use groups::GroupChangeError;
pub use journal::{SYNC_BUCKETS_MICROS, StoredBatches};
pub use journal_batches::batches_in;
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
pub use record_ids::RecordIds;
pub use routing::{Coordination, HomeTerm, Leader, LeaderChanges, Leaders, ShardLeaders};
pub use shard_client::{EpochEnd, LeaseProgress, OffsetAges, Producer, ShardClient};
pub use shard_status::{CatchUpProgress, ShardStatus};
pub use stored_status::StoredStatus;
pub use vitals::{RecordIdVitals, ShardVitals, UnreadyReason, Vitals};
pub use watch::Watch;
pub use yield_budget::{YieldBudget, YieldSlots};
