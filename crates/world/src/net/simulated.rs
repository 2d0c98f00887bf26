//! Turmoil's connection, with the interface of the kernel's.
//!
//! It is held as two halves from the start: turmoil lends no halves, it only takes a connection apart.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// A connection of a simulated network.
#[derive(Debug)]
pub struct SimulatedStream {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
}

/// The reading side of a simulated connection.
#[derive(Debug)]
pub struct SimulatedReadHalf<'a>(&'a mut OwnedReadHalf);

impl From<turmoil::net::TcpStream> for SimulatedStream {
    fn from(stream: turmoil::net::TcpStream) -> Self {
        let (read, write) = stream.into_split();
        Self { read, write }
    }
}

impl SimulatedStream {
    pub(super) fn set_nodelay(&self, _nodelay: bool) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.read.peer_addr()
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.read.local_addr()
    }

    pub(super) fn split(&mut self) -> (SimulatedReadHalf<'_>, &mut OwnedWriteHalf) {
        (SimulatedReadHalf(&mut self.read), &mut self.write)
    }

    pub(super) fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        SimulatedReadHalf(&mut self.read).poll_read_ready(context)
    }
}

impl SimulatedReadHalf<'_> {
    pub(super) fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Turmoil mistakes a read into an empty buffer for the end of the stream, so this peeks a byte.
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        ready!(Pin::new(&mut *self.0).poll_peek(context, &mut buffer))?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for SimulatedReadHalf<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().0).poll_read(context, buffer)
    }
}

impl AsyncRead for SimulatedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().read).poll_read(context, buffer)
    }
}

impl AsyncWrite for SimulatedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().write).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().write).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.write.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().write).poll_shutdown(context)
    }
}
