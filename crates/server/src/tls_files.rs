//! Files with the node's certificate: read at start, and again when they change.
//!
//! A renewal replaces files, or the target of a link (Kubernetes). Therefore contents are compared, every
//! [`LOOKS_EVERY`] and on SIGHUP. Unusable files are logged once, and the former certificate stays in use.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gateway::Tls;
use gateway::tls::{ClientCertificates, Pem, TlsError};
use tasks::Task;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::time::sleep;
use world::{Clock, Workers};

use crate::settings::tls::{TlsPaths, TlsSettings};

const LOOKS_EVERY: Duration = Duration::from_secs(10);
/// Size limit of a file: PEM files with certificates are smaller.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Others may not read the key, and only its owner may write it. A group may read it, because Kubernetes provides
/// secrets that way.
const MODE_REFUSED: u32 = 0o027;

#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFilesError {
    #[error("{path} cannot be read: {source}", path = path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path} has more than {FILE_BYTES_MAX} bytes", path = path.display())]
    TooLarge { path: PathBuf },
    #[error(
        "the key in {path} may be read or written by others than its owner (mode {mode:o}): chmod 600 it",
        path = path.display()
    )]
    KeyIsOpen { path: PathBuf, mode: u32 },
    #[error("{cert} and {key}: {error}", cert = paths.cert.display(), key = paths.key.display())]
    Unusable { paths: Box<TlsPaths>, error: TlsError },
}

/// Contents of the files.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    client_crl: Option<Vec<u8>>,
}

impl Contents {
    fn read(paths: &TlsPaths) -> Result<Self, TlsFilesError> {
        let read_some = |path: &Option<PathBuf>| {
            path.as_deref().map(|path| read(path).map(|(bytes, _)| bytes)).transpose()
        };
        Ok(Self {
            cert: read(&paths.cert)?.0,
            key: read_key(&paths.key)?,
            client_ca: read_some(&paths.client_ca)?,
            client_crl: read_some(&paths.client_crl)?,
        })
    }

    fn pem(&self) -> Pem<'_> {
        Pem {
            chain: &self.cert,
            key: &self.key,
            client_authorities: self.client_ca.as_deref(),
            client_revocations: self.client_crl.as_deref(),
        }
    }
}

fn read(path: &Path) -> Result<(Vec<u8>, fs::Permissions), TlsFilesError> {
    let unreadable = |source| TlsFilesError::Unreadable { path: path.into(), source };
    let file = File::open(path).map_err(unreadable)?;
    let permissions = file.metadata().map_err(unreadable)?.permissions();
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(TlsFilesError::TooLarge { path: path.into() }),
        false => Ok((bytes, permissions)),
    }
}

fn read_key(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    let (bytes, permissions) = read(path)?;
    let mode = permissions.mode() & 0o777;
    match mode & MODE_REFUSED {
        0 => Ok(bytes),
        _ => Err(TlsFilesError::KeyIsOpen { path: path.into(), mode }),
    }
}

/// The files, and their contents at the last look.
pub(crate) struct TlsFiles {
    paths: TlsPaths,
    tls: Tls,
    clock: Arc<dyn Clock>,
    /// Last contents, usable or not; `None`: the files could not be read.
    looked_at: Option<Contents>,
}

impl TlsFiles {
    pub(crate) fn open(
        settings: &TlsSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TlsFilesError> {
        let (paths, clients): (_, ClientCertificates) = (settings.files.clone(), settings.clients);
        let contents = Contents::read(&paths)?;
        let tls = Tls::new(contents.pem(), clients, now_secs(&*clock));
        let tls = tls.map_err(|error| unusable(&paths, error))?;
        Ok(Self { paths, tls, clock, looked_at: Some(contents) })
    }

    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    /// Follows the files until the node stops.
    pub(crate) async fn follow(
        mut self,
        mut hangup: Signal,
        workers: Workers,
        mut stopping: watch::Receiver<bool>,
    ) {
        loop {
            let asked = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                Some(()) = hangup.recv() => true,
                () = sleep(LOOKS_EVERY) => false,
            };
            let paths = self.paths.clone();
            let read =
                workers.blocking(Task::CertificateFiles, move || Contents::read(&paths)).await;
            if let Ok(read) = read {
                self.reload(read, asked);
            }
        }
    }

    fn reload(&mut self, read: Result<Contents, TlsFilesError>, asked: bool) {
        let taken = match read {
            Ok(contents) if self.looked_at.as_ref() == Some(&contents) => {
                if asked {
                    tracing::info!("the certificate is as it was");
                }
                return;
            }
            Ok(contents) => {
                let taken = self.tls.replace(contents.pem(), now_secs(&*self.clock));
                self.looked_at = Some(contents);
                taken.map_err(|error| unusable(&self.paths, error))
            }
            // Logged once, not each time.
            Err(_) if self.looked_at.is_none() && !asked => return,
            Err(error) => {
                self.looked_at = None;
                Err(error)
            }
        };
        match taken {
            Ok(()) => tracing::info!("the certificate has changed: new connections get it"),
            Err(error) => {
                tracing::error!(%error, "the new certificate is not used, the one before goes on");
            }
        }
    }
}

fn unusable(paths: &TlsPaths, error: TlsError) -> TlsFilesError {
    TlsFilesError::Unusable { paths: Box::new(paths.clone()), error }
}

fn now_secs(clock: &dyn Clock) -> i64 {
    clock.now_ms() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key.pem");
        fs::write(&path, "a key").expect("is written");
        for (mode, is_refused) in [
            (0o600, false),
            (0o400, false),
            (0o440, false),
            (0o644, true),
            (0o604, true),
            (0o660, true),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("is set");
            let refused =
                read_key(&path).is_err_and(|error| error.to_string().contains("chmod 600"));
            assert_eq!(refused, is_refused, "{mode:o}");
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cert.pem");
        fs::write(&path, vec![b'x'; FILE_BYTES_MAX as usize + 1]).expect("is written");
        assert!(matches!(read(&path), Err(TlsFilesError::TooLarge { .. })));
        let missing = read(&folder.path().join("none.pem")).map(drop).expect_err("is not there");
        assert!(missing.to_string().contains("none.pem"), "{missing}");
    }
}
