//! A connection as one value, for a task that reads and writes it from one place.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::half::{ReadHalf, WriteHalf};

/// A connection. Dropping it closes it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stream {
    Kernel(tokio::net::TcpStream),
    #[cfg(feature = "sim")]
    Simulated(super::SimulatedStream),
}

impl From<tokio::net::TcpStream> for Stream {
    fn from(stream: tokio::net::TcpStream) -> Self {
        Self::Kernel(stream)
    }
}

#[cfg(feature = "sim")]
impl From<turmoil::net::TcpStream> for Stream {
    fn from(stream: turmoil::net::TcpStream) -> Self {
        Self::Simulated(stream.into())
    }
}

impl Stream {
    /// Whether small writes are sent at once. A simulated network never delays them.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        on_socket!(self, stream => stream.set_nodelay(nodelay))
    }

    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        on_socket!(self, stream => stream.peer_addr())
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        on_socket!(self, stream => stream.local_addr())
    }

    /// Ready once a read may return data, or the end. This is a hint, the read may still have to wait. With it an
    /// idle connection needs no buffer.
    pub fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self, stream => stream.poll_read_ready(context))
    }

    /// Both sides, for two futures of one task. This neither allocates nor locks.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        match self {
            Self::Kernel(stream) => {
                let (read, write) = stream.split();
                (ReadHalf::Kernel(read), WriteHalf::Kernel(write))
            }
            #[cfg(feature = "sim")]
            Self::Simulated(stream) => {
                let (read, write) = stream.split();
                (ReadHalf::Simulated(read), WriteHalf::Simulated(write))
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_socket!(self.get_mut(), stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_socket!(self.get_mut(), stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_socket!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        on_socket!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }
}
