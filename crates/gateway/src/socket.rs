//! A client's connection, encrypted or not.
//!
//! An unencrypted connection is the world's stream without any wrapper.
//!
//! Bytes written to an encrypted connection count as taken once their cipher text is in the socket, not before. So a
//! session without unsent bytes needs no flush. In return, bytes that were not taken must be offered again, the same
//! bytes first, as [`crate::UnsentOutput`] does.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use crate::limits::{TLS_WRITTEN_AT_ONCE_BYTES_MAX, WRITTEN_AT_ONCE_SLICES_MAX};
use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use world::net::{self, Stream};

/// A connection, closed when dropped.
#[derive(Debug)]
pub enum Socket {
    Plain(Stream),
    Tls(Box<Mutex<TlsConnection>>),
}

/// The reading half.
#[derive(Debug)]
pub enum ReadHalf<'a> {
    Plain(net::ReadHalf<'a>),
    Tls(&'a Mutex<TlsConnection>),
}

/// The writing half.
#[derive(Debug)]
pub enum WriteHalf<'a> {
    Plain(net::WriteHalf<'a>),
    Tls(&'a Mutex<TlsConnection>),
}

/// A connection over TLS. One task uses both halves, so the lock around it is always free.
#[derive(Debug)]
pub struct TlsConnection {
    stream: TlsStream<Stream>,
    /// Encrypted bytes whose cipher text is not completely in the socket yet.
    taken: usize,
}

impl From<Stream> for Socket {
    fn from(stream: Stream) -> Self {
        Self::Plain(stream)
    }
}

impl From<TlsStream<Stream>> for Socket {
    fn from(stream: TlsStream<Stream>) -> Self {
        Self::Tls(Box::new(Mutex::new(TlsConnection { stream, taken: 0 })))
    }
}

impl Socket {
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The client's certificate, in DER. It is signed by one of the client authorities.
    pub fn certificate(&mut self) -> Option<&[u8]> {
        let Self::Tls(tls) = self else { return None };
        let (_, session) = tls.get_mut().stream.get_ref();
        Some(session.peer_certificates()?.first()?.as_ref())
    }

    /// The application protocol negotiated in the TLS handshake, if any.
    pub fn application_protocol(&mut self) -> Option<&[u8]> {
        let Self::Tls(tls) = self else { return None };
        tls.get_mut().stream.get_ref().1.alpn_protocol()
    }

    /// Ready once a read may return bytes or the end of the stream. This is a hint, and the read may still be
    /// pending; it spares an idle connection its buffer.
    pub fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(context),
            Self::Tls(tls) => tls.get_mut().poll_read_ready(context),
        }
    }

    /// Both halves, for two futures of one task.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        match self {
            Self::Plain(stream) => {
                let (read, write) = stream.split();
                (ReadHalf::Plain(read), WriteHalf::Plain(write))
            }
            Self::Tls(tls) => (ReadHalf::Tls(tls), WriteHalf::Tls(tls)),
        }
    }
}

impl ReadHalf<'_> {
    /// Like [`Socket::poll_read_ready`].
    pub fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(half) => half.poll_read_ready(context),
            Self::Tls(tls) => tls.lock().poll_read_ready(context),
        }
    }
}

impl TlsConnection {
    fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Received TLS records need not contain data: only decrypted bytes count, and they stay in the stream's
        // buffer.
        let filled = ready!(Pin::new(&mut self.stream).poll_fill_buf(context)).map(drop);
        Poll::Ready(end_without_goodbye(filled))
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer).map(end_without_goodbye)
    }

    fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.taken == 0 {
            let mut few = [IoSlice::new(&[]); WRITTEN_AT_ONCE_SLICES_MAX];
            let count = first_of(slices, &mut few, TLS_WRITTEN_AT_ONCE_BYTES_MAX);
            let stream = Pin::new(&mut self.stream);
            self.taken = ready!(stream.poll_write_vectored(context, &few[..count]))?;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        Poll::Ready(Ok(std::mem::take(&mut self.taken)))
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Treats a close without `close_notify`, as many clients do, as the end of the stream, as without encryption. Every
/// protocol here has length prefixes, so truncated data is detected.
fn end_without_goodbye(read: io::Result<()>) -> io::Result<()> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        read => read,
    }
}

/// Sets `few` to the first `bytes_max` of these bytes; returns the number of slices.
fn first_of<'a>(slices: &'a [IoSlice<'_>], few: &mut [IoSlice<'a>], bytes_max: usize) -> usize {
    let (mut left, mut count) = (bytes_max, 0);
    for (few, slice) in few.iter_mut().zip(slices) {
        if left == 0 {
            break;
        }
        *few = IoSlice::new(&slice[..slice.len().min(left)]);
        left -= few.len();
        count += 1;
    }
    count
}

/// Sends `close_notify`, as far as the socket takes it at once: some clients report a truncated connection without
/// it.
impl Drop for TlsConnection {
    fn drop(&mut self) {
        self.stream.get_mut().1.send_close_notify();
        let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
    }
}

impl AsyncRead for ReadHalf<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(half) => Pin::new(half).poll_read(context, buffer),
            Self::Tls(tls) => tls.lock().poll_read(context, buffer),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(tls) => tls.get_mut().poll_read(context, buffer),
        }
    }
}

/// Implements writing for the whole socket and its writing half, which differ in their access to the encrypted
/// stream.
macro_rules! writes {
    ($type:ty, $tls:ident => $locked:expr) => {
        impl AsyncWrite for $type {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
                    Self::Tls($tls) => $locked.poll_write_vectored(context, &[IoSlice::new(bytes)]),
                }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    Self::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
                    Self::Tls($tls) => $locked.poll_write_vectored(context, slices),
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self {
                    Self::Plain(stream) => stream.is_write_vectored(),
                    Self::Tls(_) => true,
                }
            }

            fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Plain(stream) => Pin::new(stream).poll_flush(context),
                    Self::Tls($tls) => $locked.poll_flush(context),
                }
            }

            fn poll_shutdown(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() {
                    Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
                    Self::Tls($tls) => $locked.poll_shutdown(context),
                }
            }
        }
    };
}

writes!(WriteHalf<'_>, tls => tls.lock());
writes!(Socket, tls => tls.get_mut());
