//! What clients know, and from that what must be there. Each is told of requests before they are sent and of
//! answers when they come, over all lives of the node; what was not answered may have happened or not.

pub mod calm;
pub mod groups;
pub mod jobs;
pub mod keys;
pub mod messages;
pub mod offsets;
pub mod topics;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::ShardId;

use crate::history::History;
use calm::Calm;
use groups::Group;
use jobs::Jobs;
use keys::Keys;
use messages::Messages;
use offsets::Offsets;
use topics::Topics;

/// All that clients know. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Knowledge(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
pub struct Known {
    pub log: History,
    /// Of Kafka's producers.
    pub kafka: History,
    /// Of AMQP's clients.
    pub messages: Messages,
    pub jobs: Jobs,
    /// Of a share group.
    pub shared: Jobs,
    /// Of each protocol of groups.
    pub groups: [Group; 2],
    pub calm: Calm,
    /// From then on no step of a disk is slow.
    pub is_healed: bool,
    /// Until it is said otherwise each step of a disk is slow.
    pub is_slow: bool,
    pub keys: Keys,
    pub offsets: Offsets,
    pub topics: Topics,
    /// In which each shard was led last.
    pub terms: BTreeMap<ShardId, u64>,
}

impl Knowledge {
    /// Not to be held over an await.
    pub fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
