//! Frames of a session that are not sent yet.
//!
//! Frames are copied one behind another into the buffer of unsent bytes. A body is not copied, only the heads and
//! ends of its frames are.

use std::task::{Context, Poll};

use bytes::Bytes;
use gateway::UnsentOutput;
use tokio::io::AsyncWrite;

use crate::codec::frame::{self, ContentHeader, FrameKind};
use crate::codec::methods::Method;
use crate::codec::properties::{Properties, WireProperties};

/// The class of `basic`, to which all contents belong.
const BASIC: u16 = 60;

#[derive(Debug, Default)]
pub(crate) struct Output(UnsentOutput);

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub(crate) fn method<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        self.0.write(|out| frame::put_method(channel, method, out));
    }

    pub(crate) fn heartbeat(&mut self) {
        self.0.write(frame::put_heartbeat);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.write(|out| out.extend_from_slice(bytes));
    }

    /// Writes a content: its header frame, and its body in frames of at most `payload_bytes_max`.
    pub(crate) fn content(
        &mut self,
        channel: u16,
        properties: &Properties<'_>,
        body: &[Bytes],
        payload_bytes_max: usize,
    ) {
        let total: usize = body.iter().map(Bytes::len).sum();
        self.0.write(|out| {
            frame::put(FrameKind::Header, channel, out, |out| {
                ContentHeader::put_fixed(BASIC, total as u64, out);
                properties.encode(out);
            });
        });
        self.body(channel, body, payload_bytes_max);
    }

    /// Like [`Output::content`], with properties that are encoded already.
    pub(crate) fn content_encoded(
        &mut self,
        channel: u16,
        properties: &[u8],
        body: &[Bytes],
        payload_bytes_max: usize,
    ) {
        let total: usize = body.iter().map(Bytes::len).sum();
        self.0.write(|out| {
            frame::put(FrameKind::Header, channel, out, |out| {
                ContentHeader::put_fixed(BASIC, total as u64, out);
                out.extend_from_slice(properties);
            });
        });
        self.body(channel, body, payload_bytes_max);
    }

    fn body(&mut self, channel: u16, body: &[Bytes], payload_bytes_max: usize) {
        for part in body {
            let mut rest = part.clone();
            while !rest.is_empty() {
                let payload = rest.split_to(rest.len().min(payload_bytes_max));
                let bytes = payload.len() as u32;
                self.0.write(|out| frame::put_head(FrameKind::Body, channel, bytes, out));
                self.0.push(payload);
                self.0.write(|out| out.extend_from_slice(&[frame::END]));
            }
        }
    }

    /// Appends the frames of another output.
    pub(crate) fn append(&mut self, other: Self) {
        self.0.append(other.0);
    }

    /// See [`UnsentOutput::poll_write`].
    pub(crate) fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        socket: &mut W,
    ) -> Poll<std::io::Result<usize>> {
        self.0.poll_write(context, socket)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;
    use crate::codec::frame::FrameFront;
    use crate::codec::methods::BasicAck;

    /// All bytes, as the socket receives them.
    fn sent(mut output: Output) -> Vec<u8> {
        let mut all = Vec::new();
        let written = output.poll_write(&mut Context::from_waker(Waker::noop()), &mut all);
        assert!(matches!(written, Poll::Ready(Ok(_))) && output.is_empty(), "{written:?}");
        all
    }

    proptest! {
        #[test]
        fn body_is_split_into_frames_in_order(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..4),
            payload_bytes_max in 1usize..200,
        ) {
            let body: Vec<Bytes> = parts.iter().cloned().map(Bytes::from).collect();
            let mut output = Output::default();
            output.method(1, BasicAck { delivery_tag: 7, ..BasicAck::default() });
            output.content(1, &Properties::default(), &body, payload_bytes_max);
            output.heartbeat();
            let bytes = sent(output);

            let (mut at, mut kinds, mut received) = (0, Vec::new(), Vec::new());
            while at < bytes.len() {
                let found = frame::front(&bytes[at..], 4096);
                let Ok(FrameFront::Frame { bytes: length }) = found else { panic!("{found:?}") };
                let read = frame::read(&bytes[at..at + length]).expect("a frame");
                if read.kind == FrameKind::Body {
                    prop_assert!(read.payload.len() <= payload_bytes_max);
                    received.extend_from_slice(read.payload);
                }
                kinds.push(read.kind);
                at += length;
            }
            prop_assert_eq!(received, parts.concat());
            prop_assert_eq!(kinds[0], FrameKind::Method);
            prop_assert_eq!(kinds[1], FrameKind::Header);
            prop_assert_eq!(kinds.last(), Some(&FrameKind::Heartbeat));
        }
    }
}
