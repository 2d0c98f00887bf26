//! Sockets: the kernel's, and those of a simulated network.
//!
//! The types are enums that in production have one variant, so that a read or a write is a call of tokio's own and
//! nothing else. The second variant, under the feature `sim`, is turmoil's. Both offer polls, and TLS will too;
//! there is no `try_write` here.

#![expect(clippy::disallowed_types, reason = "the one place that has the kernel's sockets")]

/// Makes the same call on either kind of socket.
macro_rules! on_socket {
    ($this:expr, $socket:ident => $call:expr) => {
        match $this {
            Self::Kernel($socket) => $call,
            #[cfg(feature = "sim")]
            Self::Simulated($socket) => $call,
        }
    };
}

mod half;
#[cfg(feature = "sim")]
mod simulated;
mod stream;

use std::io;
use std::net::SocketAddr;

pub use half::{ReadHalf, WriteHalf};
#[cfg(feature = "sim")]
pub use simulated::SimulatedStream;
pub use stream::Stream;

/// The network that a node is connected to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Net {
    #[default]
    Kernel,
    /// The network of the turmoil simulation whose host calls this.
    #[cfg(feature = "sim")]
    Simulated,
}

impl Net {
    /// Listens on an address; with port 0 the network chooses one. A simulated host has only `0.0.0.0`, `::` and
    /// loopback.
    pub async fn listen(self, address: SocketAddr) -> io::Result<Listener> {
        match self {
            Self::Kernel => tokio::net::TcpListener::bind(address).await.map(Listener::Kernel),
            #[cfg(feature = "sim")]
            Self::Simulated => {
                turmoil::net::TcpListener::bind(address).await.map(Listener::Simulated)
            }
        }
    }

    /// Connects to `HOST:PORT`, where the host is a name or an address.
    pub async fn connect(self, address: &str) -> io::Result<Stream> {
        match self {
            Self::Kernel => tokio::net::TcpStream::connect(address).await.map(Stream::from),
            #[cfg(feature = "sim")]
            Self::Simulated => turmoil::net::TcpStream::connect(address).await.map(Stream::from),
        }
    }
}

/// A listening socket.
#[non_exhaustive]
pub enum Listener {
    Kernel(tokio::net::TcpListener),
    #[cfg(feature = "sim")]
    Simulated(turmoil::net::TcpListener),
}

impl Listener {
    /// The next connection, and its peer's address. Nothing is lost if this is dropped.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        on_socket!(self, listener => {
            let (stream, peer) = listener.accept().await?;
            Ok((stream.into(), peer))
        })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        on_socket!(self, listener => listener.local_addr())
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Turmoil's listener has no `Debug` output of its own.
        f.debug_tuple("Listener").field(&self.local_addr().ok()).finish()
    }
}
