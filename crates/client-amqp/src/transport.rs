//! What the client runs over: bytes in order, both ways, and a way to wait no longer than that.

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// What one read takes in.
pub(crate) const READ_LEN: usize = 64 << 10;

/// Bytes in order, both ways. Every method fails when the server does not take or give anything for as
/// long as the transport is patient.
pub trait Transport {
    fn write(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Puts what came behind `arrived`, at least a byte.
    fn read(&mut self, arrived: &mut BytesMut) -> impl Future<Output = io::Result<()>> + Send;

    /// As [`Transport::read`]; false if nothing comes within this time.
    fn read_within(
        &mut self,
        arrived: &mut BytesMut,
        wait: Duration,
    ) -> impl Future<Output = io::Result<bool>> + Send;
}

/// A stream of any kind, under tokio's clock.
#[derive(Debug)]
pub struct Over<S> {
    stream: S,
    patience: Duration,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Over<S> {
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience }
    }
}

fn too_late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Transport for Over<S> {
    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let writing = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(self.patience, writing).await.map_err(|_| too_late())?
    }

    async fn read(&mut self, arrived: &mut BytesMut) -> io::Result<()> {
        match self.read_within(arrived, self.patience).await? {
            true => Ok(()),
            false => Err(too_late()),
        }
    }

    async fn read_within(&mut self, arrived: &mut BytesMut, wait: Duration) -> io::Result<bool> {
        arrived.reserve(READ_LEN);
        match timeout(wait, self.stream.read_buf(arrived)).await {
            Ok(Ok(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read.map(|_| true),
            Err(_) => Ok(false),
        }
    }
}
