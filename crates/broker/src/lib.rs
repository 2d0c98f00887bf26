//! The broker: shards, sequencing, dispatch and back-pressure. The one API that gateways call; it
//! knows no protocol.
//!
//! * [`broker`]: the handle, and the opening of a node
//! * [`catalog`]: topics, groups and documents, and changing them
//! * [`shard_client`]: queries and changes of partitions, progress and committed offsets
//! * [`append`]: append requests and replies; `appending`: entry points for them; `made`: batches built of single
//!   records; `request`: requests to the log
//! * `sequencer`: gives batches their offsets and makes one proposal of all waiting requests
//! * `local_shard`: a shard on this node; `layout`, `directories`: its files
//! * `leading`: spreads leaders over the nodes; `electing`: elections on request
//! * `peers`: connections between shards; `outgoing`, `pusher`: messages from one shard to another
//! * `leader_gossip`, `gossip_forwarding`: leadership gossip of other nodes
//! * `question`: queries to a shard's leader, and replies; `asking`, `telling`: their client and server
//! * `forwarding`: appends forwarded to the leader, in order; `executing`: forwarded commands
//! * `routing`: the shard of a partition or group; `adoption`: rows follow the catalog; `moves`: partitions move to
//!   other shards, and [`moving`]: their progress
//! * `shard`: applies committed entries, and answers the requests waiting for them
//! * [`fetch`]: reading by offset and by time; `reading`: in one shard; `bounds`: start and end of a partition
//! * `copies`: replicas that are served though another node leads
//! * [`watch`]: waiting for records
//! * `watch_elsewhere`: the same for shards without rows on this node
//! * [`budget`]: bytes in flight, bounded for the whole node
//! * [`cpu`]: long work on records, away from the threads of sockets
//! * [`turns`]: scheduling of long work on these threads
//! * [`delivery`]: leasing records one by one, and settling each
//! * `dedup`: finds copies of records that were appended before; `record_ids`: the hashes that it compares;
//!   `record_id_memory`: their memory in a node
//! * [`operations`]: operator requests that one gateway receives and another carries out
//! * `barrier`: freshness of a copy of the catalog; `document_watch`: changed documents
//! * `changes`: partitions changed by applied entries; `housekeeping`: retention, compaction, expiry and reclaiming
//!   of space in these; `compacted`: progress of compaction on this disk
//! * `scrub`: verifies all stored data
//! * [`backup`]: sends the parts of a backup; `backups`: data retained for it, `backup_parts`: parts sent by other
//!   nodes; [`restore`]: creates shards from one
//! * `vitals`: state for probes and metrics
//! * `watchdog`: reports a hanging disk; `slow_disk`: moves leadership off it
//! * [`error`]: errors of each operation

mod adoption;
pub mod append;
mod appending;
mod asking;
pub mod backup;
mod backup_parts;
mod backups;
mod barrier;
mod bounds;
pub mod broker;
pub mod budget;
pub mod catalog;
mod changes;
mod cluster_id;
mod compacted;
mod copies;
pub mod cpu;
mod dedup;
pub mod delivery;
mod directories;
mod disk_health;
mod document_watch;
mod electing;
pub mod error;
mod executing;
pub mod fetch;
mod forwarding;
mod founding;
mod given_up;
mod gossip_forwarding;
mod group_status;
mod groups;
mod housekeeping;
mod layout;
mod leader_gossip;
mod leading;
pub mod level;
mod local_shard;
mod made;
mod majority;
mod majority_report;
mod moves;
pub mod moving;
pub mod operations;
mod options;
mod outgoing;
mod peers;
mod pending;
mod pending_proposals;
mod proxy;
mod pusher;
mod question;
mod reading;
mod record_id_memory;
mod record_ids;
pub mod recovery;
mod remote;
mod replacement;
mod request;
pub mod restore;
mod routing;
mod scrub;
mod sequencer;
mod shard;
pub mod shard_client;
mod shard_status;
mod slow_disk;
mod state_lock;
mod stored;
mod stored_status;
mod telling;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod turns;
mod unplaced;
mod vitals;
pub mod watch;
mod watch_elsewhere;
mod watchdog;

pub use append::{AppendBatch, AppendReply, Appended};
pub use broker::{Broker, Storage, WeakBroker};
pub use budget::{Budget, Permit};
pub use catalog::{CatalogView, ProducerIdentity};
pub use consensus::Members;
pub use cpu::CpuPool;
pub use delivery::{
    ConsumeOptions, Credit, Delivery, Event, Events, LeaseSession, Settle, SettleWhat, Settlement,
    TakeOptions,
};
pub use document_watch::{DocumentChanges, DocumentNames, DocumentWatch};
pub use electing::{ElectionError, NotElected};
pub use error::{AppendError, ExecuteError, FetchError, OpenError, Unavailable};
pub use fetch::{Batches, Bounds, TimedOffset};
pub use group_status::{GroupStatus, MemberLag};
pub use groups::GroupChangeError;
pub use journal::{SYNC_BUCKETS_MICROS, StoredBatches};
pub use leader_gossip::HeardGroup;
pub use machine::config;
pub use machine::producer::SequenceRefusal;
pub use machine::{
    Catalog, CatalogStamp, Check, CommitOffset, CommittedOffset, Document, DocumentChange,
    DocumentsChange, NewGroup, NewTopic, Refusal, TopicChange, TopicDefinition, TopicNameError,
    validate_topic_name,
};
pub use made::{batch_options, refuses_when_full};
pub use moving::{MoveState, MoveStatus};
pub use options::BrokerOptions;
pub use record_ids::RecordIds;
pub use routing::{Coordination, HomeTerm, Leader, LeaderChanges, Leaders, ShardLeaders};
pub use shard_client::{EpochEnd, LeaseProgress, OffsetAges, Producer, ShardClient};
pub use shard_status::{CatchingUp, ShardStatus};
pub use stored::batches_in;
pub use stored_status::StoredStatus;
pub use turns::{Pace, Turns};
pub use vitals::{RecordIdVitals, ShardVitals, Unready, Vitals};
pub use watch::Watch;
