//! Test authorities, certificates signed by them, and clients that present these. The TLS is real.

#![expect(clippy::disallowed_types, reason = "of tests in the kernel's network, with its clock")]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway::Tls;
use gateway::tls::{ClientCertificates, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
pub use tokio_rustls::client::TlsStream;

/// A certificate authority.
#[derive(Debug)]
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, in PEM.
#[derive(Debug)]
pub struct CertifiedKey {
    pub chain: String,
    pub key: String,
}

/// The subject and validity of a certificate.
#[derive(Clone, Copy, Debug, Default)]
pub struct CertificateSubject<'a> {
    pub common: &'a [&'a str],
    pub organization: Option<&'a str>,
    pub dns: &'a [&'a str],
    /// `None`: long after the test.
    pub ends_in: Option<Duration>,
    /// The certificate has already expired.
    pub has_ended: bool,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate for a server on this machine.
    pub fn server(&self) -> CertifiedKey {
        self.pair(CertificateSubject {
            common: &["server"],
            dns: &["localhost"],
            ..CertificateSubject::default()
        })
    }

    /// A certificate for a client with this common name.
    pub fn named(&self, common: &str) -> CertifiedKey {
        self.pair(CertificateSubject { common: &[common], ..CertificateSubject::default() })
    }

    pub fn pair(&self, holder: CertificateSubject<'_>) -> CertifiedKey {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name = DistinguishedName::new();
        if let Some(organization) = holder.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        for common in holder.common {
            params.distinguished_name.push(DnType::CommonName, *common);
        }
        let dns = |name: &&str| SanType::DnsName((*name).try_into().expect("ASCII"));
        params.subject_alt_names = holder.dns.iter().map(dns).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        if let Some(left) = holder.ends_in {
            params.not_after = date_time_ymd(1970, 1, 1) + now + left;
        }
        if holder.has_ended {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        CertifiedKey { chain: certificate.pem(), key: key.serialize_pem() }
    }

    /// TLS of a node whose certificate this authority has signed, and which trusts `clients`.
    pub fn tls(&self, clients: &Authority, asked: ClientCertificates) -> Tls {
        let pair = self.server();
        let pem = Pem {
            chain: pair.chain.as_bytes(),
            key: pair.key.as_bytes(),
            client_authorities: Some(clients.pem.as_bytes()),
            client_revocations: None,
        };
        Tls::new(pem, asked, 0).expect("a good pair")
    }

    /// A client that trusts this authority, and presents its own certificate if it has one.
    pub fn client(&self, own: Option<&CertifiedKey>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("PEM");
        roots.add(root).expect("an authority");
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::from_pem_slice(pair.chain.as_bytes()).expect("PEM");
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
                builder.with_client_auth_cert(vec![chain], key).expect("a pair")
            }
        })
    }

    /// Connects to a server on this machine. A rejected client certificate is reported by the first read.
    pub async fn connect(
        &self,
        address: SocketAddr,
        own: Option<&CertifiedKey>,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.connect_speaking(&[], address, own).await
    }

    /// Like [`Self::connect`], with the protocols that the client offers (RFC 7301).
    pub async fn connect_speaking(
        &self,
        protocols: &[&[u8]],
        address: SocketAddr,
        own: Option<&CertifiedKey>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let mut client = ClientConfig::clone(&self.client(own));
        client.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsConnector::from(Arc::new(client)).connect(name, stream).await
    }
}
