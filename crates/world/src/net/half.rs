//! The two sides of a connection, for a task with separate futures for reading and writing.
//!
//! Both borrow the stream. Tokio's own halves share a socket without a lock; halves over any stream
//! (`tokio::io::split`) would take one for each read and write.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The side that reads.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadHalf<'a> {
    Kernel(tokio::net::tcp::ReadHalf<'a>),
    #[cfg(feature = "sim")]
    Simulated(super::simulated::SimulatedReadHalf<'a>),
}

/// The side that writes.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteHalf<'a> {
    Kernel(tokio::net::tcp::WriteHalf<'a>),
    #[cfg(feature = "sim")]
    Simulated(&'a mut turmoil::net::tcp::OwnedWriteHalf),
}

impl ReadHalf<'_> {
    /// As [`super::Stream::poll_read_ready`].
    pub fn poll_read_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Kernel(half) => half.as_ref().poll_read_ready(context),
            #[cfg(feature = "sim")]
            Self::Simulated(half) => half.poll_read_ready(context),
        }
    }
}

impl AsyncRead for ReadHalf<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        on_socket!(self.get_mut(), half => Pin::new(half).poll_read(context, buffer))
    }
}

impl AsyncWrite for WriteHalf<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        on_socket!(self.get_mut(), half => Pin::new(half).poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on_socket!(self.get_mut(), half => Pin::new(half).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        on_socket!(self, half => half.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self.get_mut(), half => Pin::new(half).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_socket!(self.get_mut(), half => Pin::new(half).poll_shutdown(context))
    }
}
