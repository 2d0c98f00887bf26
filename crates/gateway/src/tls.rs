//! Certificates of the node's own, and who of its clients must show one.
//!
//! What is here works on the contents of files; the files are whoever's who runs the node. New contents become
//! a configuration of their own, with a store of its own for sessions that clients may resume: one that was begun
//! under the old one is not resumed, so that nobody gets in whom the new one would not let in.

use std::io;
use std::sync::Arc;

use base::limits::{
    TLS_HANDSHAKE_WITHIN, TLS_HANDSHAKES_AT_ONCE_MAX, TLS_REFUSED_CLOSES_WITHIN,
    TLS_REFUSED_READ_BYTES_MAX,
};
use parking_lot::RwLock;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use world::net::Stream;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::socket::Socket;

/// Whether clients show certificates of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientCertificates {
    /// They are not asked for one.
    #[default]
    None,
    /// They may; one that is shown must be good.
    Optional,
    Required,
}

/// The contents of files in PEM.
#[derive(Clone, Copy, Debug)]
pub struct Pem<'a> {
    /// The node's certificate, then those that it follows from.
    pub chain: &'a [u8],
    pub key: &'a [u8],
    /// Certificates of those who sign clients'.
    pub client_authorities: Option<&'a [u8]>,
    /// Lists of certificates that they have revoked, one of each (RFC 5280, section 5).
    pub client_revocations: Option<&'a [u8]>,
}

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("{what} cannot be read: {source}")]
    Pem { what: &'static str, source: pem::Error },
    #[error("there is no certificate in {0}")]
    NoCertificate(&'static str),
    #[error("there is no list of revoked certificates in what should have some")]
    NoRevocations,
    #[error("the certificate is none of X.509")]
    Certificate,
    #[error("the certificate has ended; ask for a new one")]
    Ended,
    #[error("the certificate and the key cannot be used: {0}")]
    Pair(rustls::Error),
    #[error("an authority of clients cannot be used: {0}")]
    Authority(rustls::Error),
    #[error("the authorities of clients cannot be used: {0}")]
    Authorities(#[from] VerifierBuilderError),
    #[error("clients' certificates are asked for, and no authority of theirs is named")]
    NoAuthority,
}

/// What of HTTP is spoken over TLS, as clients and servers agree on it (RFC 7301), the one that is rather wanted first. A
/// client that names others alone is refused; those that name none speak HTTP/1.
pub const HTTP2: &[u8] = b"h2";
const HTTP_PROTOCOLS: [&[u8]; 3] = [HTTP2, b"http/1.1", b"http/1.0"];

/// What encrypts the connections of a node's listeners. Clones are the same.
#[derive(Clone, Debug)]
pub struct Tls {
    inner: Arc<Inner>,
    /// Whether clients are told that HTTP is spoken.
    of_http: bool,
}

#[derive(Debug)]
struct Inner {
    clients: ClientCertificates,
    current: RwLock<Current>,
    handshakes: Semaphore,
}

/// What new connections are encrypted with.
#[derive(Debug)]
struct Current {
    configuration: Arc<ServerConfig>,
    /// The same for listeners of HTTP, of which there is more than one version.
    of_http: Arc<ServerConfig>,
    /// When the node's certificate ends, in seconds since the epoch.
    ends_secs: i64,
}

/// Why a connection did not come to be.
#[derive(Debug, Error)]
pub(crate) enum HandshakeError {
    #[error("the client did not finish its handshake within {TLS_HANDSHAKE_WITHIN:?}")]
    Slow,
    #[error("{0}")]
    Failed(#[from] io::Error),
}

impl HandshakeError {
    /// Rather than of a client that went away, or looked whether somebody listens.
    pub(crate) fn is_of_tls(&self) -> bool {
        match self {
            Self::Slow => false,
            Self::Failed(error) => error.kind() == io::ErrorKind::InvalidData,
        }
    }
}

impl Tls {
    /// `now_secs` is the wall clock's, since the epoch.
    pub fn new(pem: Pem<'_>, clients: ClientCertificates, now_secs: i64) -> Result<Self, TlsError> {
        let current = RwLock::new(configuration(pem, clients, now_secs)?);
        let handshakes = Semaphore::new(TLS_HANDSHAKES_AT_ONCE_MAX);
        Ok(Self { inner: Arc::new(Inner { clients, current, handshakes }), of_http: false })
    }

    /// The same certificates for a listener of HTTP, where client and node agree on a version of it.
    pub fn of_http(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), of_http: true }
    }

    /// Takes other contents for connections that come from now on. What cannot be used changes nothing.
    pub fn replace(&self, pem: Pem<'_>, now_secs: i64) -> Result<(), TlsError> {
        let new = configuration(pem, self.inner.clients, now_secs)?;
        *self.inner.current.write() = new;
        Ok(())
    }

    /// When the node's certificate ends, in seconds since the epoch.
    pub fn ends_secs(&self) -> i64 {
        self.inner.current.read().ends_secs
    }

    fn configuration(&self) -> Arc<ServerConfig> {
        let current = self.inner.current.read();
        Arc::clone(if self.of_http { &current.of_http } else { &current.configuration })
    }

    /// The side that accepts. Bounded in time, and in how many are under way at once.
    pub(crate) async fn accept(&self, stream: Stream) -> Result<Socket, HandshakeError> {
        let handshake = async {
            let _permit = self.inner.handshakes.acquire().await.map_err(io::Error::other)?;
            let current = self.configuration();
            Ok::<_, io::Error>(TlsAcceptor::from(current).accept(stream).into_fallible().await)
        };
        // Boxed: a session that is encrypted must not carry the room for its handshake for ever.
        match timeout(TLS_HANDSHAKE_WITHIN, Box::pin(handshake)).await {
            Err(_) => Err(HandshakeError::Slow),
            Ok(handshake) => match handshake? {
                Ok(stream) => Ok(Socket::from(stream)),
                Err((error, stream)) => {
                    Box::pin(let_hear(stream)).await;
                    Err(HandshakeError::Failed(error))
                }
            },
        }
    }
}

/// Closes a connection whose handshake failed, so that the client hears why: what it has sent behind its part of the
/// handshake is read first, or closing would take back what it was told.
async fn let_hear(mut stream: Stream) {
    let hearing = async {
        stream.shutdown().await?;
        let (mut read, mut bytes) = (0, [0; 1 << 10]);
        while read < TLS_REFUSED_READ_BYTES_MAX {
            match stream.read(&mut bytes).await? {
                0 => break,
                more => read += more,
            }
        }
        Ok::<_, io::Error>(())
    };
    // Whoever does not hear it does not want to.
    let _ = timeout(TLS_REFUSED_CLOSES_WITHIN, hearing).await;
}

fn configuration(
    pem: Pem<'_>,
    clients: ClientCertificates,
    now_secs: i64,
) -> Result<Current, TlsError> {
    let chain = certificates("the node's certificate", pem.chain)?;
    let ends_secs = end_of(&chain[0])?;
    if ends_secs < now_secs {
        return Err(TlsError::Ended);
    }
    let what = "the node's key";
    let key =
        PrivateKeyDer::from_pem_slice(pem.key).map_err(|source| TlsError::Pem { what, source })?;
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(TlsError::Pair)?;
    let builder = match clients {
        ClientCertificates::None => builder.with_no_client_auth(),
        asked => {
            let authorities = pem.client_authorities.ok_or(TlsError::NoAuthority)?;
            let mut roots = RootCertStore::empty();
            for authority in certificates("the authorities of clients", authorities)? {
                roots.add(authority).map_err(TlsError::Authority)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match asked {
                ClientCertificates::Required => verifier,
                _ => verifier.allow_unauthenticated(),
            };
            // A list that has ended says nothing of what was revoked since, and who has none may have revoked anything.
            let verifier = match pem.client_revocations {
                Some(lists) => {
                    verifier.with_crls(revocations(lists)?).enforce_revocation_expiration()
                }
                None => verifier,
            };
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let configuration = builder.with_single_cert(chain, key).map_err(TlsError::Pair)?;
    let mut of_http = configuration.clone();
    of_http.alpn_protocols = HTTP_PROTOCOLS.iter().map(|name| name.to_vec()).collect();
    Ok(Current { configuration: Arc::new(configuration), of_http: Arc::new(of_http), ends_secs })
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|source| TlsError::Pem { what, source })?;
    if all.is_empty() { Err(TlsError::NoCertificate(what)) } else { Ok(all) }
}

fn revocations(pem: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let what = "the list of revoked certificates";
    let all: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|source| TlsError::Pem { what, source })?;
    if all.is_empty() { Err(TlsError::NoRevocations) } else { Ok(all) }
}

fn end_of(certificate: &CertificateDer<'_>) -> Result<i64, TlsError> {
    let (_, read) = X509Certificate::from_der(certificate).map_err(|_| TlsError::Certificate)?;
    Ok(read.validity().not_after.timestamp())
}
