//! Handle to a driver: its messages and requests, and the data that it shares with the sequencer. It depends on
//! neither the driver nor its parts, so that the shard, the sequencer and sessions can have it.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId, ShardId};
use bytes::Bytes;
use dispatch::{Claim, ConsumerId, LeaseView, SessionId};
use machine::outcome::EntryEffects;
use machine::{ALL_PARTITIONS, Command, GroupSettle, MessageCommand, Outcome, Preparation};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use crate::append::{AppendBatch, AppendedBatch, Appends};
use crate::error::Unavailable;
use crate::receipts::UnitResult;
use crate::timeline::Timeline;

use super::borrowed_credit::BorrowedCreditState;
use super::dead_letter::Routers;
use super::divided_credit::{Change, CreditKind};
use super::error::{ConsumeError, RemoveError, TakeError, TransferError};
use super::event::{Delivery, EventSender};
use super::group_backlog::GroupBacklogs;
use super::history::ring::Ring;
use super::history::{HistoryFeed, HistoryQuery, UnsettledRecord};
use super::inspect::Counters;
use super::options::{ConsumeOptions, Credit, Settle, TakeOptions};
use super::rates::{AppendRates, Totals};
pub use super::settle_reply::SettleResults;
use super::settle_reply::SettleSender;
use super::trace_queue::TraceFeed;
use super::unread::{NodeUnread, UnreadDeliveries};

/// A message to the driver.
#[derive(Debug)]
pub enum Message {
    Open {
        session: SessionId,
        events: EventSender,
        unread: Arc<UnreadDeliveries>,
    },
    Close {
        session: SessionId,
    },
    /// The relay of the session's node has ended. The node may be alive: the session keeps its leases until the
    /// node's next relay has presented them, or until `Close`.
    Suspend {
        session: SessionId,
    },
    /// The reply is whether the consumer may get records, in a group with a single active consumer.
    Consume {
        session: SessionId,
        group: LeaseGroupId,
        joining: ConsumerRegistration,
        reply: oneshot::Sender<Result<bool, ConsumeError>>,
    },
    Grant {
        session: SessionId,
        consumer: ConsumerId,
        credit: Credit,
    },
    SetCredit {
        session: SessionId,
        consumer: ConsumerId,
        credit: Credit,
    },
    Limit {
        session: SessionId,
        records: Option<u32>,
    },
    /// The shard's share of credit that is split over shards.
    Share {
        session: SessionId,
        kind: CreditKind,
        change: Change,
    },
    /// A share as an earlier driver had it, of a consumer that has just joined or of the session.
    Lend {
        session: SessionId,
        kind: CreditKind,
        loan: BorrowedCreditState,
    },
    Cancel {
        session: SessionId,
        consumer: ConsumerId,
        reply: oneshot::Sender<()>,
    },
    Take {
        session: SessionId,
        group: LeaseGroupId,
        options: TakeOptions,
        reply: oneshot::Sender<Result<Vec<Delivery>, TakeError>>,
    },
    Settle {
        session: SessionId,
        settles: Vec<Settle>,
        /// Repeated settles: an earlier leader may have applied them.
        again: bool,
        reply: SettleSender,
    },
    Transfer {
        session: SessionId,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
        /// Settles that the drivers of other shards have withheld for it.
        elsewhere: BTreeMap<ShardId, SettlesElsewhere>,
        reply: oneshot::Sender<TransferResult>,
    },
    /// The settles of a transfer that another shard decides: ends the leases, and withholds the records from
    /// delivery until the message of that shard, `Restore`, or the end of the session.
    Withhold {
        session: SessionId,
        settles: Vec<Settle>,
        reply: oneshot::Sender<WithholdResult>,
    },
    /// The other shard refused the transfer: its records are available again. Or the session does not wait for its
    /// decision any longer.
    Restore {
        session: SessionId,
        preparation: Preparation,
        is_refused: bool,
    },
    /// A message from another shard settled these records.
    SettledElsewhere {
        settles: Vec<GroupSettle>,
    },
    /// A session's leases, by group: of leaders in earlier terms, and those of a suspended session.
    Present {
        session: SessionId,
        claims: Vec<(LeaseGroupId, Claim)>,
    },
    /// A node has presented its sessions and their leases.
    Presented {
        node: u64,
    },
    /// The session's connection, which had too much unread, has room again.
    Room {
        session: SessionId,
        /// 0: no connection.
        connection: u64,
    },
    /// A group changed by something other than a settle.
    Moved {
        group: LeaseGroupId,
        partition: u32,
        sought: bool,
    },
    /// Batches that the sequencer refused because the topic is full, to be made dead letters. Their producer's
    /// replies are sent after that.
    Overflowed {
        batches: Vec<(PartitionId, Bytes)>,
        answers: Appends,
        reply: oneshot::Sender<Appends>,
    },
    Query(DriverQuery),
    /// Request for a record's state in groups. Only the shard's leader replies.
    RecordHistory {
        query: HistoryQuery,
        reply: oneshot::Sender<Vec<Option<UnsettledRecord>>>,
    },
    /// The driver finishes all work in flight, then stops.
    Stop,
}

impl Message {
    /// The session of the message; `None` for a message of no session.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Open { session, .. }
            | Self::Close { session }
            | Self::Suspend { session }
            | Self::Consume { session, .. }
            | Self::Grant { session, .. }
            | Self::SetCredit { session, .. }
            | Self::Limit { session, .. }
            | Self::Share { session, .. }
            | Self::Lend { session, .. }
            | Self::Cancel { session, .. }
            | Self::Take { session, .. }
            | Self::Settle { session, .. }
            | Self::Transfer { session, .. }
            | Self::Withhold { session, .. }
            | Self::Restore { session, .. }
            | Self::Present { session, .. }
            | Self::Room { session, .. } => Some(*session),
            Self::Presented { .. }
            | Self::Moved { .. }
            | Self::SettledElsewhere { .. }
            | Self::Overflowed { .. }
            | Self::Query(_)
            | Self::RecordHistory { .. }
            | Self::Stop => None,
        }
    }

    /// Replies with an error. The reply channel of a question is dropped.
    pub fn refuse(self, why: &Unavailable) {
        match self {
            Self::Consume { reply, .. } => {
                let _ = reply.send(Err(why.clone().into()));
            }
            Self::Take { reply, .. } => {
                let _ = reply.send(Err(why.clone().into()));
            }
            Self::Settle { settles, reply, .. } => {
                reply.send(vec![Err(why.clone().into()); settles.len()]);
            }
            Self::Transfer { reply, .. } => {
                let _ = reply.send(Err(why.clone().into()));
            }
            Self::Withhold { reply, .. } => {
                let _ = reply.send(Err(why.clone().into()));
            }
            Self::Overflowed { answers, reply, .. } => {
                let _ = reply.send(answers);
            }
            Self::Open { .. }
            | Self::Restore { .. }
            | Self::SettledElsewhere { .. }
            | Self::Close { .. }
            | Self::Suspend { .. }
            | Self::Grant { .. }
            | Self::SetCredit { .. }
            | Self::Limit { .. }
            | Self::Share { .. }
            | Self::Lend { .. }
            | Self::Cancel { .. }
            | Self::Present { .. }
            | Self::Presented { .. }
            | Self::Room { .. }
            | Self::Moved { .. }
            | Self::Query(_)
            | Self::RecordHistory { .. }
            | Self::Stop => {}
        }
    }
}

/// A consumer as one shard knows it.
#[derive(Clone, Debug)]
pub struct ConsumerRegistration {
    pub consumer: ConsumerId,
    /// With its credit in this shard.
    pub options: ConsumeOptions,
    /// Kinds of that credit which are a share of the whole.
    pub divided: Vec<CreditKind>,
}

/// Places of a transfer's batches, in the log or in flight to another shard.
pub type TransferOutcome = UnitResult<Option<AppendedBatch>>;
pub type TransferResult = Result<TransferOutcome, TransferError>;

/// Settles that take effect by the entry of another shard.
#[derive(Debug)]
pub struct WithheldSettles {
    pub settles: SettlesElsewhere,
    /// Dead letters of rejected records, to be appended with them.
    pub dead_letters: Vec<AppendBatch>,
}

/// Settles of records that a driver withholds from delivery.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SettlesElsewhere {
    pub settles: Vec<GroupSettle>,
    /// Identifies them to the driver.
    pub preparation: Preparation,
}

pub type WithholdResult = Result<WithheldSettles, TransferError>;

/// A query or change by an operator that needs the driver's volatile state. A reply of `None` means that the
/// group does not exist.
#[derive(Debug)]
pub enum DriverQuery {
    Counters {
        group: LeaseGroupId,
        reply: oneshot::Sender<Option<Counters>>,
    },
    /// The engine's state of a partition's unsettled records.
    Unsettled {
        group: LeaseGroupId,
        partition: u32,
        from: Offset,
        records_max: usize,
        reply: oneshot::Sender<Option<Vec<dispatch::RecordInfo>>>,
    },
    Leases {
        group: LeaseGroupId,
        after: Option<(u32, Offset)>,
        leases_max: usize,
        reply: oneshot::Sender<Vec<LeaseView>>,
    },
    /// Settles all records that are not leased; the reply is their number.
    Purge {
        group: LeaseGroupId,
        durable: oneshot::Sender<SettleResults>,
        reply: oneshot::Sender<Result<u64, RemoveError>>,
    },
    /// Settles one record that is not leased.
    Remove {
        group: LeaseGroupId,
        partition: u32,
        offset: Offset,
        durable: oneshot::Sender<SettleResults>,
        reply: oneshot::Sender<Result<(), RemoveError>>,
    },
    /// Whether each of these records is neither settled nor leased.
    Free {
        group: LeaseGroupId,
        partition: u32,
        offsets: Vec<Offset>,
        reply: oneshot::Sender<Option<Vec<bool>>>,
    },
    /// Settles records that are not leased, and appends, in one log entry.
    MoveAway {
        group: LeaseGroupId,
        partition: u32,
        offsets: Vec<Offset>,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<TransferResult>,
    },
}

pub type Inbox = mpsc::UnboundedReceiver<Message>;

/// Handle to a driver.
#[derive(Clone, Debug)]
pub struct Handle {
    inbox: mpsc::UnboundedSender<Message>,
    pub routers: Arc<Routers>,
    pub standings: Arc<GroupBacklogs>,
    pub published: Arc<AppendRates>,
    pub totals: Arc<Totals>,
    pub history: Arc<Mutex<Ring>>,
    pub feed: Option<HistoryFeed>,
    pub traces: TraceFeed,
    pub timeline: Arc<Timeline>,
    pub unread: Arc<NodeUnread>,
}

impl Handle {
    /// `history_bytes`: capacity for steps of records; 0 remembers nothing.
    pub fn new(
        timeline: Arc<Timeline>,
        history_bytes: usize,
        feed: Option<HistoryFeed>,
        traces: TraceFeed,
        unread: Arc<NodeUnread>,
    ) -> (Self, Inbox) {
        let (inbox, messages) = mpsc::unbounded_channel();
        let (routers, standings, published) = (Arc::default(), Arc::default(), Arc::default());
        let (totals, history) = (Arc::default(), Arc::new(Mutex::new(Ring::new(history_bytes))));
        let handle = Self {
            inbox,
            routers,
            standings,
            published,
            totals,
            history,
            feed,
            traces,
            timeline,
            unread,
        };
        (handle, messages)
    }

    #[inline]
    pub fn send(&self, message: Message) {
        // Without a driver the node is stopping: a caller's reply channel is dropped.
        let _ = self.inbox.send(message);
    }

    /// Forwards the settles of a message from another shard. Called by apply under the lock of the rows: a reader that
    /// sees the message finds it forwarded.
    pub(crate) fn received(&self, commands: &[Command], applied: &EntryEffects) {
        for (command, outcome) in commands.iter().zip(&applied.commands) {
            if let (Command::FromMessage(MessageCommand::Settle { settles }), Ok(_)) =
                (command, outcome)
            {
                self.send(Message::SettledElsewhere { settles: settles.clone() });
            }
        }
    }

    /// Forwards the effects of a log entry on groups. Called by apply, for every entry.
    pub(crate) fn applied(&self, commands: &[Command], applied: &EntryEffects) {
        for &(group, partition) in &applied.moved {
            let sought = commands.iter().any(|command| {
                matches!(command, Command::SeekLeaseGroup { group: moved, .. } if *moved == group)
            });
            self.send(Message::Moved { group, partition, sought });
        }
        for outcome in &applied.commands {
            if let Ok(Outcome::LeaseGroup(group)) = outcome {
                let (group, partition) = (*group, ALL_PARTITIONS);
                self.send(Message::Moved { group, partition, sought: false });
            }
        }
    }

    /// Queries the driver; `None` when it is gone.
    pub async fn query<R>(
        &self,
        query: impl FnOnce(oneshot::Sender<R>) -> DriverQuery,
    ) -> Option<R> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Query(query(reply)));
        answer.await.ok()
    }
}
