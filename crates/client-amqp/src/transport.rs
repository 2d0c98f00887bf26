//! The byte stream below the client: bytes in order, both ways, with timeouts.

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// Largest read.
pub(crate) const READ_LEN: usize = 64 << 10;

/// Bytes in order, both ways. Every method fails when the server makes no progress within the transport's patience.
pub trait Transport {
    fn write(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Appends received bytes to `arrived`, at least one.
    fn read(&mut self, arrived: &mut BytesMut) -> impl Future<Output = io::Result<()>> + Send;

    /// Like [`Transport::read`]; false if nothing arrives within this time.
    fn read_within(
        &mut self,
        arrived: &mut BytesMut,
        wait: Duration,
    ) -> impl Future<Output = io::Result<bool>> + Send;
}

/// A stream of any kind, under tokio's clock.
#[derive(Debug)]
pub struct TimedStream<S> {
    stream: S,
    patience: Duration,
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> TimedStream<S> {
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience }
    }
}

fn too_late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Transport for TimedStream<S> {
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
