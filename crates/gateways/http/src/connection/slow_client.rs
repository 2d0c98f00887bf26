//! Disconnects clients that do not read their responses, which frees the memory of these responses.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use gateway::Socket;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connection::frames::Frames;

/// A socket with a timeout for each write.
#[derive(Debug)]
pub(crate) struct TimedSocket {
    socket: Socket,
    within: Duration,
    /// Deadline of the pending write.
    due: Option<Pin<Box<Sleep>>>,
    /// Bytes that were already read, and are returned first.
    first: Bytes,
    /// Set for HTTP/2.
    frames: Option<Frames>,
}

impl TimedSocket {
    /// `first` has already been read from the socket.
    pub(crate) fn new(socket: Socket, first: Bytes, within: Duration) -> Self {
        Self { socket, within, due: None, first, frames: None }
    }

    /// Counts frames, for HTTP/2.
    pub(crate) fn counted(self) -> Self {
        Self { frames: Some(Frames::new(Instant::now())), ..self }
    }

    /// Passes the result of a write through, or times out.
    fn watched<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.due = None;
            return written;
        }
        let within = self.within;
        let due = self.due.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + within)));
        match due.as_mut().poll(context) {
            Poll::Ready(()) => {
                let why = format!("the client took nothing of its answer within {within:?}");
                Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, why)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for TimedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let watched = self.get_mut();
        let before = buffer.filled().len();
        let read = if watched.first.is_empty() {
            Pin::new(&mut watched.socket).poll_read(context, buffer)
        } else {
            let again = watched.first.len().min(buffer.remaining());
            buffer.put_slice(&watched.first[..again]);
            watched.first.advance(again);
            // Appends what is available now, as one read would. Errors and the end are returned by the next read.
            let _ = Pin::new(&mut watched.socket).poll_read(context, buffer);
            Poll::Ready(Ok(()))
        };
        if let (Poll::Ready(Ok(())), Some(frames)) = (&read, &mut watched.frames) {
            frames.came(&buffer.filled()[before..], Instant::now())?;
        }
        read
    }
}

impl AsyncWrite for TimedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let watched = self.get_mut();
        let written = Pin::new(&mut watched.socket).poll_write(context, bytes);
        watched.watched(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let watched = self.get_mut();
        let written = Pin::new(&mut watched.socket).poll_write_vectored(context, slices);
        watched.watched(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let watched = self.get_mut();
        let flushed = Pin::new(&mut watched.socket).poll_flush(context);
        watched.watched(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
