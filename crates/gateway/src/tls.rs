//! Certificates of the node, and requirements on those of its clients.
//!
//! This module gets the contents of files; the files themselves belong to the node's operator. New contents become a
//! new configuration, with its own store of resumable sessions. A session of the old configuration cannot be resumed,
//! so that no client gets in that the new one would reject.

use std::io;
use std::sync::Arc;

use crate::limits::{
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

/// Whether clients must present certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientCertificates {
    /// Clients are not asked for one.
    #[default]
    None,
    /// Optional; a certificate that is presented must be valid.
    Optional,
    Required,
}

/// The contents of files in PEM.
#[derive(Clone, Copy, Debug)]
pub struct Pem<'a> {
    /// The node's certificate, then the rest of its chain.
    pub chain: &'a [u8],
    pub key: &'a [u8],
    /// Certificates of the authorities that sign clients' certificates.
    pub client_authorities: Option<&'a [u8]>,
    /// Certificate revocation lists, one of each authority (RFC 5280, section 5).
    pub client_revocations: Option<&'a [u8]>,
}

/// Reason why certificates cannot be used.
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

/// HTTP versions over TLS, negotiated by ALPN (RFC 7301), preferred ones first. A client that offers others only is
/// rejected; a client that offers none speaks HTTP/1.
pub const HTTP2: &[u8] = b"h2";
const HTTP_PROTOCOLS: [&[u8]; 3] = [HTTP2, b"http/1.1", b"http/1.0"];

/// TLS settings of the node's listeners. Clones share them.
#[derive(Clone, Debug)]
pub struct Tls {
    inner: Arc<Inner>,
    /// Whether HTTP versions are negotiated.
    of_http: bool,
}

#[derive(Debug)]
struct Inner {
    clients: ClientCertificates,
    current: RwLock<TlsConfiguration>,
    handshakes: Semaphore,
}

/// TLS settings for new connections.
#[derive(Debug)]
struct TlsConfiguration {
    configuration: Arc<ServerConfig>,
    /// The same for HTTP listeners, with ALPN.
    of_http: Arc<ServerConfig>,
    /// Expiry of the node's certificate, in seconds since the epoch.
    ends_secs: i64,
}

/// Reason of a failed handshake.
#[derive(Debug, Error)]
pub(crate) enum HandshakeError {
    #[error("the client did not finish its handshake within {TLS_HANDSHAKE_WITHIN:?}")]
    Slow,
    #[error("{0}")]
    Failed(#[from] io::Error),
}

impl HandshakeError {
    /// Whether the client violated TLS, rather than disconnecting or probing the port.
    pub(crate) fn is_tls_error(&self) -> bool {
        match self {
            Self::Slow => false,
            Self::Failed(error) => error.kind() == io::ErrorKind::InvalidData,
        }
    }
}

impl Tls {
    /// `now_secs`: seconds of the wall clock since the epoch.
    pub fn new(pem: Pem<'_>, clients: ClientCertificates, now_secs: i64) -> Result<Self, TlsError> {
        let current = RwLock::new(configuration(pem, clients, now_secs)?);
        let handshakes = Semaphore::new(TLS_HANDSHAKES_AT_ONCE_MAX);
        Ok(Self { inner: Arc::new(Inner { clients, current, handshakes }), of_http: false })
    }

    /// The same certificates for an HTTP listener, which negotiates the HTTP version.
    pub fn for_http(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), of_http: true }
    }

    /// Replaces the certificates for new connections. Unusable contents change nothing.
    pub fn replace(&self, pem: Pem<'_>, now_secs: i64) -> Result<(), TlsError> {
        let new = configuration(pem, self.inner.clients, now_secs)?;
        *self.inner.current.write() = new;
        Ok(())
    }

    /// Expiry of the node's certificate, in seconds since the epoch.
    pub fn ends_secs(&self) -> i64 {
        self.inner.current.read().ends_secs
    }

    fn configuration(&self) -> Arc<ServerConfig> {
        let current = self.inner.current.read();
        Arc::clone(if self.of_http { &current.of_http } else { &current.configuration })
    }

    /// Runs the server side of the handshake, limited in time and in the number in flight.
    pub(crate) async fn accept(&self, stream: Stream) -> Result<Socket, HandshakeError> {
        let handshake = async {
            let _permit = self.inner.handshakes.acquire().await.map_err(io::Error::other)?;
            let current = self.configuration();
            Ok::<_, io::Error>(TlsAcceptor::from(current).accept(stream).into_fallible().await)
        };
        // Boxed: an encrypted session must not keep the memory of its handshake.
        match timeout(TLS_HANDSHAKE_WITHIN, Box::pin(handshake)).await {
            Err(_) => Err(HandshakeError::Slow),
            Ok(handshake) => match handshake? {
                Ok(stream) => Ok(Socket::from(stream)),
                Err((error, stream)) => {
                    Box::pin(close_after_alert(stream)).await;
                    Err(HandshakeError::Failed(error))
                }
            },
        }
    }
}

/// Closes a connection whose handshake failed, so that the client receives the alert: further input is read first,
/// because closing with unread input would discard the alert.
async fn close_after_alert(mut stream: Stream) {
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
    // A client that does not read the alert in time is dropped.
    let _ = timeout(TLS_REFUSED_CLOSES_WITHIN, hearing).await;
}

fn configuration(
    pem: Pem<'_>,
    clients: ClientCertificates,
    now_secs: i64,
) -> Result<TlsConfiguration, TlsError> {
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
            // An expired list says nothing about later revocations, and an authority without a list may have revoked
            // any certificate.
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
    Ok(TlsConfiguration {
        configuration: Arc::new(configuration),
        of_http: Arc::new(of_http),
        ends_secs,
    })
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
