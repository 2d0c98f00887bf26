//! The queue of frames to be written to a connection.
//!
//! All senders add their frames here. The connection's task takes all of them and passes them to the socket with
//! one vectored write. The queue is bounded by its senders: requests and appends by the windows of their sender,
//! replies by the room that they wait for, gossip by its single place.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::frame::{Kind, Message, QueuedFrame};

#[derive(Debug)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    room: Arc<Semaphore>,
    room_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<QueuedFrame>,
    /// The newest payload: an older unwritten one is of no use.
    gossip: Option<Bytes>,
    waker: Option<Waker>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Open,
    /// Queued frames are written, and none is added.
    Finishing,
    Ended,
}

#[derive(Debug)]
pub(crate) enum NextFrame {
    Frame(QueuedFrame),
    /// The task is woken when there is a frame.
    None,
    /// There will be no more frames.
    Finished,
}

impl Outbox {
    /// `room`: limit of queued reply bytes.
    pub(crate) fn new(room: usize) -> Self {
        Self { queue: Mutex::default(), room: Arc::new(Semaphore::new(room)), room_max: room }
    }

    /// Adds a frame. Returns `false` if the connection has ended, or is about to.
    pub(crate) fn push(&self, frame: QueuedFrame) -> bool {
        self.change(|queue| queue.frames.push_back(frame))
    }

    /// Adds a frame once there is room for it.
    pub(crate) async fn push_with_room(&self, mut frame: QueuedFrame) -> bool {
        let bytes = frame.message.bytes().min(self.room_max) as u32;
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(bytes).await else {
            return false;
        };
        frame.room = Some(room);
        self.push(frame)
    }

    pub(crate) fn set_gossip(&self, gossip: Bytes) {
        self.change(|queue| queue.gossip = Some(gossip));
    }

    /// Announces to the peer, behind the queued frames, that this side closes.
    pub(crate) fn finish(&self) {
        self.change(|queue| {
            queue.frames.push_back(QueuedFrame::bare(Kind::Close));
            queue.stage = Stage::Finishing;
        });
    }

    /// The connection has ended: drops all frames, and accepts no more.
    pub(crate) fn end(&self) {
        let mut queue = self.queue.lock();
        queue.stage = Stage::Ended;
        let frames = std::mem::take(&mut queue.frames);
        drop(queue);
        drop(frames);
        self.room.close();
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) -> bool {
        let waker = {
            let mut queue = self.queue.lock();
            if queue.stage != Stage::Open {
                return false;
            }
            change(&mut queue);
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// The task examines the queue before it waits again: it need not be woken before.
    pub(crate) fn is_looked_at(&self) {
        self.queue.lock().waker = None;
    }

    pub(crate) fn is_finishing(&self) -> bool {
        self.queue.lock().stage != Stage::Open
    }

    /// Bytes of queued messages.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.queue.lock().frames.iter().map(|frame| frame.message.bytes()).sum()
    }

    pub(crate) fn next(&self, context: &mut Context<'_>) -> NextFrame {
        let mut queue = self.queue.lock();
        if let Some(gossip) = queue.gossip.take() {
            return NextFrame::Frame(QueuedFrame::new(Kind::Gossip, 0, Message::from_head(gossip)));
        }
        if let Some(frame) = queue.frames.pop_front() {
            return NextFrame::Frame(frame);
        }
        if queue.stage != Stage::Open {
            return NextFrame::Finished;
        }
        queue.waker = Some(context.waker().clone());
        NextFrame::None
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn frame(bytes: usize) -> QueuedFrame {
        QueuedFrame::new(Kind::Reply, 1, Message::from_head(vec![0; bytes]))
    }

    fn next(outbox: &Outbox) -> NextFrame {
        outbox.next(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn replies_wait_for_room_that_dropped_frames_release() {
        let outbox = Outbox::new(100);
        // A reply larger than the whole room is sent alone.
        assert_eq!(outbox.push_with_room(frame(1_000)).now_or_never(), Some(true));
        assert_eq!(outbox.push_with_room(frame(1)).now_or_never(), None);
        let NextFrame::Frame(large) = next(&outbox) else { panic!() };
        drop(large);
        assert_eq!(outbox.push_with_room(frame(1)).now_or_never(), Some(true));
    }

    #[test]
    fn outbox_keeps_only_the_newest_gossip() {
        let outbox = Outbox::new(1);
        outbox.set_gossip(Bytes::from_static(b"old"));
        outbox.set_gossip(Bytes::from_static(b"new"));
        let NextFrame::Frame(gossip) = next(&outbox) else { panic!() };
        assert_eq!(&gossip.message.head[..], b"new");
        assert!(matches!(next(&outbox), NextFrame::None));
    }

    #[test]
    fn close_is_the_last_frame_of_the_outbox() {
        let outbox = Outbox::new(1);
        assert!(outbox.push(frame(1)));
        outbox.finish();
        assert!(!outbox.push(frame(1)));
        assert!(matches!(next(&outbox), NextFrame::Frame(QueuedFrame { kind: Kind::Reply, .. })));
        assert!(matches!(next(&outbox), NextFrame::Frame(QueuedFrame { kind: Kind::Close, .. })));
        assert!(matches!(next(&outbox), NextFrame::Finished));
        outbox.end();
        assert_eq!(outbox.push_with_room(frame(1)).now_or_never(), Some(false));
    }
}
