//! The task that owns a shard's leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::LeaseGroupId;
use tokio::sync::{mpsc, oneshot};

use crate::append::{AppendBatch, Appended};

use super::error::{ConsumeError, SettleError, TakeError, TransferError};
use super::event::{Delivery, Sent, Unread};
use super::session::{ConsumeOptions, Credit, Settle, TakeOptions};
use super::words::{ConsumerId, SessionId};

/// What sessions and others tell the driver.
#[derive(Debug)]
pub(crate) enum Message {
    Open {
        session: SessionId,
        events: mpsc::UnboundedSender<Sent>,
        unread: Arc<Unread>,
    },
    Close {
        session: SessionId,
    },
    Consume {
        session: SessionId,
        group: LeaseGroupId,
        options: ConsumeOptions,
        reply: oneshot::Sender<Result<ConsumerId, ConsumeError>>,
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
        reply: oneshot::Sender<Vec<Result<(), SettleError>>>,
    },
    Transfer {
        session: SessionId,
        settles: Vec<Settle>,
        batches: Vec<AppendBatch>,
        reply: oneshot::Sender<Result<Vec<Appended>, TransferError>>,
    },
    /// A session that had too much unread has room again.
    Room {
        session: SessionId,
    },
}

/// How everyone reaches the driver.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    inbox: mpsc::UnboundedSender<Message>,
    sessions: Arc<AtomicU64>,
}

impl Handle {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (inbox, messages) = mpsc::unbounded_channel();
        // Session 0 is the broker's own: what it takes out of a group, no consumer gets.
        (Self { inbox, sessions: Arc::new(AtomicU64::new(1)) }, messages)
    }

    pub(crate) fn tell(&self, message: Message) {
        // Without a driver the node is going down: whoever waits for a reply hears that.
        let _ = self.inbox.send(message);
    }

    pub(super) fn next_session(&self) -> SessionId {
        self.sessions.fetch_add(1, Ordering::Relaxed)
    }
}
