//! Certificate authorities that vouch for servers.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use tasks::Task;
use world::Workers;

/// Size limit of a certificate file.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum AuthoritiesError {
    #[error("{path} cannot be read: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path} has more than {FILE_BYTES_MAX} bytes", path = path.display())]
    TooLong { path: PathBuf },
    #[error("{path} has no certificates: {source}", path = path.display())]
    Content { path: PathBuf, source: pem::Error },
    #[error("no authority is believed: {0}")]
    None(String),
    #[error("a certificate cannot be used: {0}")]
    Certificate(#[from] rustls::Error),
    #[error("the task that reads it ended early")]
    Task,
}

/// Reads CA certificates from a PEM file, or from the system's trust store where there is no file. `task` names the
/// blocking task that reads them, off the threads that serve sockets.
pub async fn read_authorities(
    file: Option<PathBuf>,
    workers: &Workers,
    task: Task,
) -> Result<RootCertStore, AuthoritiesError> {
    let reading = workers.blocking(task, move || match file {
        Some(path) => read_file(path),
        None => system_roots(),
    });
    reading.await.map_err(|_| AuthoritiesError::Task)?
}

fn system_roots() -> Result<RootCertStore, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    let reason = || match found.errors.first() {
        Some(error) => error.to_string(),
        None => "this machine has no certificates of authorities".to_owned(),
    };
    match roots.is_empty() {
        true => Err(AuthoritiesError::None(reason())),
        false => Ok(roots),
    }
}

fn read_file(path: PathBuf) -> Result<RootCertStore, AuthoritiesError> {
    let pem = read_whole(&path)?;
    let mut roots = RootCertStore::empty();
    let wrong = |source| AuthoritiesError::Content { path: path.clone(), source };
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        roots.add(certificate.map_err(wrong)?)?;
    }
    match roots.is_empty() {
        true => Err(wrong(pem::Error::NoItemsFound)),
        false => Ok(roots),
    }
}

fn read_whole(path: &Path) -> Result<Vec<u8>, AuthoritiesError> {
    let unreadable = |source| AuthoritiesError::File { path: path.into(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(AuthoritiesError::TooLong { path: path.into() }),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use test_tls::Authority;

    use super::*;

    #[test]
    fn file_without_certificates_is_rejected_with_its_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ca.pem");
        let error = |path: &Path| read_file(path.into()).expect_err("refused").to_string();
        assert!(error(&path).contains("cannot be read"));
        std::fs::write(&path, "no certificate").expect("written");
        assert!(error(&path).contains("ca.pem has no certificates"));
        std::fs::write(&path, Authority::new().pem()).expect("written");
        assert_eq!(read_file(path.clone()).expect("read").len(), 1);
        std::fs::write(&path, vec![b'\n'; FILE_BYTES_MAX as usize + 1]).expect("written");
        assert!(error(&path).contains("more than"));
    }
}
