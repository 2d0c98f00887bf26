//! Reads frames from a socket.
//!
//! Small reads go through a staging buffer, so that one system call may bring many requests. Each frame then
//! gets memory of exactly its own size, because a produced batch keeps its frame's memory for as long as it
//! is cached. The rest of a large frame is read straight into it. An idle session releases its staging
//! buffer.
//!
//! A frame longer than the staging buffer is charged to a budget of the node as it arrives. Once complete, it
//! moves to the producers' budget or to that of other requests. So frames that were announced and are not
//! sent, or not to their end, take no room from complete ones.

use std::future::poll_fn;
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::limits::{REQUEST_BACKLOG_PER_SESSION_BYTES_MAX, REQUEST_UNCOUNTED_BYTES_MAX};
use access::quotas::Meter;
use broker::{Budget, Permit};
use bytes::{Buf, BufMut, BytesMut};
use gateway::input;
use gateway::socket::ReadHalf;
use kafka_protocol::messages::ApiKey;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

/// Holds a small request, or the first part of a large one.
const STAGING_BYTES: usize = 16 << 10;
/// Requests other than produce requests are charged a multiple of their wire size, because they are several
/// times larger when decoded.
pub(crate) const DECODED_FACTOR: usize = 4;
/// A client that sends nothing of a frame for so long is disconnected if other clients wait for its room.
const STALLED_AFTER: Duration = Duration::from_secs(2);
const LENGTH_LEN: usize = 4;
/// The length, and the api key that follows it.
const KEY_LEN: usize = LENGTH_LEN + 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLimits {
    pub(crate) arrives_within: Duration,
    pub(crate) idle_max: Duration,
}

#[derive(Debug)]
pub(crate) struct Frame {
    /// Everything after the length.
    pub(crate) bytes: BytesMut,
    /// Room in one of the node's budgets; held until the request is answered, or until it waits.
    pub(crate) permit: Option<Permit>,
    /// Bytes in the session's [`Backlog`].
    pub(crate) queued: usize,
}

/// The budgets that frames are charged to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameBudgets<'a> {
    pub(crate) produce: &'a Budget,
    pub(crate) requests: &'a Budget,
    /// Budget of incomplete frames.
    pub(crate) arriving: &'a Budget,
}

/// Bytes of a session's pending requests, other than produce requests.
///
/// Such requests run one after another, and the first may wait for minutes. Later ones stay in the socket
/// unless they are few and small, because other clients lack the memory that they hold.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    bytes: AtomicUsize,
    answered: Notify,
}

impl Backlog {
    /// Waits until a request of so many bytes may be read.
    async fn room_for(&self, len: usize) {
        loop {
            let queued = self.bytes.load(Ordering::Acquire);
            let is_small = len <= REQUEST_UNCOUNTED_BYTES_MAX;
            if queued == 0 || is_small && queued + len <= REQUEST_BACKLOG_PER_SESSION_BYTES_MAX {
                return;
            }
            self.answered.notified().await;
        }
    }

    fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(crate) fn remove(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
            self.answered.notify_one();
        }
    }
}

#[derive(Debug, Error)]
pub(crate) enum FrameError {
    #[error("the client closed the connection")]
    Closed,
    #[error("the client closed the connection within a request")]
    ClosedWithin,
    #[error("a frame of {length} bytes is not within {min} to {max}")]
    Length { length: i32, min: usize, max: usize },
    #[error("a request did not arrive within {0:?}")]
    Slow(Duration),
    #[error("nothing was heard for {0:?}")]
    Idle(Duration),
    #[error("reading: {0}")]
    Io(#[from] std::io::Error),
}

/// Byte source of frames.
pub(crate) trait Source: AsyncRead + Unpin {
    /// Ready once a read may return data, or the end of the stream.
    fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Source for ReadHalf<'_> {
    fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ReadHalf::poll_read_ready(self, context)
    }
}

#[derive(Debug)]
pub(crate) struct FrameReader<S> {
    socket: S,
    staging: BytesMut,
    limits: FrameLimits,
}

impl<S: Source> FrameReader<S> {
    pub(crate) fn new(socket: S, limits: FrameLimits) -> Self {
        Self { socket, staging: BytesMut::new(), limits }
    }

    /// Reads the next frame. Waits for its turn and for room before it reads the body.
    pub(crate) async fn next(
        &mut self,
        budgets: FrameBudgets<'_>,
        backlog: &Backlog,
        bytes_max: usize,
        meter: &Meter,
    ) -> Result<Frame, FrameError> {
        if self.staging.is_empty() {
            self.wait_for_client().await?;
        }
        // A client over its quota is not read until its throttle time has passed (KIP-219).
        meter.waited().await;
        let deadline = Instant::now() + self.limits.arrives_within;
        while self.staging.len() < KEY_LEN {
            match timeout_at(deadline, self.fill()).await {
                Ok(filled) => filled?,
                Err(_) => return Err(FrameError::Slow(self.limits.arrives_within)),
            }
        }
        // A request header has eight bytes at least.
        let len = self.frame_len(8..=bytes_max)?;
        let api_key = i16::from_be_bytes([self.staging[LENGTH_LEN], self.staging[LENGTH_LEN + 1]]);
        let is_produce = api_key == ApiKey::Produce as i16;
        let budget = match is_produce {
            true => Some((budgets.produce, 1)),
            false => {
                backlog.room_for(len).await;
                let is_counted = len > REQUEST_UNCOUNTED_BYTES_MAX;
                is_counted.then_some((budgets.requests, DECODED_FACTOR))
            }
        };
        let staged = len.min(self.staging.len() - LENGTH_LEN);
        let mut arriving = Permit::default();
        let charged = budget.filter(|_| staged < len).map(|_| budgets.arriving);
        if let Some(charged) = charged {
            charged.grow(&mut arriving, staged).await;
        }
        self.staging.advance(LENGTH_LEN);
        let mut bytes = BytesMut::with_capacity(len);
        bytes.put_slice(&self.staging[..staged]);
        self.staging.advance(staged);
        if bytes.len() < len {
            let charged = charged.map(|budget| (budget, &mut arriving));
            self.read_rest(&mut bytes, len, charged).await?;
        }
        let permit = match budget {
            Some((budget, factor)) => Some(budget.admit(len * factor).await),
            None => None,
        };
        drop(arriving);
        let queued = if is_produce { 0 } else { len };
        backlog.add(queued);
        Ok(Frame { bytes, permit, queued })
    }

    /// Reads the rest of a frame, in pieces that grow with the bytes received: the memory is at most twice
    /// these bytes.
    async fn read_rest(
        &mut self,
        bytes: &mut BytesMut,
        len: usize,
        mut charged: Option<(&Budget, &mut Permit)>,
    ) -> Result<(), FrameError> {
        let arrives_within = self.limits.arrives_within;
        // The time spent waiting for room does not count against the client.
        let mut left = arrives_within;
        while bytes.len() < len {
            let piece = (len - bytes.len()).min(bytes.len().max(STAGING_BYTES));
            let end = bytes.len() + piece;
            let mut is_charged = false;
            while bytes.len() < end {
                let begun = Instant::now();
                let waited = timeout(left.min(STALLED_AFTER), self.readable()).await;
                left = left.saturating_sub(begun.elapsed());
                match waited {
                    Ok(readable) => readable?,
                    Err(_) => {
                        let is_wanted = charged.as_ref().is_some_and(|(it, _)| it.is_used_up());
                        if left.is_zero() || is_wanted {
                            return Err(FrameError::Slow(arrives_within));
                        }
                        continue;
                    }
                }
                // Charged only once there is something to read.
                if let Some((budget, permit)) = charged.as_mut().filter(|_| !is_charged) {
                    budget.grow(permit, piece).await;
                    is_charged = true;
                }
                let missing = end - bytes.len();
                let mut room = (&mut *bytes).limit(missing);
                let read = |context: &mut Context<'_>| {
                    Poll::Ready(input::poll_read(&mut self.socket, context, &mut room))
                };
                match poll_fn(read).await {
                    Poll::Ready(Ok(0)) => return Err(FrameError::ClosedWithin),
                    Poll::Ready(Ok(_)) | Poll::Pending => {}
                    Poll::Ready(Err(error)) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn frame_len(&self, bytes: RangeInclusive<usize>) -> Result<usize, FrameError> {
        let length = self.staging.first_chunk().map_or(-1, |bytes| i32::from_be_bytes(*bytes));
        match usize::try_from(length) {
            Ok(len) if bytes.contains(&len) => Ok(len),
            _ => Err(FrameError::Length { length, min: *bytes.start(), max: *bytes.end() }),
        }
    }

    /// Reads a small frame that is no request: no budget is charged.
    pub(crate) async fn next_bare(&mut self, bytes_max: usize) -> Result<Frame, FrameError> {
        let deadline = Instant::now() + self.limits.arrives_within;
        let whole = loop {
            // Some of it may have come with the frame before.
            if self.staging.len() >= LENGTH_LEN {
                let whole = LENGTH_LEN + self.frame_len(0..=bytes_max)?;
                if self.staging.len() >= whole {
                    break whole;
                }
            }
            match timeout_at(deadline, self.fill()).await {
                Ok(filled) => filled?,
                Err(_) => return Err(FrameError::Slow(self.limits.arrives_within)),
            }
        };
        let mut whole = self.staging.split_to(whole);
        whole.advance(LENGTH_LEN);
        Ok(Frame { bytes: whole, permit: None, queued: 0 })
    }

    /// Between requests: no memory is held, and only the idle deadline runs.
    async fn wait_for_client(&mut self) -> Result<(), FrameError> {
        self.staging = BytesMut::new();
        match timeout(self.limits.idle_max, self.readable()).await {
            Ok(readable) => Ok(readable?),
            Err(_) => Err(FrameError::Idle(self.limits.idle_max)),
        }
    }

    /// Waits until there is data to read, or the end of the stream.
    async fn readable(&mut self) -> io::Result<()> {
        poll_fn(|context| self.socket.poll_read_ready(context)).await
    }

    async fn fill(&mut self) -> Result<(), FrameError> {
        if self.staging.capacity() - self.staging.len() < LENGTH_LEN {
            self.staging.reserve(STAGING_BYTES);
        }
        let nothing_begun = self.staging.is_empty();
        match self.socket.read_buf(&mut self.staging).await? {
            0 if nothing_begun => Err(FrameError::Closed),
            0 => Err(FrameError::ClosedWithin),
            _ => Ok(()),
        }
    }
}
