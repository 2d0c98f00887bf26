//! A client's connection, encrypted or not, as gateways read and write it.
//!
//! One that is not encrypted is the world's stream and nothing else: a call goes straight to it.
//!
//! What is written to an encrypted one counts as taken once its cipher text is in the socket, not before. So a
//! session that has nothing unsent owes its client nothing, and needs no flush; for that, what could not be
//! taken is offered again, the same bytes first, which is how [`crate::Unsent`] does it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use base::limits::{TLS_WRITTEN_AT_ONCE_BYTES_MAX, WRITTEN_AT_ONCE_SLICES_MAX};
use parking_lot::Mutex;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;
use world::net::{self, Stream};

/// A connection. Dropping it closes it.
#[derive(Debug)]
pub enum Socket {
    Plain(Stream),
    Tls(Box<Mutex<Encrypted>>),
}

/// The side that reads.
#[derive(Debug)]
pub enum ReadHalf<'a> {
    Plain(net::ReadHalf<'a>),
    Tls(&'a Mutex<Encrypted>),
}

/// The side that writes.
#[derive(Debug)]
pub enum WriteHalf<'a> {
    Plain(net::WriteHalf<'a>),
    Tls(&'a Mutex<Encrypted>),
}

/// A connection over TLS. Both sides of it are of one task, so the lock around it is always free.
#[derive(Debug)]
pub struct Encrypted {
    stream: TlsStream<Stream>,
    /// Bytes that were encrypted, and whose cipher text is not in the socket yet.
    taken: usize,
}

impl From<Stream> for Socket {
    fn from(stream: Stream) -> Self {
        Self::Plain(stream)
    }
}

impl From<TlsStream<Stream>> for Socket {
    fn from(stream: TlsStream<Stream>) -> Self {
        Self::Tls(Box::new(Mutex::new(Encrypted { stream, taken: 0 })))
    }
}

impl Socket {
    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The certificate that the client showed, in DER. An authority of clients has signed it.
    pub fn certificate(&mut self) -> Option<&[u8]> {
        let Self::Tls(tls) = self else { return None };
        let (_, session) = tls.get_mut().stream.get_ref();
        Some(session.peer_certificates()?.first()?.as_ref())
    }

    /// What client and node agreed to speak when they began to encrypt, if they did.
    pub fn application_protocol(&mut self) -> Option<&[u8]> {
        let Self::Tls(tls) = self else { return None };
        tls.get_mut().stream.get_ref().1.alpn_protocol()
    }

    /// Ready once a read may bring something, or the end. This is a hint, the read may still have to wait;
    /// with it an idle connection needs no buffer.
    pub fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => stream.poll_read_ready(context),
            Self::Tls(tls) => tls.get_mut().poll_read_ready(context),
        }
    }

    /// Both sides, for two futures of one task.
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
    /// As [`Socket::poll_read_ready`].
    pub fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(half) => half.poll_read_ready(context),
            Self::Tls(tls) => tls.lock().poll_read_ready(context),
        }
    }
}

impl Encrypted {
    fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What comes need not be anything for us: only what is decrypted counts, and it stays where it is.
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

/// Many clients close the socket without a word of TLS. That is the end, as it is without encryption: every
/// protocol here has the lengths of what it says, so nothing that was cut off passes for whole.
fn end_without_goodbye(read: io::Result<()>) -> io::Result<()> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        read => read,
    }
}

/// Sets `few` to the first of these bytes; returns how many slices that are.
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

/// Says goodbye, as far as the socket takes it at once: some clients take a connection that just ends for one
/// that was cut.
impl Drop for Encrypted {
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

/// The same for the whole and for its writing half, which differ in how they come to what is encrypted.
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
