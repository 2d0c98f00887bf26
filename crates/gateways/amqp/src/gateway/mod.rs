//! State shared by all sessions of the gateway: broker, topology and users, and the counts and receivers of this node.
//! It knows no session.

pub(crate) mod counts;
pub(crate) mod replies;
pub(crate) mod transaction_memory;

use std::sync::Arc;
use std::time::Duration;

use access::Users;
use broker::{AppendError, Broker, Budget};
use futures_util::FutureExt;
use tasks::Task;
use tokio::sync::watch;
use tokio::time::sleep;
use topology::Topology;

use crate::gateway::counts::Counts;
use crate::gateway::replies::Replies;
use crate::gateway::transaction_memory::TransactionMemory;
use crate::limits::AMQP_ARRIVING_BYTES_MAX;
use crate::options::GatewayOptions;
use crate::posted::Reply;

/// Interval of checks of the disk while publishers wait for free space.
const ALARM_INTERVAL: Duration = Duration::from_secs(1);

/// Name of the protocol for operators.
pub(crate) const PROTOCOL: &str = "amqp";

#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) broker: Broker,
    pub(crate) topology: Topology,
    pub(crate) users: Users,
    pub(crate) options: GatewayOptions,
    pub(crate) replies: Arc<Replies>,
    pub(crate) transactions: TransactionMemory,
    /// Memory of messages that are being received.
    pub(crate) arriving: Budget,
    pub(crate) counts: Counts,
    /// The disk is full, and publishers are blocked.
    pub(crate) alarm: watch::Sender<bool>,
    pub(crate) shutdown: watch::Receiver<bool>,
}

impl Gateway {
    pub(crate) fn new(
        broker: Broker,
        topology: Topology,
        users: Users,
        options: GatewayOptions,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        let (alarm, _) = watch::channel(false);
        Self {
            broker,
            topology,
            users,
            options,
            replies: Arc::default(),
            transactions: TransactionMemory::default(),
            arriving: Budget::new(AMQP_ARRIVING_BYTES_MAX),
            counts: Counts::default(),
            alarm,
            shutdown,
        }
    }

    /// Posts a reply if the node has room for one more body. Returns whether the name has a receiver.
    pub(crate) fn post_reply(&self, name: &str, mut reply: Reply) -> bool {
        match self.broker.admit(reply.body.bytes()).now_or_never() {
            Some(permit) => {
                reply.permit = Some(permit);
                self.replies.post(name, reply)
            }
            None => self.replies.exists(name),
        }
    }

    /// Handles a rejected append. If the disk is full, publishers are blocked until there is space.
    pub(crate) fn note_refused(self: &Arc<Self>, error: &AppendError) {
        let AppendError::StorageFull { reserve_bytes, .. } = *error else { return };
        let raised = self.alarm.send_if_modified(|alarm| !std::mem::replace(alarm, true));
        if !raised {
            return;
        }
        tracing::warn!(%error, "AMQP publishers are held back");
        let gateway = Arc::clone(self);
        tasks::spawn(Task::AmqpDiskAlarm, async move {
            loop {
                sleep(ALARM_INTERVAL).await;
                let free = gateway.broker.storage().map_or(u64::MAX, |space| space.free_bytes);
                // The full disk may belong to another node that leads a shard.
                let has_room = free > reserve_bytes && !gateway.broker.leader_disk_is_full();
                if has_room || *gateway.shutdown.borrow() {
                    break;
                }
            }
            tracing::info!("AMQP publishers go on");
            gateway.alarm.send_replace(false);
        });
    }
}
