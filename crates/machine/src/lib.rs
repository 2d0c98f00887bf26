//! The replicated state machine of a shard: catalog, partitions, groups, producers, documents.
//!
//! Pure: `State::apply` takes an entry and answers outcomes. No I/O, no clock, no randomness, no
//! async; time and ids reach it as data in entries. It never sees a record's body: an [`Append`]
//! says what a batch's header says, and the journal keeps the bytes.
//!
//! * [`entry`]: what an entry of the log says, and how its head is encoded
//! * [`command`]: changes other than appends
//! * [`apply`]: what an entry does to the state, each unit of it whole or not at all
//! * [`outcome`]: what applying it says back
//! * [`state`]: the state itself, and the questions that the broker asks of it
//! * [`topic`], [`partition`], [`producer`], [`group`], [`config`]: its parts
//! * [`lease_group`], [`progress`]: who settles a topic's records one by one, and how far they are
//! * [`document`]: what gateways keep here

mod apply;
pub mod command;
pub mod config;
pub mod document;
pub mod entry;
pub mod group;
pub mod lease_group;
mod leasing;
mod offset_groups;
pub mod outcome;
pub mod partition;
pub mod producer;
pub mod progress;
mod snapshot;
pub mod state;
pub mod topic;

pub use command::{Command, CommitOffset, GroupSettle, NewTopic};
pub use config::{
    ConfigError, Durability, GroupConfig, GroupValues, LeaseGroupConfig, NodeConfig, TopicConfig,
};
pub use document::Document;
pub use entry::{Append, DecodeError, Entry, Head, Unit, decode_head, encode_head};
pub use group::{CommittedOffset, Group};
pub use lease_group::LeaseGroup;
pub use outcome::{ALL_PARTITIONS, AppendOutcome, Applied, Outcome, Refusal};
pub use partition::{LeaderEpoch, Partition};
pub use producer::{BatchSequence, ProducerState, SequenceRefusal, SequenceVerdict};
pub use progress::Progress;
pub use snapshot::Image;
pub use state::{CatalogStamp, State};
pub use topic::{Topic, TopicNameError, validate_topic_name};
