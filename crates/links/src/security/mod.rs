//! Encryption of links, and the connections that are refused without it.

mod secret;
mod tls;
mod wire;

use std::io;

use world::net::Stream;

pub use tls::{SecurityError, Tls};
pub(crate) use wire::Wire;

use crate::end::{ConnectError, ConnectionEnd, Insecure};

/// The protection of links. It is the same on all nodes of a cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Security {
    /// Nothing is encrypted, and a peer's identity is not verified. Refused for addresses other than loopback,
    /// unless `beyond_loopback` says that the wires between the nodes are private.
    Plain { beyond_loopback: bool },
    /// TLS 1.3; both ends authenticate.
    Tls(Tls),
}

impl Security {
    /// Whether links may be accepted at this address.
    pub(crate) fn allows_to_listen(&self, address: std::net::SocketAddr) -> Result<(), Insecure> {
        self.allows(address.ip())
    }

    fn allows(&self, address: std::net::IpAddr) -> Result<(), Insecure> {
        match self {
            Self::Tls(_) => Ok(()),
            Self::Plain { beyond_loopback } => {
                if *beyond_loopback || address.to_canonical().is_loopback() {
                    Ok(())
                } else {
                    Err(Insecure)
                }
            }
        }
    }

    /// The connecting side, to `HOST:PORT`.
    pub(crate) async fn connect(
        &self,
        stream: Stream,
        address: &str,
    ) -> Result<Wire, ConnectError> {
        let peer = stream.peer_addr().map_err(|error| ConnectError::Unreachable(error.kind()))?;
        self.allows(peer.ip())?;
        match self {
            Self::Plain { .. } => Ok(Wire::Plain(stream)),
            Self::Tls(tls) => match tls.connect(stream, address).await {
                Ok(stream) => Ok(Wire::Tls(Box::new(stream))),
                Err(error) if is_tls_error(&error) => Err(ConnectError::Tls(error.to_string())),
                Err(error) => Err(ConnectError::Ended(ConnectionEnd::of(&error))),
            },
        }
    }

    /// The accepting side.
    pub(crate) async fn accept(&self, stream: Stream) -> io::Result<Wire> {
        match self {
            Self::Plain { .. } => Ok(Wire::Plain(stream)),
            Self::Tls(tls) => tls.accept(stream).await.map(|stream| Wire::Tls(Box::new(stream))),
        }
    }
}

/// Whether the error is of TLS rather than of the network.
fn is_tls_error(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<rustls::Error>())
        || error.kind() == io::ErrorKind::InvalidInput
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_links_are_limited_to_loopback_by_default() {
        let allows = |beyond_loopback, address: &str| {
            let address = address.parse().expect("an address");
            Security::Plain { beyond_loopback }.allows_to_listen(address).is_ok()
        };
        assert!(allows(false, "127.0.0.1:1") && allows(false, "[::1]:1"));
        assert!(allows(false, "[::ffff:127.0.0.1]:1"));
        assert!(!allows(false, "0.0.0.0:1") && !allows(false, "10.0.0.1:1"));
        assert!(!allows(false, "[::]:1"));
        assert!(allows(true, "0.0.0.0:1") && allows(true, "10.0.0.1:1"));
    }
}
