//! How everyone reaches the driver: what it is told and asked, and what it shares with the sequencer.
//!
//! This knows neither the driver nor its parts, so that the shard, the sequencer and sessions can have it.

use std::sync::Arc;

use base::{LeaseGroupId, Offset, PartitionId};
use bytes::Bytes;
use dispatch::{Claim, ConsumerId, LeaseView, SessionId};
use machine::outcome::Applied;
use machine::{ALL_PARTITIONS, Command, Outcome};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::append::{AppendBatch, Appended, Appends};
use crate::error::Unavailable;
use crate::outgoing::Entered;
use crate::timeline::Timeline;

use super::dead_letter::Routers;
use super::divided_credit::{Change, CreditKind};
use super::error::{ConsumeError, RemoveError, TakeError, TransferError};
use super::event::{Delivery, EventSender};
use super::history::ring::Ring;
use super::history::{HistoryFeed, Look, Standing};
use super::inspect::Counters;
use super::lent::Loan;
use super::options::{ConsumeOptions, Credit, Settle, TakeOptions};
use super::rates::{Published, Totals};
use super::settle_reply::SettleSender;
pub(crate) use super::settle_reply::Settled;
use super::standings::Standings;
use super::traced::TraceFeed;
use super::unread::{NodeUnread, Unread};

/// What sessions and others tell the driver.
pub(crate) enum Message {
    Open {
        session: SessionId,
        events: EventSender,
        unread: Arc<Unread>,
    },
    Close {
        session: SessionId,
    },
    /// Answered with whether records may go to it, where only one of the group's consumers is active.
    Consume {
        session: SessionId,
        group: LeaseGroupId,
        joining: Joining,
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
    /// The shard's share of credit that is divided over shards.
    Share {
        session: SessionId,
        kind: CreditKind,
        change: Change,
    },
    /// A share as another driver had it, of a consumer that has just joined or of the session.
    Lend {
        session: SessionId,
        kind: CreditKind,
        loan: Loan,
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
        /// They were said to an earlier leader, which may have done it.
        again: bool,
        reply: SettleSender,
    },
    Transfer {
        session: SessionId,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Transferred>,
    },
    /// What a session has leased of a leader in an earlier term, by group.
    Present {
        session: SessionId,
        claims: Vec<(LeaseGroupId, Claim)>,
    },
    /// A node has said which sessions it has and what they have leased.
    Presented {
        node: u64,
    },
    /// The session's connection, which had too much unread, has room again.
    Room {
        session: SessionId,
        /// 0: it is of none.
        connection: u64,
    },
    /// A group changed by something other than a settle.
    Moved {
        group: LeaseGroupId,
        partition: u32,
        sought: bool,
    },
    /// Batches that the sequencer refused for want of room, to be made dead letters; then their
    /// producer gets its answers.
    Overflowed {
        batches: Vec<(PartitionId, Bytes)>,
        answers: Appends,
        reply: oneshot::Sender<Appends>,
    },
    Ask(Question),
    /// Where a record stands in groups. Only the shard's leader answers.
    Look {
        look: Look,
        reply: oneshot::Sender<Vec<Option<Standing>>>,
    },
    /// Everything under way comes to its end, and then the driver does.
    Stop,
}

impl Message {
    /// Whose it is; `None` where it is no session's.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self {
            Self::Open { session, .. }
            | Self::Close { session }
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
            | Self::Present { session, .. }
            | Self::Room { session, .. } => Some(*session),
            Self::Presented { .. }
            | Self::Moved { .. }
            | Self::Overflowed { .. }
            | Self::Ask(_)
            | Self::Look { .. }
            | Self::Stop => None,
        }
    }

    /// Answers without having done anything. Whoever asked a question finds that nobody answers.
    pub(super) fn refuse(self, why: &Unavailable) {
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
            Self::Overflowed { answers, reply, .. } => {
                let _ = reply.send(answers);
            }
            Self::Open { .. }
            | Self::Close { .. }
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
            | Self::Ask(_)
            | Self::Look { .. }
            | Self::Stop => {}
        }
    }
}

/// A consumer as one shard knows it.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) consumer: ConsumerId,
    /// With the credit that it has in this shard.
    pub(crate) options: ConsumeOptions,
    /// What of that is a share of what it has in all shards.
    pub(crate) divided: Vec<CreditKind>,
}

/// Where the batches of a transfer are, or on their way to.
pub(crate) type Moved = Entered<Option<Appended>>;
pub(crate) type Transferred = Result<Moved, TransferError>;

/// What an operator wants to know or to change, for which the driver's own knowledge is needed. `None`, where
/// an answer may be so: there is no such group.
pub(crate) enum Question {
    Counters {
        group: LeaseGroupId,
        reply: oneshot::Sender<Option<Counters>>,
    },
    /// What the group's engine knows of a partition's unsettled records.
    Unsettled {
        group: LeaseGroupId,
        partition: u32,
        from: Offset,
        records_max: usize,
        reply: oneshot::Sender<Option<Vec<dispatch::Peeked>>>,
    },
    Leases {
        group: LeaseGroupId,
        after: Option<(u32, Offset)>,
        leases_max: usize,
        reply: oneshot::Sender<Vec<LeaseView>>,
    },
    /// Settle all that is not leased; how many records.
    Purge {
        group: LeaseGroupId,
        durable: oneshot::Sender<Settled>,
        reply: oneshot::Sender<Result<u64, RemoveError>>,
    },
    /// Settle one record that is not leased.
    Remove {
        group: LeaseGroupId,
        partition: u32,
        offset: Offset,
        durable: oneshot::Sender<Settled>,
        reply: oneshot::Sender<Result<(), RemoveError>>,
    },
    /// Which of these records are neither settled nor anybody's.
    Free {
        group: LeaseGroupId,
        partition: u32,
        offsets: Vec<Offset>,
        reply: oneshot::Sender<Option<Vec<bool>>>,
    },
    /// Settle records that nobody has, and append, in one log entry.
    MoveAway {
        group: LeaseGroupId,
        partition: u32,
        offsets: Vec<Offset>,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Transferred>,
    },
}

pub(crate) type Inbox = mpsc::UnboundedReceiver<Message>;

/// How everyone reaches the driver.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    inbox: mpsc::UnboundedSender<Message>,
    pub(super) routers: Arc<Routers>,
    pub(crate) standings: Arc<Standings>,
    pub(crate) published: Arc<Published>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) history: Arc<Mutex<Ring>>,
    pub(crate) feed: Option<HistoryFeed>,
    pub(super) traces: TraceFeed,
    pub(super) timeline: Arc<Timeline>,
    pub(super) unread: Arc<NodeUnread>,
}

impl Handle {
    /// `history_bytes`: to remember what happened to records; nothing is remembered with 0.
    pub(crate) fn new(
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

    pub(crate) fn tell(&self, message: Message) {
        // Without a driver the node is going down: whoever waits for a reply hears that.
        let _ = self.inbox.send(message);
    }

    /// What an entry of the log means for groups. Called by apply, for every entry.
    pub(crate) fn applied(&self, commands: &[Command], applied: &Applied) {
        for &(group, partition) in &applied.moved {
            let sought = commands.iter().any(|command| {
                matches!(command, Command::SeekLeaseGroup { group: moved, .. } if *moved == group)
            });
            self.tell(Message::Moved { group, partition, sought });
        }
        for outcome in &applied.commands {
            if let Ok(Outcome::LeaseGroup(group)) = outcome {
                let (group, partition) = (*group, ALL_PARTITIONS);
                self.tell(Message::Moved { group, partition, sought: false });
            }
        }
    }

    /// Asks the driver; `None` when it is no more.
    pub(super) async fn ask<R>(
        &self,
        question: impl FnOnce(oneshot::Sender<R>) -> Question,
    ) -> Option<R> {
        let (reply, answer) = oneshot::channel();
        self.tell(Message::Ask(question(reply)));
        answer.await.ok()
    }
}
