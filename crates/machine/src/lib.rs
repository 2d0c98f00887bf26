//! The replicated state machine of a shard: catalog, partitions, offset groups, producers.
//!
//! Pure: `State::apply` takes an entry and answers outcomes. No I/O, no clock, no randomness, no
//! async; time and ids reach it as data in entries. It never sees a record's body: an [`Append`]
//! says what a batch's header says, and the journal keeps the bytes.
//!
//! * [`command`]: what an entry may say, and how it is encoded
//! * [`outcome`]: what applying it says back
//! * [`state`]: the state itself, and the questions that the broker asks of it
//! * [`topic`], [`partition`], [`producer`], [`group`], [`config`]: its parts

pub mod command;
pub mod config;
pub mod group;
pub mod outcome;
pub mod partition;
pub mod producer;
mod snapshot;
pub mod state;
pub mod topic;

pub use command::{
    Append, Command, CommitOffset, DecodeError, Entry, NewTopic, decode_head, encode_head,
};
pub use config::{ConfigError, Durability, GroupConfig, GroupValues, NodeConfig, TopicConfig};
pub use group::{CommittedOffset, Group};
pub use outcome::{AppendOutcome, Applied, Outcome, Refusal};
pub use partition::{LeaderEpoch, Partition};
pub use producer::{BatchSequence, ProducerState, SequenceRefusal, SequenceVerdict};
pub use state::{CatalogStamp, State};
pub use topic::{Topic, TopicNameError, validate_topic_name};
