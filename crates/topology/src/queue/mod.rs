//! A queue: a topic of one partition and the lease group that its consumers share; and its [`settings`].

mod kind;
pub mod settings;
mod shared_values;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use base::{LeaseGroupId, PartitionId, TopicId};
use parking_lot::{Mutex, RwLock};
use values::{Table, Value};
use world::Instant;

use crate::arguments::QUEUE_TYPE;
use crate::error::{ChangeError, Entity};
pub use kind::QueueKind;
pub(crate) use settings::{LEASE_CONFIGS, PolicyMatch, TOPIC_CONFIGS};
pub use settings::{Overflow, QueueSettings};
pub(crate) use shared_values::SharedValues;

/// A queue to be created.
#[derive(Clone, Copy, Debug)]
pub struct NewQueue<'a> {
    pub name: &'a str,
    /// Ignored for a queue with an owner, which is never durable.
    pub durable: bool,
    pub auto_delete: bool,
    /// The only user of the queue, with which it is deleted.
    pub owner: Option<OwnerId>,
    /// Includes [`QUEUE_TYPE`].
    pub arguments: &'a Table,
}

impl NewQueue<'_> {
    pub fn kind(&self) -> QueueKind {
        let named = self.arguments.get(QUEUE_TYPE).and_then(Value::as_str);
        named.and_then(QueueKind::named).unwrap_or(QueueKind::Classic)
    }

    /// Returns whether the queue survives a restart.
    pub fn is_durable(&self) -> bool {
        self.durable && self.owner.is_none()
    }
}

/// Owner of exclusive queues: a connection or a session of any protocol, by a number that is unique in the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OwnerId(pub u64);

/// The owner of an exclusive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Here(OwnerId),
    /// A connection to another node, or to an earlier run of this one.
    Elsewhere,
}

#[derive(Debug)]
pub struct Queue {
    pub vhost: Arc<str>,
    pub name: Arc<str>,
    pub topic: TopicId,
    pub topic_name: Arc<str>,
    pub kind: QueueKind,
    /// Survives a restart. An exclusive queue never does.
    pub durable: bool,
    pub auto_delete: bool,
    /// The only user of the queue.
    pub owner: Option<Owner>,
    /// As declared, with `x-queue-type` added. Shared by all queues with the same arguments.
    pub arguments: Arc<Table>,
    /// It was declared. Otherwise it is a topic created by another protocol.
    pub declared: bool,
    /// 1 unless another protocol created the topic.
    partitions: AtomicU32,
    /// `u32::MAX`: none yet.
    group: AtomicU32,
    settings: RwLock<Arc<QueueSettings>>,
    use_: Mutex<Use>,
    deleted: AtomicBool,
}

/// Use of the queue on this node, for auto-delete and `x-expires`.
#[derive(Debug)]
struct Use {
    consumers: u32,
    last: Instant,
}

const NO_GROUP: u32 = u32::MAX;

/// A queue's name. Shares the allocation of the topic's name if they are equal, as for most queues.
pub(crate) fn queue_name(name: &str, topic_name: &Arc<str>) -> Arc<str> {
    if **topic_name == *name { Arc::clone(topic_name) } else { Arc::from(name) }
}

impl Queue {
    #[expect(clippy::too_many_arguments, reason = "it is what a queue is made of")]
    pub(crate) fn new(
        vhost: &Arc<str>,
        name: Arc<str>,
        (topic, topic_name): (TopicId, Arc<str>),
        kind: QueueKind,
        (durable, auto_delete): (bool, bool),
        owner: Option<Owner>,
        arguments: Arc<Table>,
        declared: bool,
        settings: Arc<QueueSettings>,
    ) -> Self {
        Self {
            vhost: Arc::clone(vhost),
            name,
            topic,
            topic_name,
            kind,
            durable,
            auto_delete,
            owner,
            arguments,
            declared,
            partitions: AtomicU32::new(1),
            group: AtomicU32::new(NO_GROUP),
            settings: RwLock::new(settings),
            use_: Mutex::new(Use { consumers: 0, last: Instant::now() }),
            deleted: AtomicBool::new(false),
        }
    }

    /// The current settings: arguments and policies combined.
    pub fn settings(&self) -> Arc<QueueSettings> {
        Arc::clone(&self.settings.read())
    }

    pub(crate) fn set_settings(&self, settings: Arc<QueueSettings>) {
        *self.settings.write() = settings;
    }

    /// The lease group that its consumers share. A stream has none. A topic of another protocol has none until
    /// [`crate::VirtualHost::queue`] finds it.
    pub fn group(&self) -> Option<LeaseGroupId> {
        let group = self.group.load(Ordering::Acquire);
        (group != NO_GROUP).then_some(LeaseGroupId(group))
    }

    pub(crate) fn set_group(&self, group: LeaseGroupId) {
        self.group.store(group.0, Ordering::Release);
    }

    /// More than one only if another protocol created the topic.
    pub fn partition_count(&self) -> u32 {
        self.partitions.load(Ordering::Relaxed)
    }

    pub(crate) fn set_partition_count(&self, partitions: u32) {
        self.partitions.store(partitions, Ordering::Relaxed);
    }

    pub fn partition(&self, index: u32) -> PartitionId {
        PartitionId::new(self.topic, index)
    }

    pub fn is_stream(&self) -> bool {
        self.kind == QueueKind::Stream
    }

    /// Returns whether the queue was deleted while the caller held it.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    pub(crate) fn set_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Number of consumers on this node.
    pub(crate) fn consumers_here(&self) -> u32 {
        self.use_.lock().consumers
    }

    /// Counts a new consumer of this node. Call [`crate::VirtualHost::consumer_left`] when it leaves.
    pub fn consumer_came(&self) {
        let mut use_ = self.use_.lock();
        use_.consumers += 1;
        use_.last = Instant::now();
    }

    /// Counts a departed consumer. Returns whether it was the last.
    pub(crate) fn consumer_went(&self) -> bool {
        let mut use_ = self.use_.lock();
        use_.consumers = use_.consumers.saturating_sub(1);
        use_.last = Instant::now();
        use_.consumers == 0
    }

    /// Returns whether the queue is deleted when no node uses it.
    pub(crate) fn is_deleted_when_unused(&self) -> bool {
        self.auto_delete || self.settings().expires_ms.is_some()
    }

    /// Records a use without a consumer. [`crate::VirtualHost::use_queue`] reports it to all nodes.
    pub(crate) fn used(&self) {
        self.use_.lock().last = Instant::now();
    }

    /// Time of the last use; `None` while it has a consumer.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        let use_ = self.use_.lock();
        (use_.consumers == 0).then_some(use_.last)
    }

    /// Returns whether the queue was unused for the time in its settings.
    pub(crate) fn is_expired(&self) -> bool {
        match (self.settings().expires_ms, self.unused_since()) {
            (Some(expires), Some(since)) => {
                since.elapsed() >= Duration::from_millis(expires.unsigned_abs())
            }
            _ => false,
        }
    }

    /// Rejects any user but the owner.
    pub(crate) fn check_owner(&self, user: OwnerId) -> Result<(), ChangeError> {
        match self.owner {
            Some(owner) if owner != Owner::Here(user) => {
                Err(ChangeError::Locked(Entity::queue(&self.name, &self.vhost)))
            }
            _ => Ok(()),
        }
    }
}
