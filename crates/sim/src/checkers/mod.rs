//! Knowledge of the clients, and checks of the state that follows from it. Each checker receives requests before
//! they are sent and replies when they arrive, over all lives of the node. A request without a reply may have taken
//! effect or not.

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

/// Knowledge of all clients. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Observations(Arc<Mutex<ObservedState>>);

#[derive(Debug, Default)]
pub struct ObservedState {
    pub log: History,
    /// The log of Kafka producers.
    pub kafka: History,
    /// Messages of AMQP clients.
    pub messages: Messages,
    pub jobs: Jobs,
    /// Jobs of a share group.
    pub shared: Jobs,
    /// One for each group protocol.
    pub groups: [Group; 2],
    pub calm: Calm,
    /// No disk operation is slow from then on.
    pub is_healed: bool,
    /// Each disk operation is slow until this is reset.
    pub is_slow: bool,
    pub keys: Keys,
    pub offsets: Offsets,
    pub topics: Topics,
    /// The last term of each shard.
    pub terms: BTreeMap<ShardId, u64>,
}

impl Observations {
    /// Not to be held over an await.
    pub fn lock(&self) -> MutexGuard<'_, ObservedState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
