//! A stream of appends, as the service receives it.

use std::sync::Arc;

use base::ShardId;
use tokio::sync::mpsc;

use super::Declined;
use crate::frame::{Kind, Message, QueuedFrame, ReceivedMessage};
use crate::lane::Lane;
use crate::node_id::NodeId;
use crate::outbox::Outbox;
use crate::window::WindowGuard;

/// The appends of one shard by one peer, in the order in which they were sent.
#[derive(Debug)]
pub struct IncomingAppends {
    pub(crate) from: NodeId,
    pub(crate) shard: ShardId,
    /// Bounded by the stream's window, which was counted before an append was put here.
    pub(crate) appends: mpsc::UnboundedReceiver<IncomingAppend>,
}

/// One append. It occupies its place in the stream's window until it is answered or dropped. A dropped append gets
/// no reply; the stream ends when its future does.
#[derive(Debug)]
pub struct IncomingAppend {
    /// Its body holds entries with their own checksums.
    pub message: ReceivedMessage,
    pub(crate) number: u32,
    pub(crate) lane: Lane,
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) counting: WindowGuard,
}

impl IncomingAppends {
    pub fn peer(&self) -> NodeId {
        self.from
    }

    pub fn shard(&self) -> ShardId {
        self.shard
    }

    /// The next append; `None` once the peer has ended the stream. Nothing is lost if this is dropped.
    pub async fn next(&mut self) -> Option<IncomingAppend> {
        self.appends.recv().await
    }
}

impl IncomingAppend {
    /// Replies once the connection has room for the reply. Replies may be given in any order; the peer processes
    /// them in the order of its appends.
    pub async fn answer(self, message: Message) {
        let reply = match message.bytes() > self.lane.message_bytes_max() {
            true => Declined::AnswerTooLong.frame(self.number),
            false => QueuedFrame::new(Kind::Reply, self.number, message),
        };
        self.outbox.push_with_room(reply).await;
        drop(self.counting);
    }

    /// Takes the message out, leaving the part that can reply.
    pub fn take_message(&mut self) -> ReceivedMessage {
        std::mem::take(&mut self.message)
    }
}
