//! Unanswered requests and appends of one connection, by number. No I/O.

use std::collections::BTreeMap;

use crate::limits::{LINK_APPENDS_BYTES_MAX, LINK_APPENDS_MAX, LINK_PROGRESS_WITHIN};
use base::HashMap;
use tokio::sync::oneshot;
use world::Instant;

use super::CallResult;
use crate::end::ConnectionEnd;
use crate::frame::FIRST;
use crate::service::Declined;
use crate::window::{Bounds, Slot, Window};

/// Reason why a request or an append has no reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LostReply {
    Ended(ConnectionEnd),
    Declined(Declined),
    /// The deadline passed before it was sent.
    NotSent,
    /// Another stream of the shard replaced this one.
    Superseded,
    /// No append of the stream was answered for [`LINK_PROGRESS_WITHIN`].
    Stalled,
    /// The peer accepts no more of this stream.
    StreamEnded,
}

const APPENDS: Bounds = Bounds { count: LINK_APPENDS_MAX, bytes: LINK_APPENDS_BYTES_MAX };

#[derive(Debug, Default)]
pub(crate) struct Calls {
    ended: Option<ConnectionEnd>,
    next: u32,
    /// Includes calls whose caller is gone, until the peer replies: the peer still counts them.
    unanswered: HashMap<u32, Call>,
    /// The latest stream of each shard.
    streams: BTreeMap<u16, Stream>,
}

#[derive(Debug)]
struct Call {
    answer: oneshot::Sender<CallResult>,
    what: CallKind,
}

#[derive(Debug)]
enum CallKind {
    Request {
        deadline: Instant,
        _slot: Slot,
    },
    /// An append of this shard's stream. Its slot is with the receiver of the replies.
    Append {
        shard: u16,
        stream: u32,
    },
}

#[derive(Debug)]
struct Stream {
    /// The number of its first append.
    id: u32,
    /// Its first append was sent.
    is_begun: bool,
    unanswered: usize,
    /// When it began to wait, or received its last reply.
    progress: Instant,
    window: Window,
    lost: Option<LostReply>,
}

#[derive(Debug)]
pub(crate) struct NewStream {
    pub(crate) id: u32,
    pub(crate) window: Window,
}

impl Calls {
    fn number(&mut self) -> u32 {
        // Numbers wrap around after four billion requests. A request that still waits keeps its own.
        while self.unanswered.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        number
    }

    fn check(&self) -> Result<(), ConnectionEnd> {
        self.ended.clone().map_or(Ok(()), Err)
    }

    pub(super) fn ended(&self) -> Option<ConnectionEnd> {
        self.ended.clone()
    }

    pub(super) fn request(
        &mut self,
        deadline: Instant,
        slot: Slot,
    ) -> Result<(u32, oneshot::Receiver<CallResult>), ConnectionEnd> {
        self.check()?;
        let number = self.number();
        let (answer, answered) = oneshot::channel();
        let what = CallKind::Request { deadline, _slot: slot };
        self.unanswered.insert(number, Call { answer, what });
        Ok((number, answered))
    }

    pub(super) fn begin_stream(&mut self, shard: u16) -> Result<NewStream, ConnectionEnd> {
        self.check()?;
        self.lose_stream(shard, LostReply::Superseded);
        let (id, window) = (self.number(), Window::new(APPENDS));
        let stream = Stream {
            id,
            is_begun: false,
            unanswered: 0,
            progress: Instant::now(),
            window: window.clone(),
            lost: None,
        };
        self.streams.insert(shard, stream);
        Ok(NewStream { id, window })
    }

    /// Returns the number of the append, its flags, and the receiver of its reply.
    pub(super) fn append(
        &mut self,
        shard: u16,
        id: u32,
    ) -> Result<(u32, u8, oneshot::Receiver<CallResult>), LostReply> {
        self.check().map_err(LostReply::Ended)?;
        let later = self.number();
        let Some(stream) = self.streams.get_mut(&shard).filter(|stream| stream.id == id) else {
            return Err(LostReply::Superseded);
        };
        if let Some(lost) = &stream.lost {
            return Err(lost.clone());
        }
        // The stream's own number is the number of its first append.
        let (number, flags) = if stream.is_begun { (later, 0) } else { (id, FIRST) };
        stream.is_begun = true;
        if stream.unanswered == 0 {
            stream.progress = Instant::now();
        }
        stream.unanswered += 1;
        let (answer, answered) = oneshot::channel();
        self.unanswered
            .insert(number, Call { answer, what: CallKind::Append { shard, stream: id } });
        Ok((number, flags, answered))
    }

    pub(super) fn is_begun(&self, shard: u16, id: u32) -> bool {
        let stream = self.streams.get(&shard);
        stream.is_some_and(|stream| stream.id == id && stream.is_begun && stream.lost.is_none())
    }

    pub(super) fn why_ended(&self, shard: u16, id: u32) -> LostReply {
        if let Some(end) = &self.ended {
            return LostReply::Ended(end.clone());
        }
        match self.streams.get(&shard) {
            Some(stream) if stream.id == id => {
                stream.lost.clone().unwrap_or(LostReply::StreamEnded)
            }
            _ => LostReply::Superseded,
        }
    }

    /// Handles a reply. A reply without a waiting call belongs to a stream that is over.
    pub(super) fn answer(&mut self, number: u32, answer: CallResult) {
        let Some(call) = self.unanswered.remove(&number) else { return };
        if let CallKind::Append { shard, stream: id } = call.what
            && let Some(stream) = self.streams.get_mut(&shard)
            && stream.id == id
        {
            stream.unanswered -= 1;
            stream.progress = Instant::now();
        }
        let _ = call.answer.send(answer);
    }

    /// The peer accepts no more of the stream that began with this number.
    pub(super) fn stream_ended(&mut self, shard: u16, id: u32) {
        if self.streams.get(&shard).is_some_and(|stream| stream.id == id) {
            self.lose_stream(shard, LostReply::StreamEnded);
        }
    }

    /// Ends streams that made no progress for too long, and returns them.
    pub(super) fn lose_stalled(&mut self, now: Instant) -> Vec<(u16, u32)> {
        let is_stalled = |stream: &Stream| {
            let waits = stream.lost.is_none() && stream.unanswered > 0;
            waits && now - stream.progress >= LINK_PROGRESS_WITHIN
        };
        let stalled = self.streams.iter().filter(|(_, stream)| is_stalled(stream));
        let stalled: Vec<_> = stalled.map(|(shard, stream)| (*shard, stream.id)).collect();
        for (shard, _) in &stalled {
            self.lose_stream(*shard, LostReply::Stalled);
        }
        stalled
    }

    /// Whether the peer has left a request unanswered long after it should have declined it.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        self.unanswered.values().any(|call| match call.what {
            CallKind::Request { deadline, .. } => {
                now.saturating_duration_since(deadline) >= LINK_PROGRESS_WITHIN
            }
            CallKind::Append { .. } => false,
        })
    }

    fn lose_stream(&mut self, shard: u16, lost: LostReply) {
        let Some(stream) = self.streams.get_mut(&shard) else { return };
        stream.window.close();
        stream.unanswered = 0;
        let id = stream.id;
        let lost = stream.lost.get_or_insert(lost).clone();
        let is_of_it = |call: &Call| match call.what {
            CallKind::Append { shard: of, stream } => (of, stream) == (shard, id),
            CallKind::Request { .. } => false,
        };
        for (_, call) in self.unanswered.extract_if(|_, call| is_of_it(call)) {
            let _ = call.answer.send(Err(lost.clone()));
        }
    }

    /// Returns the channels of the calls that will get no reply.
    pub(super) fn end(&mut self, end: &ConnectionEnd) -> Vec<oneshot::Sender<CallResult>> {
        self.ended.get_or_insert_with(|| end.clone());
        for stream in std::mem::take(&mut self.streams).into_values() {
            stream.window.close();
        }
        self.unanswered.drain().map(|(_, call)| call.answer).collect()
    }
}
