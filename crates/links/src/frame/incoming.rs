//! Decodes frames from a stream of bytes, however it is split.
//!
//! A frame gets one buffer of its own size, after its header was checked and allowed. Bytes read ahead together
//! with a header are copied there. The rest of the frame is read into it without a copy.

use std::io;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::AsyncRead;

use crate::end::Violation;
use crate::frame::header::{HEADER_BYTES, Header};
use crate::frame::message::{ReceivedMessage, split};

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    /// Time limit of the reply, if the frame expects one; 0: no deadline.
    pub(crate) within_ms: u32,
    pub(crate) message: ReceivedMessage,
}

#[derive(Debug)]
pub(crate) struct Incoming {
    ahead: BytesMut,
    ahead_max: usize,
    /// The incomplete frame.
    arriving: Option<(Header, BytesMut)>,
}

impl Incoming {
    /// `ahead_max`: bytes that are read ahead, at least the size of a header.
    pub(crate) fn new(ahead_max: usize) -> Self {
        let ahead_max = ahead_max.max(HEADER_BYTES);
        Self { ahead: BytesMut::with_capacity(ahead_max), ahead_max, arriving: None }
    }

    /// Changes the read-ahead for the following frames of the connection.
    pub(crate) fn read_ahead(&mut self, ahead_max: usize) {
        self.ahead_max = ahead_max.max(HEADER_BYTES);
    }

    /// Reads the available bytes. 0 is the end.
    pub(crate) fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        socket: &mut R,
    ) -> Poll<io::Result<usize>> {
        if let Some((header, bytes)) = &mut self.arriving {
            let left = header.length as usize - bytes.len();
            if left > 0 {
                return gateway::input::poll_read(socket, context, &mut (&mut *bytes).limit(left));
            }
        }
        let room = self.ahead_max - self.ahead.len().min(self.ahead_max);
        self.ahead.reserve(room);
        gateway::input::poll_read(socket, context, &mut (&mut self.ahead).limit(room))
    }

    /// The next complete frame. `allow` decides by its header whether it is allowed, before memory is allocated
    /// for it.
    pub(crate) fn next(
        &mut self,
        allow: impl FnOnce(&Header) -> Result<(), Violation>,
    ) -> Result<Option<Frame>, Violation> {
        if self.arriving.is_none() {
            let Some(header) = self.ahead.first_chunk::<HEADER_BYTES>() else {
                return Ok(None);
            };
            let header = Header::decode(header)?;
            allow(&header)?;
            self.ahead.advance(HEADER_BYTES);
            let mut bytes = BytesMut::with_capacity(header.length as usize);
            let there = self.ahead.len().min(header.length as usize);
            bytes.put_slice(&self.ahead[..there]);
            self.ahead.advance(there);
            self.arriving = Some((header, bytes));
        }
        let is_whole =
            |(header, bytes): &mut (Header, BytesMut)| bytes.len() == header.length as usize;
        let Some((header, bytes)) = self.arriving.take_if(is_whole) else {
            return Ok(None);
        };
        let (message, within_ms) = split(Bytes::from(bytes))?;
        Ok(Some(Frame { header, within_ms, message }))
    }

    /// Bytes of memory held for arriving frames.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.ahead.capacity() + self.arriving.as_ref().map_or(0, |(_, bytes)| bytes.capacity())
    }
}
