//! The requesting side of a connection: it opened the connection, numbers its requests, and awaits replies.
//!
//! * [`calls`]: unanswered requests, and the streams of appends
//! * [`role`]: how the connection's task handles arriving frames
//! * [`appends`]: a stream of appends, as its callers use it

mod appends;
mod calls;
mod role;
#[cfg(test)]
mod tests;

pub(crate) use appends::begin as begin_appends;
pub use appends::{AppendError, AppendSender, Replies};
use base::ShardId;
pub(crate) use calls::LostReply;
use calls::{Calls, NewStream};
use parking_lot::Mutex;
pub(crate) use role::Requester;
use tokio::sync::oneshot;
use world::Instant;

use crate::end::ConnectionEnd;
use crate::frame::{Kind, Message, QueuedFrame, ReceivedMessage};
use crate::identity::Identity;
use crate::lane::Lane;
use crate::outbox::Outbox;
use crate::window::{Slot, Window};

pub(crate) type CallResult = Result<ReceivedMessage, LostReply>;

/// One connection, as requesters hold it. It outlives the connection, and then reports how the connection ended.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) peer: Identity,
    pub(crate) lane: Lane,
    pub(crate) outbox: Outbox,
    pub(crate) window: Window,
    calls: Mutex<Calls>,
}

impl Session {
    pub(crate) fn new(peer: Identity, lane: Lane) -> Self {
        Self {
            peer,
            lane,
            // Requests wait for their windows, not for the outbox.
            outbox: Outbox::new(0),
            window: Window::new(lane.requests()),
            calls: Mutex::default(),
        }
    }

    /// Sends a request that has its slot in the window.
    pub(crate) fn request(
        &self,
        shard: u16,
        message: Message,
        deadline: Instant,
        slot: Slot,
    ) -> Result<oneshot::Receiver<CallResult>, ConnectionEnd> {
        // Numbers ascend in the order of the queue because both are given under this lock.
        let mut calls = self.calls.lock();
        let (number, answer) = calls.request(deadline, slot)?;
        let frame = QueuedFrame::new(Kind::Request, number, message);
        self.outbox.push(QueuedFrame { shard, deadline: Some(deadline), ..frame });
        Ok(answer)
    }

    /// Begins a stream of appends of the shard, which ends an earlier one.
    pub(crate) fn begin_appends(&self, shard: u16) -> Result<NewStream, ConnectionEnd> {
        self.calls.lock().begin_stream(shard)
    }

    /// Sends an append that has its slot in the stream's window.
    pub(crate) fn append(
        &self,
        shard: u16,
        stream: u32,
        message: Message,
    ) -> Result<oneshot::Receiver<CallResult>, LostReply> {
        let mut calls = self.calls.lock();
        let (number, flags, answer) = calls.append(shard, stream)?;
        let frame = QueuedFrame::new(Kind::Append, number, message);
        self.outbox.push(QueuedFrame { shard, flags, ..frame });
        Ok(answer)
    }

    /// Ends the stream after the appends sent so far, which are still answered.
    pub(crate) fn finish_appends(&self, shard: u16, stream: u32) {
        if self.calls.lock().is_begun(shard, stream) {
            let end = QueuedFrame::new(Kind::AppendsEnd, stream, Message::default());
            self.outbox.push(QueuedFrame { shard, ..end });
        }
    }

    /// The reason why a stream is over.
    pub(crate) fn why_appends_ended(&self, shard: u16, stream: u32) -> LostReply {
        self.calls.lock().why_ended(shard, stream)
    }

    /// Ends the session with the connection, and wakes all waiting callers.
    pub(crate) fn end(&self, end: &ConnectionEnd) {
        self.outbox.end();
        self.window.close();
        let answers = self.calls.lock().end(end);
        for answer in answers {
            let _ = answer.send(Err(LostReply::Ended(end.clone())));
        }
    }

    /// How the connection ended, if it has.
    pub(crate) fn ended(&self) -> Option<ConnectionEnd> {
        self.calls.lock().ended()
    }
}

/// A shard's number on the wire. Its bound is [`base::limits::SHARDS_MAX`].
pub(crate) fn shard_on_the_wire(shard: ShardId) -> Option<u16> {
    u16::try_from(shard.0).ok()
}
