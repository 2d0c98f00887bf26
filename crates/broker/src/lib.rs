//! The broker: shards, sequencing, dispatch and back-pressure. The one API that gateways call; it
//! knows no protocol.
//!
//! * [`broker`]: the handle, and how a node opens
//! * [`catalog`]: which topics, groups and documents there are, and changing them
//! * [`shard_client`]: questions and changes about partitions, progress and committed offsets
//! * [`append`]: what a producer hands in and gets back; `appending`: handing it in; `made`: batches of
//!   records that came one by one; `request`: what is asked of the log
//! * `sequencer`: gives batches their offsets and makes one proposal of all that waits
//! * `local_shard`: a shard as this node has it; `layout`, `directories`: where its files are
//! * `leading`: which node leads which shard; `electing`: somebody asks for that
//! * `peers`: how shards reach one another; `outgoing`, `pusher`: what one sends to another
//! * `hearsay`, `hearing`: what other nodes tell of the groups that they lead
//! * `question`: what is asked of a shard's leader, and told; `asking`, `telling`: both sides of it
//! * `forwarding`: appends that go to the node that leads, in order; `executing`: commands that do
//! * `routing`: which shard has what; `adoption`: rows follow the catalog; `moves`: partitions go to other shards, and [`moving`]: how far they are
//! * `shard`: applies what consensus committed, and answers whoever waits for it
//! * [`fetch`]: reading by offset and by time; `reading`: in one shard; `bounds`: where a partition ends
//! * `copies`: which copies of what another node leads are served
//! * [`watch`]: waiting for records
//! * `watch_elsewhere`: the same of shards that this node has no rows of
//! * [`budget`]: bytes in flight, bounded for the whole node
//! * [`cpu`]: work on records that takes long, away from the threads of sockets
//! * [`turns`]: how long work shares these threads
//! * [`delivery`]: leasing records one by one, and settling each
//! * `dedup`: finds copies of records that were appended before; `record_ids`: the hashes that it compares;
//!   `record_id_memory`: their memory in a node
//! * [`operations`]: what operators ask of one gateway and another carries out
//! * `barrier`: that a copy of the catalog is the newest; `document_watch`: which documents changed
//! * `changes`: what applied entries changed; `housekeeping`: retention, compaction, expiry, and space
//!   that comes back, where something did; `compacted`: how far compaction came on this disk
//! * `scrub`: looks through what is stored
//! * [`backup`]: sends what a backup is made of; `backups`: what is held for it, `backup_parts`: what other nodes send of it; [`restore`]: makes shards of one
//! * `vitals`: what probes and metrics see of it all
//! * `watchdog`: tells when the disk hangs; `slow_disk`: then another node leads
//! * [`error`]: what can go wrong, per operation

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
mod group_status;
mod groups;
mod hearing;
mod hearsay;
mod housekeeping;
mod layout;
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
pub use hearsay::HeardGroup;
pub use journal::{SYNC_BUCKETS_MICROS, Stored};
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
