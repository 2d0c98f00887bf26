//! The replicated state machine of a shard: catalog, partitions, groups, producers, documents.
//!
//! Pure: `State::apply` takes an entry and returns outcomes. No I/O, no clock, no randomness, no
//! async; time and ids are data in entries. It never sees a record's body: an [`Append`] has the
//! fields of a batch's header, and the journal keeps the bytes.
//!
//! * [`entry`]: entries of the log, and the encoding of their heads
//! * [`command`]: changes other than appends
//! * `apply`: applies entries to the state, each unit of them atomically
//! * [`outcome`]: results of applying
//! * [`state`]: the state itself: catalog and rows
//! * [`catalog`]: topics, groups and documents, and their configuration ([`config`])
//! * [`rows`]: partitions, producers, progress and offsets of a shard
//! * [`ids`]: records' ids in logs
//! * [`moves`]: moves of partitions between shards in logs
//! * `snapshot`: the state as bytes; `stored`: the persisted types of that form
//! * `sequence`: sequence numbers that detect repetitions

mod apply;
pub mod catalog;
pub mod command;
pub mod config;
pub mod entry;
mod group_ids;
mod group_name;
pub mod ids;
pub mod limits;
pub mod moves;
pub mod outcome;
pub mod rows;
mod sequence;
mod snapshot;
pub mod state;
mod stored;
mod topic_name;

pub use catalog::document::Document;
pub use catalog::lease_groups::LeaseGroup;
pub use catalog::topic::Topic;
pub use catalog::{Catalog, CatalogStamp};
pub use command::{
    Adoption, Check, Command, CommitOffset, DocumentChange, DocumentsChange, EndCause, EndedPart,
    GroupSettle, MessageCommand, MinimumCounters, NewGroup, NewTopic, Preparation, ProducerKey,
    SentBatch, SentMessage, TopicChange, TopicDefinition, TransactionCommand,
};
pub use config::{
    ConfigError, Durability, GroupConfig, GroupValues, LeaseGroupConfig, NodeConfig, TopicConfig,
};
pub use entry::{
    Append, BatchKind, DecodeError, Entry, Head, Origin, Unit, decode_head, decode_head_within,
    encode_head, encode_head_at,
};
pub use ids::{IdHash, KnownId, RecordIdsChange, TopicIdsChange};
pub use moves::{MoveEnd, MoveStep, MovedRow, Step};
pub use outcome::{
    ALL_PARTITIONS, AppendOutcome, EntryEffects, Outcome, Refusal, TransactionRefusal,
};
pub use rows::channels::{Channels, Outbox};
pub use rows::group::{CommittedOffset, Group};
pub use rows::partition::{LeaderEpoch, Partition};
pub use rows::producer::ProducerState;
pub use rows::progress::Progress;
pub use rows::record_ids::RecordIds;
pub use rows::requests::{ForwardedRows, Requests};
pub use rows::transactions::Transactions;
pub use rows::{ArrivalMoves, Rows};
pub use sequence::{BatchSequence, RowSequence, SequenceRefusal, SequenceVerdict};
pub use snapshot::Image;
pub use state::{Role, State};
pub use topic_name::{TopicNameError, validate_topic_name};

pub use catalog::{document, topic};
pub use rows::{group, partition, producer, progress};
