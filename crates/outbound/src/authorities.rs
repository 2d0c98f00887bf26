//! Who is believed to be a host.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use tasks::Task;
use world::Workers;

/// A file of certificates that is longer is not read.
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

/// Certificates in PEM of a file; `None`: those that the machine believes. `task` is the one that reads them, off the
/// threads that serve sockets.
pub async fn read_authorities(
    file: Option<PathBuf>,
    workers: &Workers,
    task: Task,
) -> Result<RootCertStore, AuthoritiesError> {
    let reading = workers.blocking(task, move || match file {
        Some(path) => of_file(path),
        None => of_machine(),
    });
    reading.await.map_err(|_| AuthoritiesError::Task)?
}

fn of_machine() -> Result<RootCertStore, AuthoritiesError> {
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

fn of_file(path: PathBuf) -> Result<RootCertStore, AuthoritiesError> {
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
    fn a_file_has_certificates_or_is_refused_with_its_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ca.pem");
        let error = |path: &Path| of_file(path.into()).expect_err("refused").to_string();
        assert!(error(&path).contains("cannot be read"));
        std::fs::write(&path, "no certificate").expect("written");
        assert!(error(&path).contains("ca.pem has no certificates"));
        std::fs::write(&path, Authority::new().pem()).expect("written");
        assert_eq!(of_file(path.clone()).expect("read").len(), 1);
        std::fs::write(&path, vec![b'\n'; FILE_BYTES_MAX as usize + 1]).expect("written");
        assert!(error(&path).contains("more than"));
    }
}
