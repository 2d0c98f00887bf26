//! How many connections an address may open in a second, for the listeners of all protocols.

use std::net::SocketAddr;
use std::time::Duration;

use access::Quotas;
use access::quotas::Protocol;

#[derive(Debug)]
pub(crate) struct Gate(pub(crate) Quotas);

impl gateway::Gate for Gate {
    fn opens(&self, peer: SocketAddr, protocol: &'static str) -> Result<(), Duration> {
        // Whoever scrapes the port for metrics is no client.
        let protocol = Protocol::from_word(protocol);
        protocol.map_or(Ok(()), |protocol| self.0.connects(peer.ip(), protocol))
    }
}
