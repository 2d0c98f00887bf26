//! Bytes that were received from a socket and not yet handled.
//!
//! One read may bring hundreds of frames. Each is cut out as a slice, so that a body is not copied before it is put
//! into a batch. An idle session holds no buffer.

use std::io::ErrorKind;
use std::task::{Context, Poll};

use crate::limits::AMQP_READ_BYTES_MIN;
use bytes::{Bytes, BytesMut};
use tokio::io::AsyncRead;

use crate::codec::frame::{self, FrameError, FrameFront, FrameKind, HEAD_BYTES};
use crate::codec::methods::MethodId;

#[derive(Debug, Default)]
pub(crate) struct Input {
    buffer: BytesMut,
    /// Bytes that must be buffered before the front can be read; 0 while that is unknown.
    wants: usize,
    /// The last read filled all the room that it had.
    filled: bool,
}

/// Outcome of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Read {
    Bytes(usize),
    Nothing,
    Closed,
}

/// The frame at the front, not yet taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PeekedFrame {
    pub(crate) bytes: usize,
    /// Set for a method frame.
    pub(crate) method: Option<MethodId>,
}

impl Input {
    /// Reads the available bytes: at most `bytes_max`, or as many as the front needs.
    pub(crate) fn read_from<R: AsyncRead + Unpin>(
        &mut self,
        socket: &mut R,
        context: &mut Context<'_>,
        bytes_max: usize,
    ) -> std::io::Result<Read> {
        let missing = self.wants.saturating_sub(self.buffer.len());
        let usual = if self.filled { bytes_max } else { AMQP_READ_BYTES_MIN.min(bytes_max) };
        let room = usual.max(missing);
        if self.buffer.capacity() - self.buffer.len() < room {
            self.buffer.reserve(room);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        match gateway::input::poll_read(socket, context, &mut self.buffer) {
            Poll::Ready(Ok(0)) => Ok(Read::Closed),
            Poll::Ready(Ok(bytes)) => {
                self.filled = bytes == room;
                Ok(Read::Bytes(bytes))
            }
            Poll::Ready(Err(error)) if error.kind() != ErrorKind::Interrupted => Err(error),
            Poll::Ready(Err(_)) | Poll::Pending => Ok(Read::Nothing),
        }
    }

    /// The first bytes of a connection, once they are there.
    pub(crate) fn take_protocol_header(&mut self) -> Option<[u8; 8]> {
        let header = *self.buffer.first_chunk()?;
        let _ = self.buffer.split_to(header.len());
        Some(header)
    }

    /// Returns the frame at the front, if it is complete.
    pub(crate) fn peek(
        &mut self,
        payload_bytes_max: usize,
    ) -> Result<Option<PeekedFrame>, FrameError> {
        match frame::front(&self.buffer, payload_bytes_max)? {
            FrameFront::Wants { bytes } => {
                self.wants = if self.buffer.is_empty() { 0 } else { bytes };
                if self.buffer.is_empty() && !self.filled {
                    // Between bursts a session keeps no memory.
                    self.buffer = BytesMut::new();
                }
                Ok(None)
            }
            FrameFront::Frame { bytes } => {
                self.wants = 0;
                let is_method =
                    frame::read(&self.buffer[..bytes]).is_some_and(|f| f.kind == FrameKind::Method);
                let method = match self.buffer[HEAD_BYTES..bytes] {
                    [c0, c1, m0, m1, ..] if is_method => Some(MethodId {
                        class: u16::from_be_bytes([c0, c1]),
                        method: u16::from_be_bytes([m0, m1]),
                    }),
                    _ => None,
                };
                Ok(Some(PeekedFrame { bytes, method }))
            }
        }
    }

    /// Takes the frame that was peeked.
    pub(crate) fn take(&mut self, peeked: PeekedFrame) -> Bytes {
        self.buffer.split_to(peeked.bytes).freeze()
    }

    /// Drops the buffer: nothing more of the client is handled.
    pub(crate) fn discard(&mut self) {
        *self = Self::default();
    }
}
