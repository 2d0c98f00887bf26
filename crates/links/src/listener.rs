//! The listening socket for peers, before the node knows its identity.
//!
//! The address is bound first, so that an unavailable one is known before anything is written or sent. A node that
//! waits for its cluster has nothing to send to its peers yet.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use base::limits::LINK_RETRY_MAX;
use thiserror::Error;
use tokio::time::sleep;
use tracing::warn;
use world::World;
use world::net::Listener;

use crate::end::Insecure;
use crate::security::Security;

#[derive(Debug, Error)]
pub enum StartError {
    #[error("{0}")]
    Insecure(#[from] Insecure),
    #[error("cannot listen for peers at {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// An address at which peers may connect.
#[derive(Debug)]
pub struct PeerListener {
    pub(crate) world: World,
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
    pub(crate) security: Security,
}

impl PeerListener {
    /// Binds the address; with port 0 the system chooses one.
    pub async fn bind(
        world: &World,
        listen: SocketAddr,
        security: Security,
    ) -> Result<Self, StartError> {
        security.allows_to_listen(listen)?;
        let failed = |source| StartError::Listen { address: listen, source };
        let listener = world.net.listen(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { world: world.clone(), listener, address, security })
    }

    /// The listening address for peers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The protection of the links.
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// Closes connections as they arrive, until this is dropped: peers reconnect after a moment. Connections left
    /// alone would wait for a reply until their timeout.
    pub async fn turn_away(&self) -> Infallible {
        loop {
            if let Err(error) = self.listener.accept().await {
                warn!(address = %self.address, %error, "cannot accept a connection of a peer");
                sleep(LINK_RETRY_MAX).await;
            }
        }
    }
}
