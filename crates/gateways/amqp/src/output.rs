//! What a session has to say and the socket has not yet taken.
//!
//! Frames are written one behind another into one buffer; a body is not copied into it but noted
//! with its place, and a vectored write joins them again.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;

use crate::codec::frame::{self, ContentHeader, FrameKind};
use crate::codec::methods::Method;
use crate::codec::properties::Properties;

/// The class of `basic`, to which all contents belong.
const BASIC: u16 = 60;
/// Slices given to one system call; Linux takes 1,024.
const SLICES_MAX: usize = 256;
/// Bytes that are given to a socket before others have their turn: the kernel copies them, and a
/// socket may take megabytes at once.
pub(crate) const WRITTEN_AT_ONCE: usize = 256 << 10;
/// A buffer that grew beyond this is given back once it is empty.
const KEPT_BYTES_MAX: usize = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Frames as they are to be sent, less the bodies.
    frames: BytesMut,
    /// In turn: so many bytes of `frames`, or a body.
    segments: VecDeque<Segment>,
    bytes: usize,
}

#[derive(Debug)]
enum Segment {
    Frames(usize),
    Body(Bytes),
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn method<'a>(&mut self, channel: u16, method: impl Into<Method<'a>>) {
        self.frames(|out| frame::put_method(channel, method, out));
    }

    pub(crate) fn heartbeat(&mut self) {
        self.frames(frame::put_heartbeat);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.frames(|out| out.extend_from_slice(bytes));
    }

    /// A content: its header frame, and its body in frames of at most `payload_bytes_max`.
    pub(crate) fn content(
        &mut self,
        channel: u16,
        properties: &Properties<'_>,
        body: &[Bytes],
        payload_bytes_max: usize,
    ) {
        let total: usize = body.iter().map(Bytes::len).sum();
        self.frames(|out| {
            frame::put(FrameKind::Header, channel, out, |out| {
                ContentHeader::put_fixed(BASIC, total as u64, out);
                properties.encode(out);
            });
        });
        self.body(channel, body, payload_bytes_max);
    }

    /// As [`Output::content`], for properties that are encoded already.
    pub(crate) fn content_encoded(
        &mut self,
        channel: u16,
        properties: &[u8],
        body: &[Bytes],
        payload_bytes_max: usize,
    ) {
        let total: usize = body.iter().map(Bytes::len).sum();
        self.frames(|out| {
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
                self.frames(|out| frame::put_head(FrameKind::Body, channel, bytes, out));
                self.bytes += payload.len();
                self.segments.push_back(Segment::Body(payload));
                self.frames(|out| out.extend_from_slice(&[frame::END]));
            }
        }
    }

    fn frames(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.frames.len();
        write(&mut self.frames);
        let written = self.frames.len() - before;
        self.bytes += written;
        match self.segments.back_mut() {
            Some(Segment::Frames(bytes)) => *bytes += written,
            _ => self.segments.push_back(Segment::Frames(written)),
        }
    }

    /// Adds what another output holds.
    pub(crate) fn append(&mut self, mut other: Self) {
        for segment in other.segments.drain(..) {
            match segment {
                Segment::Frames(bytes) => {
                    let written = other.frames.split_to(bytes);
                    self.raw(&written);
                }
                Segment::Body(body) => {
                    self.bytes += body.len();
                    self.segments.push_back(Segment::Body(body));
                }
            }
        }
    }

    /// Writes what the socket takes without waiting, [`WRITTEN_AT_ONCE`] at most; returns how much.
    pub(crate) fn write_to(&mut self, socket: &TcpStream) -> std::io::Result<usize> {
        let mut taken = 0;
        while !self.is_empty() && taken < WRITTEN_AT_ONCE {
            match self.write_once(socket, WRITTEN_AT_ONCE - taken) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.advance(written);
                    taken += written;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.is_empty() && self.frames.capacity() > KEPT_BYTES_MAX {
            self.frames = BytesMut::new();
        }
        Ok(taken)
    }

    fn write_once(&self, socket: &TcpStream, bytes_max: usize) -> std::io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut frames = &self.frames[..];
        let (mut count, mut left) = (0, bytes_max);
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            if left == 0 {
                break;
            }
            let whole = match segment {
                Segment::Frames(bytes) => {
                    let (now, later) = frames.split_at(*bytes);
                    frames = later;
                    now
                }
                Segment::Body(body) => body,
            };
            *slice = IoSlice::new(&whole[..whole.len().min(left)]);
            left -= slice.len();
            count += 1;
        }
        socket.try_write_vectored(&slices[..count])
    }

    fn advance(&mut self, written: usize) {
        self.bytes -= written;
        let mut left = written;
        while left > 0 {
            let Some(front) = self.segments.front_mut() else { break };
            let all = match front {
                Segment::Frames(bytes) => {
                    let now = left.min(*bytes);
                    self.frames.advance(now);
                    *bytes -= now;
                    left -= now;
                    *bytes == 0
                }
                Segment::Body(body) => {
                    let now = left.min(body.len());
                    body.advance(now);
                    left -= now;
                    body.is_empty()
                }
            };
            if all {
                self.segments.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::frame::Front;
    use crate::codec::methods::BasicAck;

    /// Everything, taken in pieces of `step` bytes.
    fn drained(mut output: Output, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !output.is_empty() {
            let mut whole = Vec::new();
            let mut frames = &output.frames[..];
            for segment in &output.segments {
                match segment {
                    Segment::Frames(bytes) => {
                        let (now, later) = frames.split_at(*bytes);
                        whole.extend_from_slice(now);
                        frames = later;
                    }
                    Segment::Body(body) => whole.extend_from_slice(body),
                }
            }
            assert_eq!(whole.len(), output.bytes());
            let now = step.min(whole.len());
            all.extend_from_slice(&whole[..now]);
            output.advance(now);
        }
        assert!(output.segments.is_empty() && output.frames.is_empty());
        all
    }

    proptest! {
        #[test]
        fn a_body_is_cut_into_frames_and_comes_out_in_order_however_the_socket_takes_it(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..4),
            payload_bytes_max in 1usize..200,
            step in 1usize..100,
        ) {
            let body: Vec<Bytes> = parts.iter().cloned().map(Bytes::from).collect();
            let mut output = Output::default();
            output.method(1, BasicAck { delivery_tag: 7, ..BasicAck::default() });
            output.content(1, &Properties::default(), &body, payload_bytes_max);
            output.heartbeat();
            let bytes = drained(output, step);

            let (mut at, mut kinds, mut received) = (0, Vec::new(), Vec::new());
            while at < bytes.len() {
                let found = frame::front(&bytes[at..], 4096);
                let Ok(Front::Frame { bytes: length }) = found else { panic!("{found:?}") };
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
