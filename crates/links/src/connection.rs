//! A connection on either side: reads, writes, pings, and its end.
//!
//! One task does all of it in turns. It touches no disk and waits for no handler, so that a node with a hung disk
//! still shows that it lives. Each side sends pings on its own: a side that only replied to pings would seem dead
//! while the ping waits behind bodies on a slow wire.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::limits::{LINK_CLOSES_WITHIN, LINK_PING_EVERY, LINK_PROGRESS_WITHIN, LINK_SILENT_AFTER};
use base::limits::WRITTEN_AT_ONCE_BYTES_MAX;
use gateway::UnsentOutput;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Interval, MissedTickBehavior, interval};
use world::Instant;

use crate::end::{ConnectionEnd, Violation};
use crate::frame::{Frame, Header, Incoming, Kind, QueuedFrame, write_frame};
use crate::outbox::{NextFrame, Outbox};

/// The side-specific part of a connection.
pub(crate) trait Role {
    /// Whether a frame with this header is allowed, before memory is allocated for it.
    fn allow(&mut self, header: &Header) -> Result<(), Violation>;

    fn take(&mut self, frame: Frame) -> Result<(), ConnectionEnd>;

    /// Handles a frame whose deadline passed before it was written.
    fn expire(&mut self, frame: QueuedFrame);

    /// Runs on each tick of the timer.
    fn tick(&mut self, now: Instant) -> Result<(), ConnectionEnd>;

    /// Ready if the connection ends for a reason of its role; the task is woken for that.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<ConnectionEnd>;
}

/// Resolution of timeouts: a silent peer is noticed at most this much later.
const TICK: std::time::Duration = LINK_PING_EVERY.checked_div(2).expect("not zero");

/// Reads and writes in a row before other tasks are scheduled.
const TURNS_MAX: usize = 16;

struct Connection<'a, W, R> {
    wire: &'a mut W,
    incoming: Incoming,
    outbox: &'a Outbox,
    role: &'a mut R,
    unsent: UnsentOutput,
    /// Bytes were written that the wire may buffer.
    is_unflushed: bool,
    ticks: Interval,
    heard: Instant,
    /// Start of the last write, for pings.
    said: Instant,
    /// When the socket last accepted bytes, or got bytes after it had accepted all.
    taken: Instant,
    finishing: Option<Instant>,
}

/// Serves a connection until it ends. After that the outbox accepts nothing.
pub(crate) async fn drive<W, R>(
    wire: &mut W,
    incoming: Incoming,
    outbox: &Outbox,
    role: &mut R,
) -> ConnectionEnd
where
    W: AsyncRead + AsyncWrite + Unpin,
    R: Role,
{
    let now = Instant::now();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut connection = Connection {
        wire,
        incoming,
        outbox,
        role,
        unsent: UnsentOutput::default(),
        is_unflushed: false,
        ticks,
        heard: now,
        said: now,
        taken: now,
        finishing: None,
    };
    let end = poll_fn(|context| connection.poll(context)).await;
    outbox.end();
    end
}

impl<W, R> Connection<'_, W, R>
where
    W: AsyncRead + AsyncWrite + Unpin,
    R: Role,
{
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<ConnectionEnd> {
        self.outbox.is_looked_at();
        match self.turns(context) {
            Ok(poll) => poll.map(|()| ConnectionEnd::Here),
            Err(end) => Poll::Ready(end),
        }
    }

    /// Ready: everything is sent.
    fn turns(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, ConnectionEnd> {
        for _ in 0..TURNS_MAX {
            // Arrived bytes count before timeouts: the process itself may have been paused.
            let has_read = self.read(context)?;
            if let Poll::Ready(end) = self.role.poll_end(context) {
                return Err(end);
            }
            while self.ticks.poll_tick(context).is_ready() {
                self.tick()?;
            }
            let (has_written, is_finished) = self.write(context)?;
            if is_finished {
                return Ok(Poll::Ready(()));
            }
            if !has_read && !has_written {
                return Ok(Poll::Pending);
            }
        }
        context.waker().wake_by_ref();
        Ok(Poll::Pending)
    }

    fn read(&mut self, context: &mut Context<'_>) -> Result<bool, ConnectionEnd> {
        // A frame may have arrived with the handshake.
        self.take_frames()?;
        let read = match self.incoming.poll_read(context, self.wire) {
            Poll::Ready(read) => read.map_err(|error| ConnectionEnd::of(&error))?,
            Poll::Pending => return Ok(false),
        };
        if read == 0 {
            return Err(ConnectionEnd::Closed);
        }
        self.heard = Instant::now();
        self.take_frames()?;
        Ok(true)
    }

    fn take_frames(&mut self) -> Result<(), ConnectionEnd> {
        while let Some(frame) = self.incoming.next(|header| self.role.allow(header))? {
            match frame.header.kind {
                Kind::Ping => {}
                Kind::Close => return Err(ConnectionEnd::Left),
                _ => self.role.take(frame)?,
            }
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), ConnectionEnd> {
        let now = Instant::now();
        if now - self.heard >= LINK_SILENT_AFTER {
            return Err(ConnectionEnd::Silent);
        }
        if !self.unsent.is_empty() && now - self.taken >= LINK_PROGRESS_WITHIN {
            return Err(ConnectionEnd::Stalled);
        }
        if self.outbox.is_finishing() {
            let since = *self.finishing.get_or_insert(now);
            if now - since >= LINK_CLOSES_WITHIN {
                return Err(ConnectionEnd::Here);
            }
        }
        self.role.tick(now)?;
        // Pending output shows by itself that this side lives.
        if now - self.said >= LINK_PING_EVERY && self.unsent.is_empty() {
            self.send(QueuedFrame::bare(Kind::Ping), now);
        }
        Ok(())
    }

    fn send(&mut self, frame: QueuedFrame, now: Instant) {
        if self.unsent.is_empty() {
            self.taken = now;
        }
        self.said = now;
        write_frame(frame, now, &mut self.unsent);
    }

    /// Whether something was written, and whether everything is sent.
    fn write(&mut self, context: &mut Context<'_>) -> Result<(bool, bool), ConnectionEnd> {
        let is_finished = self.fill(context);
        if self.unsent.is_empty() {
            let is_flushed = self.flush(context)?;
            return Ok((false, is_finished && is_flushed));
        }
        match self.unsent.poll_write(context, self.wire) {
            Poll::Ready(written) => written.map_err(|error| ConnectionEnd::of(&error))?,
            Poll::Pending => return Ok((false, false)),
        };
        self.taken = Instant::now();
        self.is_unflushed = true;
        Ok((true, false))
    }

    fn flush(&mut self, context: &mut Context<'_>) -> Result<bool, ConnectionEnd> {
        if self.is_unflushed {
            match Pin::new(&mut *self.wire).poll_flush(context) {
                Poll::Ready(flushed) => flushed.map_err(|error| ConnectionEnd::of(&error))?,
                Poll::Pending => return Ok(false),
            }
            self.is_unflushed = false;
        }
        Ok(true)
    }

    /// Takes as many frames from the outbox as one write may have.
    fn fill(&mut self, context: &mut Context<'_>) -> bool {
        let mut now = None;
        while self.unsent.bytes() < WRITTEN_AT_ONCE_BYTES_MAX {
            match self.outbox.next(context) {
                NextFrame::Frame(frame) => {
                    let now = *now.get_or_insert_with(Instant::now);
                    if frame.deadline.is_some_and(|deadline| deadline <= now) {
                        self.role.expire(frame);
                    } else {
                        self.send(frame, now);
                    }
                }
                NextFrame::None => return false,
                NextFrame::Finished => return true,
            }
        }
        false
    }
}
