//! Opening of connections to brokers.
//!
//! The creator of a [`Client`](crate::Client) chooses a connector once, and no other module depends on the kind of
//! stream. [`Tcp`] is the machine's network. A simulation passes a [`Connect`] of its own, which also decides when
//! connecting takes time or fails.

#![expect(
    clippy::disallowed_types,
    reason = "the connector of the real network; a simulation has its own"
)]

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Timeout of connecting, for any connector.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The byte stream of a connection: bytes in order, both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// A connection being opened.
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

/// The network of this machine, over TLS.
#[derive(Clone, Debug)]
pub struct TlsTcp {
    config: Arc<ClientConfig>,
}

/// Invalid certificate authorities.
#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("it is no PEM: {0}")]
    Pem(rustls::pki_types::pem::Error),
    #[error("there is no certificate in it")]
    NoCertificate,
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
}

impl TlsTcp {
    /// Trusts brokers whose certificates are these, or signed by them, in PEM.
    pub fn new(authorities: &[u8]) -> Result<Self, AuthoritiesError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            roots.add(certificate.map_err(AuthoritiesError::Pem)?)?;
        }
        if roots.is_empty() {
            return Err(AuthoritiesError::NoCertificate);
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config) })
    }

    pub(crate) fn config(&self) -> &Arc<ClientConfig> {
        &self.config
    }
}

impl Connect for TlsTcp {
    fn connect<'a>(&'a self, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let connector = TlsConnector::from(Arc::clone(&self.config));
            let stream = connector.connect(name, stream).await?;
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
