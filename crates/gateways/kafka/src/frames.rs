//! Frames off a socket.
//!
//! Small reads go through a staging buffer, so that one system call may bring many requests; each
//! frame then gets memory of exactly its own size, because a produced batch keeps its frame's
//! memory for as long as it is cached. What is missing of a large frame is read straight into it.
//! The staging buffer goes back while a session is silent: an idle connection holds none.

use std::time::Duration;

use broker::{Broker, Permit};
use bytes::{Buf, BufMut, BytesMut};
use kafka_protocol::messages::ApiKey;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::ReadHalf;
use tokio::time::{Instant, timeout, timeout_at};

/// Holds a small request, or the first part of a large one.
const STAGING_BYTES: usize = 16 << 10;
/// Frames up to this size, other than produce requests, do not count against the node's budget: a
/// heartbeat must not wait for a disk.
const UNCOUNTED_BYTES_MAX: usize = 4 << 10;
const LENGTH_LEN: usize = 4;
/// The length, and the api key that follows it.
const KEY_LEN: usize = LENGTH_LEN + 2;

#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameLimits {
    pub(crate) frame_bytes_max: usize,
    pub(crate) arrives_within: Duration,
    pub(crate) idle_max: Duration,
}

#[derive(Debug)]
pub(crate) struct Frame {
    /// Everything after the length.
    pub(crate) bytes: BytesMut,
    /// Room in the node's budget; held until the request is answered.
    pub(crate) permit: Option<Permit>,
}

#[derive(Debug, Error)]
pub(crate) enum FrameError {
    #[error("the client closed the connection")]
    Closed,
    #[error("the client closed the connection within a request")]
    ClosedWithin,
    #[error("a frame of {length} bytes is not within 8 to {max}")]
    Length { length: i32, max: usize },
    #[error("a request did not arrive within {0:?}")]
    Slow(Duration),
    #[error("nothing was heard for {0:?}")]
    Idle(Duration),
    #[error("reading: {0}")]
    Io(#[from] std::io::Error),
}

#[derive(Debug)]
pub(crate) struct FrameReader<'a> {
    socket: ReadHalf<'a>,
    staging: BytesMut,
    limits: FrameLimits,
}

impl<'a> FrameReader<'a> {
    pub(crate) fn new(socket: ReadHalf<'a>, limits: FrameLimits) -> Self {
        Self { socket, staging: BytesMut::new(), limits }
    }

    /// The next frame. Waits for room in the broker's budget before it takes a large one in.
    pub(crate) async fn next(&mut self, broker: &Broker) -> Result<Frame, FrameError> {
        if self.staging.is_empty() {
            self.wait_for_client().await?;
        }
        let deadline = Instant::now() + self.limits.arrives_within;
        let slow = FrameError::Slow(self.limits.arrives_within);
        while self.staging.len() < KEY_LEN {
            match timeout_at(deadline, self.fill()).await {
                Ok(filled) => filled?,
                Err(_) => return Err(slow),
            }
        }
        let len = self.frame_len()?;
        let api_key = i16::from_be_bytes([self.staging[LENGTH_LEN], self.staging[LENGTH_LEN + 1]]);
        let counted = api_key == ApiKey::Produce as i16 || len > UNCOUNTED_BYTES_MAX;
        let permit = if counted { Some(broker.admit(len).await) } else { None };

        self.staging.advance(LENGTH_LEN);
        let staged = len.min(self.staging.len());
        let mut bytes = BytesMut::with_capacity(len);
        bytes.put_slice(&self.staging[..staged]);
        self.staging.advance(staged);
        if bytes.len() < len {
            // The wait for room was ours, so the client's time begins anew.
            let deadline = Instant::now() + self.limits.arrives_within;
            match timeout_at(deadline, read_rest(&mut self.socket, &mut bytes, len)).await {
                Ok(read) => read?,
                Err(_) => return Err(slow),
            }
        }
        Ok(Frame { bytes, permit })
    }

    fn frame_len(&self) -> Result<usize, FrameError> {
        let length = self.staging.first_chunk().map_or(-1, |bytes| i32::from_be_bytes(*bytes));
        let max = self.limits.frame_bytes_max;
        match usize::try_from(length) {
            // A request header has eight bytes at least.
            Ok(len) if (8..=max).contains(&len) => Ok(len),
            _ => Err(FrameError::Length { length, max }),
        }
    }

    /// Between requests: no memory is held and no deadline runs but the idle one.
    async fn wait_for_client(&mut self) -> Result<(), FrameError> {
        self.staging = BytesMut::new();
        match timeout(self.limits.idle_max, self.socket.readable()).await {
            Ok(readable) => Ok(readable?),
            Err(_) => Err(FrameError::Idle(self.limits.idle_max)),
        }
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

async fn read_rest(
    socket: &mut ReadHalf<'_>,
    bytes: &mut BytesMut,
    len: usize,
) -> Result<(), FrameError> {
    while bytes.len() < len {
        let missing = len - bytes.len();
        if socket.read_buf(&mut (&mut *bytes).limit(missing)).await? == 0 {
            return Err(FrameError::ClosedWithin);
        }
    }
    Ok(())
}
