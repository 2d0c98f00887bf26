//! Output of a session that the socket has not taken yet.
//!
//! Small pieces are copied one behind another into one buffer. Large ones, such as records in the journal's memory,
//! are not copied but queued as they are. A vectored write joins them again.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::limits::{UNSENT_KEPT_BYTES_MAX, WRITTEN_AT_ONCE_SLICES_MAX};
use base::limits::WRITTEN_AT_ONCE_BYTES_MAX;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

#[derive(Debug, Default)]
pub struct UnsentOutput {
    /// The copied pieces, one behind another.
    copied: BytesMut,
    /// In the order in which they are sent; none is empty.
    pieces: VecDeque<OutputPiece>,
    bytes: usize,
}

#[derive(Debug)]
enum OutputPiece {
    /// Number of bytes in `copied`.
    Copied(usize),
    Shared(Bytes),
}

impl UnsentOutput {
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the bytes that `write` adds to the buffer.
    pub fn write(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.copied.len();
        write(&mut self.copied);
        let written = self.copied.len() - before;
        if written == 0 {
            return;
        }
        self.bytes += written;
        match self.pieces.back_mut() {
            Some(OutputPiece::Copied(bytes)) => *bytes += written,
            _ => self.pieces.push_back(OutputPiece::Copied(written)),
        }
    }

    /// Appends bytes without copying them.
    pub fn push(&mut self, bytes: Bytes) {
        // An empty slice would look like a socket that takes nothing.
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            self.pieces.push_back(OutputPiece::Shared(bytes));
        }
    }

    /// Appends the content of another one.
    pub fn append(&mut self, mut other: Self) {
        for piece in other.pieces.drain(..) {
            match piece {
                OutputPiece::Copied(bytes) => {
                    let copied = other.copied.split_to(bytes);
                    self.write(|out| out.extend_from_slice(&copied));
                }
                OutputPiece::Shared(bytes) => self.push(bytes),
            }
        }
    }

    /// Writes as much as the socket takes without waiting, [`WRITTEN_AT_ONCE_BYTES_MAX`] at most, so that other
    /// sessions are scheduled. Returns the number of bytes; pending if the socket takes nothing.
    pub fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        context: &mut Context<'_>,
        socket: &mut W,
    ) -> Poll<io::Result<usize>> {
        let mut taken = 0;
        while !self.is_empty() && taken < WRITTEN_AT_ONCE_BYTES_MAX {
            match self.poll_write_once(context, socket, WRITTEN_AT_ONCE_BYTES_MAX - taken) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => {
                    self.advance(written);
                    taken += written;
                }
                Poll::Ready(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending if taken == 0 => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if self.is_empty() && self.copied.capacity() > UNSENT_KEPT_BYTES_MAX {
            self.copied = BytesMut::new();
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_write_once<W: AsyncWrite + Unpin>(
        &self,
        context: &mut Context<'_>,
        socket: &mut W,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        let socket = Pin::new(socket);
        // Most writes are one small piece, for which the plain call is cheaper.
        if let [piece] = self.pieces.as_slices().0
            && self.pieces.len() == 1
        {
            let whole = match piece {
                OutputPiece::Copied(bytes) => &self.copied[..*bytes],
                OutputPiece::Shared(bytes) => bytes,
            };
            return socket.poll_write(context, &whole[..whole.len().min(bytes_max)]);
        }
        let mut slices = [IoSlice::new(&[]); WRITTEN_AT_ONCE_SLICES_MAX];
        let mut copied = &self.copied[..];
        let (mut count, mut left) = (0, bytes_max);
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            if left == 0 {
                break;
            }
            let whole = match piece {
                OutputPiece::Copied(bytes) => {
                    let (now, later) = copied.split_at(*bytes);
                    copied = later;
                    now
                }
                OutputPiece::Shared(bytes) => bytes,
            };
            *slice = IoSlice::new(&whole[..whole.len().min(left)]);
            left -= slice.len();
            count += 1;
        }
        socket.poll_write_vectored(context, &slices[..count])
    }

    fn advance(&mut self, written: usize) {
        self.bytes -= written;
        let mut left = written;
        while left > 0 {
            let Some(front) = self.pieces.front_mut() else { break };
            let is_sent = match front {
                OutputPiece::Copied(bytes) => {
                    let now = left.min(*bytes);
                    self.copied.advance(now);
                    *bytes -= now;
                    left -= now;
                    *bytes == 0
                }
                OutputPiece::Shared(bytes) => {
                    let now = left.min(bytes.len());
                    bytes.advance(now);
                    left -= now;
                    bytes.is_empty()
                }
            };
            if is_sent {
                self.pieces.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    /// Takes `step` bytes per write, and is full at every second write.
    struct Socket {
        step: usize,
        is_vectored: bool,
        is_full: bool,
        received: Vec<u8>,
    }

    impl Socket {
        fn new(step: usize, is_vectored: bool) -> Self {
            Self { step, is_vectored, is_full: false, received: Vec::new() }
        }
    }

    impl AsyncWrite for Socket {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(context, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.is_full = !self.is_full;
            if !self.is_full {
                return Poll::Pending;
            }
            let slices = if self.is_vectored { slices } else { &slices[..1] };
            let before = self.received.len();
            for slice in slices {
                let room = self.step - (self.received.len() - before);
                self.received.extend_from_slice(&slice[..slice.len().min(room)]);
            }
            Poll::Ready(Ok(self.received.len() - before))
        }

        fn is_write_vectored(&self) -> bool {
            self.is_vectored
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn poll(unsent: &mut UnsentOutput, socket: &mut Socket) -> Poll<usize> {
        let mut context = Context::from_waker(Waker::noop());
        unsent.poll_write(&mut context, socket).map(|written| written.expect("it never fails"))
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(Vec<u8>),
        Push(Vec<u8>),
        Append(Vec<u8>, Vec<u8>),
        Send,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let bytes = || proptest::collection::vec(any::<u8>(), 0..50);
        let step = prop_oneof![
            bytes().prop_map(Step::Write),
            bytes().prop_map(Step::Push),
            (bytes(), bytes()).prop_map(|(copied, shared)| Step::Append(copied, shared)),
            Just(Step::Send),
        ];
        // More pieces than one call has slices.
        proptest::collection::vec(step, 0..600)
    }

    proptest! {
        #[test]
        fn bytes_keep_their_order_with_any_partial_writes(
            steps in steps(),
            step in 1usize..5_000,
            is_vectored: bool,
        ) {
            let (mut unsent, mut socket) = (UnsentOutput::default(), Socket::new(step, is_vectored));
            let mut expected = Vec::new();
            for step in steps {
                match step {
                    Step::Write(bytes) => {
                        unsent.write(|out| out.extend_from_slice(&bytes));
                        expected.extend(bytes);
                    }
                    Step::Push(bytes) => {
                        unsent.push(Bytes::from(bytes.clone()));
                        expected.extend(bytes);
                    }
                    Step::Append(copied, shared) => {
                        let mut other = UnsentOutput::default();
                        other.write(|out| out.extend_from_slice(&copied));
                        other.push(Bytes::from(shared.clone()));
                        unsent.append(other);
                        expected.extend(copied);
                        expected.extend(shared);
                    }
                    Step::Send => {
                        let _ = poll(&mut unsent, &mut socket);
                    }
                }
                prop_assert_eq!(socket.received.len() + unsent.bytes(), expected.len());
            }
            while !unsent.is_empty() {
                let _ = poll(&mut unsent, &mut socket);
            }
            prop_assert_eq!(socket.received, expected);
            prop_assert!(unsent.pieces.is_empty() && unsent.copied.is_empty());
        }
    }

    #[test]
    fn one_write_is_limited_even_if_the_socket_takes_everything() {
        let mut unsent = UnsentOutput::default();
        for _ in 0..10 {
            unsent.push(Bytes::from(vec![7; 100_000]));
        }
        let mut all = Vec::new();
        let mut context = Context::from_waker(Waker::noop());
        let written = unsent.poll_write(&mut context, &mut all);
        assert!(matches!(written, Poll::Ready(Ok(WRITTEN_AT_ONCE_BYTES_MAX))), "{written:?}");
        assert_eq!(unsent.bytes(), 1_000_000 - WRITTEN_AT_ONCE_BYTES_MAX);
    }

    #[test]
    fn write_is_pending_while_the_socket_is_full() {
        let (mut unsent, mut socket) = (UnsentOutput::default(), Socket::new(10, true));
        unsent.push(Bytes::from_static(b"twelve bytes"));
        assert_eq!(poll(&mut unsent, &mut socket), Poll::Ready(10));
        socket.is_full = true;
        assert_eq!(poll(&mut unsent, &mut socket), Poll::Pending);
        assert_eq!(poll(&mut unsent, &mut socket), Poll::Ready(2));
    }

    #[test]
    fn large_buffer_is_freed_once_it_is_sent() {
        let mut unsent = UnsentOutput::default();
        unsent.write(|out| out.extend_from_slice(&[7; UNSENT_KEPT_BYTES_MAX + 1]));
        let mut all = Vec::new();
        let _ = unsent.poll_write(&mut Context::from_waker(Waker::noop()), &mut all);
        assert_eq!((unsent.bytes(), unsent.copied.capacity()), (0, 0));
    }
}
