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
    /// Takes an address, and refuses connections to it until it listens; with port 0 the network chooses one. A
    /// simulated host has only `0.0.0.0`, `::` and loopback, and its connections wait meanwhile.
    pub async fn bind(self, address: SocketAddr) -> io::Result<BoundPort> {
        match self {
            Self::Kernel => bind_kernel(address).map(BoundPort::Kernel),
            #[cfg(feature = "sim")]
            Self::Simulated => {
                turmoil::net::TcpListener::bind(address).await.map(BoundPort::Simulated)
            }
        }
    }

    /// Listens on an address at once, as [`bind`](Self::bind) and [`listen`](BoundPort::listen) do.
    pub async fn listen(self, address: SocketAddr) -> io::Result<Listener> {
        self.bind(address).await?.listen()
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

/// Connections that wait to be accepted, at most. The kernel's own limit may be lower.
const BACKLOG: u32 = 1_024;

fn bind_kernel(address: SocketAddr) -> io::Result<tokio::net::TcpSocket> {
    let socket = match address {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    // A restart need not wait for the connections of the process before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A socket that has its address and does not listen yet.
#[non_exhaustive]
pub enum BoundPort {
    Kernel(tokio::net::TcpSocket),
    #[cfg(feature = "sim")]
    Simulated(turmoil::net::TcpListener),
}

impl BoundPort {
    /// Accepts connections from now on. Fails if another process has begun to listen on the address meanwhile.
    pub fn listen(self) -> io::Result<Listener> {
        match self {
            Self::Kernel(socket) => socket.listen(BACKLOG).map(Listener::Kernel),
            #[cfg(feature = "sim")]
            Self::Simulated(listener) => Ok(Listener::Simulated(listener)),
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        on_socket!(self, socket => socket.local_addr())
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

impl std::fmt::Debug for BoundPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("BoundPort").field(&self.local_addr().ok()).finish()
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Turmoil's listener has no `Debug` output of its own.
        f.debug_tuple("Listener").field(&self.local_addr().ok()).finish()
    }
}
