//! TLS 1.3 with authentication of both ends.

use std::io;
use std::sync::Arc;

use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption, WebPkiServerVerifier};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use world::net::Stream;

use super::secret::{SECRET_BYTES_MIN, SameKey, key_pair};

/// Reason why the given keys cannot protect links.
#[derive(Debug, Error)]
pub enum SecurityError {
    #[error("the secret of the nodes has {bytes} bytes; it needs {SECRET_BYTES_MIN}, random ones")]
    ShortSecret { bytes: usize },
    #[error("no key follows from the secret")]
    Key,
    #[error("{what} cannot be read: {source}")]
    Pem { what: &'static str, source: rustls::pki_types::pem::Error },
    #[error("there is no certificate in {what}")]
    NoCertificate { what: &'static str },
    #[error("the certificates cannot be used: {0}")]
    Certificates(#[from] rustls::Error),
    #[error("the authorities cannot be used: {0}")]
    Authorities(#[from] rustls::client::VerifierBuilderError),
}

/// Both sides' keys, and their verification of the other side. Clones share them.
#[derive(Clone, Debug)]
pub struct Tls {
    connects: Arc<ClientConfig>,
    accepts: Arc<ServerConfig>,
    /// A certificate has a name, a shared key has none.
    has_names: bool,
}

impl Tls {
    /// Nodes that share a secret of at least 32 random bytes.
    pub fn from_secret(secret: &[u8]) -> Result<Self, SecurityError> {
        let pair = Arc::new(key_pair(secret)?);
        let same_key = SameKey::new(&pair)?;
        let provider = Arc::new(default_provider());
        let connects = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&same_key) as _)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                Arc::clone(&pair),
            )));
        let accepts = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(same_key)
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(pair)));
        Ok(Self::new(connects, accepts, false))
    }

    /// Nodes with certificates, in PEM: `authorities` have signed the certificates of all nodes, for servers and
    /// for clients. A node's certificate names the host of its peer address.
    pub fn from_certificates(
        chain: &[u8],
        key: &[u8],
        authorities: &[u8],
    ) -> Result<Self, SecurityError> {
        let chain = certificates("the node's certificate", chain)?;
        let what = "the node's key";
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|source| SecurityError::Pem { what, source })?;
        let mut roots = RootCertStore::empty();
        for authority in certificates("the authorities", authorities)? {
            roots.add(authority)?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(default_provider()));
        let servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        let connects = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .with_webpki_verifier(servers.build()?)
            .with_client_auth_cert(chain.clone(), key.clone_key())?;
        let accepts = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients.build()?)
            .with_single_cert(chain, key)?;
        Ok(Self::new(connects, accepts, true))
    }

    fn new(mut connects: ClientConfig, mut accepts: ServerConfig, has_names: bool) -> Self {
        // Connections are few and long-lived: no state is kept for shorter handshakes.
        connects.resumption = Resumption::disabled();
        accepts.send_tls13_tickets = 0;
        Self { connects: Arc::new(connects), accepts: Arc::new(accepts), has_names }
    }

    /// `address` is `HOST:PORT`.
    pub(super) async fn connect(
        &self,
        stream: Stream,
        address: &str,
    ) -> io::Result<TlsStream<Stream>> {
        let name =
            if self.has_names { name_of(address)? } else { NODE.try_into().map_err(no_name)? };
        let connector = TlsConnector::from(Arc::clone(&self.connects));
        connector.connect(name, stream).await.map(TlsStream::from)
    }

    pub(super) async fn accept(&self, stream: Stream) -> io::Result<TlsStream<Stream>> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.accepts));
        acceptor.accept(stream).await.map(TlsStream::from)
    }
}

/// The server name where names are not verified.
const NODE: &str = "node.invalid";

fn no_name(error: rustls::pki_types::InvalidDnsNameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

fn name_of(address: &str) -> io::Result<ServerName<'static>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).map_err(no_name)
}

fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|source| SecurityError::Pem { what, source })?;
    if all.is_empty() { Err(SecurityError::NoCertificate { what }) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_name_is_the_host_of_the_address() {
        for (address, host) in
            [("a.example:7700", "a.example"), ("10.0.0.1:1", "10.0.0.1"), ("[::1]:1", "::1")]
        {
            assert_eq!(name_of(address).expect("a name").to_str(), host);
        }
        assert!(name_of("no name:1").is_err());
    }

    #[test]
    fn invalid_certificate_is_rejected() {
        let refused = Tls::from_certificates(b"", b"", b"").map(drop);
        assert!(matches!(refused, Err(SecurityError::NoCertificate { .. })), "{refused:?}");
    }
}
