//! How a connection to a broker comes to be.
//!
//! The decision that shapes it: who makes a [`Client`](crate::Client) chooses once, and nothing past
//! this module knows what a stream is made of. [`Tcp`] is the machine's network; a simulation passes
//! a [`Connect`] of its own, which also decides when connecting takes time or fails.

#![expect(
    clippy::disallowed_types,
    reason = "the connector of the real network; a simulation has its own"
)]

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long connecting may take, whatever connects.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// What a connection runs over: bytes in order, both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A connection that is being made.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Opens streams to brokers by their addresses, `HOST:PORT`.
pub trait Connect: fmt::Debug + Send + Sync + 'static {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a>;
}

/// The network of this machine.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tcp;

impl Connect for Tcp {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Connects, for [`CONNECT_WITHIN`] at most.
pub(crate) async fn connect(connector: &dyn Connect, address: &str) -> io::Result<Box<dyn Stream>> {
    timeout(CONNECT_WITHIN, connector.connect(address))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer"))?
}
