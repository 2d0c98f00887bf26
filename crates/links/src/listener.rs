//! Where peers connect, before the node knows who it is.
//!
//! The address is taken first, so that one that cannot be had is known before anything is written or said. A node
//! that waits to hear which cluster it is of has nothing to say to its peers yet.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use base::limits::LINK_RETRY_MAX;
use gateway::Connections;
use tasks::Failure;
use tokio::time::sleep;
use tracing::warn;
use world::World;
use world::net::Listener;

use crate::identity::{Admission, DirectoryIdentity};
use crate::links::{Links, StartError};
use crate::security::Security;
use crate::service::Service;

/// An address at which peers may connect.
#[derive(Debug)]
pub struct PeerListener {
    pub(crate) world: World,
    pub(crate) listener: Listener,
    pub(crate) address: SocketAddr,
    pub(crate) security: Security,
}

impl PeerListener {
    /// Takes the address; port 0 is one that the system chooses.
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

    /// Where peers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How links are protected.
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// Closes connections as they come, until this is dropped: who connects comes again after a moment. Left
    /// alone they would wait for an answer until they give up.
    pub async fn turn_away(&self) -> Infallible {
        loop {
            if let Err(error) = self.listener.accept().await {
                warn!(address = %self.address, %error, "cannot accept a connection of a peer");
                sleep(LINK_RETRY_MAX).await;
            }
        }
    }

    /// Serves peers from now on, as [`Links::start`] does.
    pub fn serve(
        self,
        at: DirectoryIdentity,
        connections: Connections,
        admission: Arc<dyn Admission>,
        service: Arc<dyn Service>,
        failure: &Failure,
    ) -> Links {
        Links::serve(self, at, connections, admission, service, failure)
    }
}
