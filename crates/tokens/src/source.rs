//! Reading the document with an issuer's keys: a file, or a request over TLS.
//!
//! Each request has a connection of its own, and redirects are not followed. The node connects to the address in its settings
//! or, where they have none, to the one that the issuer names for its keys; nobody else decides where it connects to.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;

use base::limits::{TOKEN_KEYS_BYTES_MAX, TOKEN_KEYS_READ_WITHIN};
use bytes::Bytes;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tasks::Task;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use world::{Net, Workers};

use crate::keys::{Keys, KeysError};
use crate::options::{KeySource, OptionsError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("{path} cannot be read: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path} has no certificates: {source}", path = path.display())]
    Authorities { path: PathBuf, source: pem::Error },
    #[error("nobody is believed to be the issuer: {0}")]
    NoAuthority(String),
    #[error("the host has no name that a certificate could have: {0}")]
    Host(#[from] InvalidDnsNameError),
    #[error("no connection: {0}")]
    Connect(#[from] io::Error),
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("no request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("the answer has status {0}")]
    Status(StatusCode),
    #[error("the answer is cut off, or has more than {TOKEN_KEYS_BYTES_MAX} bytes")]
    Body,
    #[error("no answer within {TOKEN_KEYS_READ_WITHIN:?}")]
    Slow,
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("what the issuer says of itself cannot be read: {0}")]
    Configuration(serde_json::Error),
    #[error("another issuer answers: {0:?}")]
    OtherIssuer(String),
    #[error("the issuer names no address of its keys that can be used: {said:?} {error}")]
    KeysAddress { said: String, error: OptionsError },
    #[error("the task that reads it ended early")]
    Task,
}

pub(crate) async fn read(
    source: &KeySource,
    net: Net,
    workers: &Workers,
) -> Result<Keys, SourceError> {
    let document = match source {
        KeySource::File(path) => read_file(path.clone(), workers).await?,
        KeySource::Https { host, port, path, authorities } => {
            fetch(host, *port, path, authorities, net, workers).await?
        }
        KeySource::Discovered { issuer, authorities } => {
            discover(issuer, authorities, net, workers).await?
        }
    };
    Ok(Keys::parse(&document)?)
}

/// What an issuer says of itself.
#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

async fn discover(
    issuer: &str,
    authorities: &Option<PathBuf>,
    net: Net,
    workers: &Workers,
) -> Result<Vec<u8>, SourceError> {
    let of_itself = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let (host, port, path) = address(&of_itself)?;
    let document = fetch(&host, port, &path, authorities, net, workers).await?;
    let said: Configuration =
        serde_json::from_slice(&document).map_err(SourceError::Configuration)?;
    if said.issuer != issuer {
        return Err(SourceError::OtherIssuer(said.issuer));
    }
    let (host, port, path) = address(&said.jwks_uri)?;
    fetch(&host, port, &path, authorities, net, workers).await
}

/// Host, port, and path with query, of an address that is encrypted.
fn address(said: &str) -> Result<(String, u16, String), SourceError> {
    let error = match KeySource::parse(said, None) {
        Ok(KeySource::Https { host, port, path, .. }) => return Ok((host, port, path)),
        Ok(_) => OptionsError::Scheme,
        Err(error) => error,
    };
    Err(SourceError::KeysAddress { said: said.to_owned(), error })
}

async fn fetch(
    host: &str,
    port: u16,
    path: &str,
    authorities: &Option<PathBuf>,
    net: Net,
    workers: &Workers,
) -> Result<Vec<u8>, SourceError> {
    let roots = roots(authorities.clone(), workers).await?;
    let asking = ask(host, port, path, roots, net);
    let asked = timeout(TOKEN_KEYS_READ_WITHIN, Box::pin(asking)).await;
    Ok(asked.map_err(|_| SourceError::Slow)??.to_vec())
}

async fn read_file(path: PathBuf, workers: &Workers) -> Result<Vec<u8>, SourceError> {
    let reading = workers.blocking(Task::TokenKeyFile, move || read_whole(&path));
    reading.await.map_err(|_| SourceError::Task)?
}

fn read_whole(path: &Path) -> Result<Vec<u8>, SourceError> {
    let unreadable = |source| SourceError::File { path: path.into(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(TOKEN_KEYS_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > TOKEN_KEYS_BYTES_MAX {
        true => Err(SourceError::Body),
        false => Ok(bytes),
    }
}

/// Who is believed to be a host. Read each time, which is seldom: certificates of authorities change, too.
async fn roots(
    authorities: Option<PathBuf>,
    workers: &Workers,
) -> Result<RootCertStore, SourceError> {
    let reading = workers.blocking(Task::TokenKeyFile, move || {
        let mut roots = RootCertStore::empty();
        let Some(path) = authorities else {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            let reason = || match found.errors.first() {
                Some(error) => error.to_string(),
                None => "this machine has no certificates of authorities".to_owned(),
            };
            return match roots.is_empty() {
                true => Err(SourceError::NoAuthority(reason())),
                false => Ok(roots),
            };
        };
        let pem = read_whole(&path)?;
        let wrong = |source| SourceError::Authorities { path: path.clone(), source };
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.map_err(wrong)?)?;
        }
        match roots.is_empty() {
            true => Err(wrong(pem::Error::NoItemsFound)),
            false => Ok(roots),
        }
    });
    reading.await.map_err(|_| SourceError::Task)?
}

async fn ask(
    host: &str,
    port: u16,
    path: &str,
    roots: RootCertStore,
    net: Net,
) -> Result<Bytes, SourceError> {
    let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())?;
    let (bracketed, at) = match name {
        ServerName::IpAddress(_) if host.contains(':') => {
            (format!("[{host}]"), format!("[{host}]:{port}"))
        }
        _ => (host.to_owned(), format!("{host}:{port}")),
    };
    let stream = net.connect(&at).await?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path)
        .header(HOST, if port == 443 { bracketed } else { at })
        .header(ACCEPT, "application/json")
        .header(USER_AGENT, concat!("postroad/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())?;
    let asking = pin!(async {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(SourceError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), TOKEN_KEYS_BYTES_MAX as usize);
        Ok(body.collect().await.map_err(|_| SourceError::Body)?.to_bytes())
    });
    // The connection is driven by whoever waits for its answer.
    match select(asking, pin!(connection)).await {
        Either::Left((answer, _)) => answer,
        Either::Right((_, asking)) => asking.await,
    }
}
