//! Reading the document with an issuer's keys: a file, or a request over TLS.
//!
//! Each request opens its own connection, and redirects are not followed. The node connects to the address in its
//! settings or, with discovery, to the one in the issuer's metadata, and to no other.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::limits::{TOKEN_KEYS_BYTES_MAX, TOKEN_KEYS_READ_WITHIN};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::ACCEPT;
use hyper::{Request, StatusCode};
use outbound::{Address, AuthoritiesError, Connection, RequestError, read_authorities};
use rustls::RootCertStore;
use serde::Deserialize;
use tasks::Task;
use tokio::time::timeout;
use world::{Net, Workers};

use crate::keys::{Keys, KeysError};
use crate::options::{KeySource, OptionsError};

#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("{path} cannot be read: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    #[error(transparent)]
    Ask(#[from] RequestError),
    #[error("the answer has status {0}")]
    Status(StatusCode),
    #[error("{path} has more than {TOKEN_KEYS_BYTES_MAX} bytes", path = path.display())]
    TooLong { path: PathBuf },
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
        KeySource::Https { address, authorities } => {
            fetch(address, authorities, net, workers).await?
        }
        KeySource::Discovered { issuer, authorities } => {
            discover(issuer, authorities, net, workers).await?
        }
    };
    Ok(Keys::parse(&document)?)
}

/// Provider metadata of an issuer.
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
    let document = fetch(&encrypted(&of_itself)?, authorities, net, workers).await?;
    let said: Configuration =
        serde_json::from_slice(&document).map_err(SourceError::Configuration)?;
    if said.issuer != issuer {
        return Err(SourceError::OtherIssuer(said.issuer));
    }
    fetch(&encrypted(&said.jwks_uri)?, authorities, net, workers).await
}

fn encrypted(said: &str) -> Result<Address, SourceError> {
    let error = match KeySource::parse(said, None) {
        Ok(KeySource::Https { address, .. }) => return Ok(address),
        Ok(_) => OptionsError::Scheme,
        Err(error) => error,
    };
    Err(SourceError::KeysAddress { said: said.to_owned(), error })
}

async fn fetch(
    address: &Address,
    authorities: &Option<PathBuf>,
    net: Net,
    workers: &Workers,
) -> Result<Vec<u8>, SourceError> {
    // Read at each fetch: fetches are rare, and CA certificates change, too.
    let believed = read_authorities(authorities.clone(), workers, Task::TokenKeyFile).await?;
    let asking = request_keys(address, believed, net);
    let asked = timeout(TOKEN_KEYS_READ_WITHIN, Box::pin(asking)).await;
    Ok(asked.map_err(|_| SourceError::Slow)??.to_vec())
}

async fn request_keys(
    address: &Address,
    believed: RootCertStore,
    net: Net,
) -> Result<Bytes, SourceError> {
    let mut connection = Connection::open(address, Some(believed), net).await?;
    let request = Request::get(&address.path)
        .header(ACCEPT, "application/json")
        .body(Full::default())
        .map_err(RequestError::from)?;
    let answer = connection.send(request, TOKEN_KEYS_BYTES_MAX as usize).await?;
    match answer.status() {
        StatusCode::OK => Ok(answer.into_body()),
        status => Err(SourceError::Status(status)),
    }
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
        true => Err(SourceError::TooLong { path: path.into() }),
        false => Ok(bytes),
    }
}
