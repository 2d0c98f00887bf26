//! Log-in by a TLS client certificate.

use std::net::IpAddr;
use std::sync::Arc;

use super::LoginError;
use crate::certificate::{
    CertificateError, CertificateMapping, CertificateNames, CertifiedName, NamelessError,
};
use crate::principal::Principal;
use crate::user_name::{NameError, check_name};
use crate::users::Users;

#[derive(Debug, thiserror::Error)]
enum UnnamedError {
    #[error("its certificate cannot be read: {0}")]
    Certificate(#[from] CertificateError),
    #[error("its certificate names no user: {0}")]
    Nameless(#[from] NamelessError),
    #[error("the name that its certificate gives is none: {0}")]
    Name(#[from] NameError),
}

impl Users {
    /// Enables log-in by client certificates; called once, before clients connect.
    pub fn trust_certificates(&self, mapping: CertificateMapping) {
        let believed = self.0.certificates.set(mapping);
        debug_assert!(believed.is_ok(), "they were believed before");
    }

    /// The name given by a client's certificate, if certificates are enabled and it gives one.
    pub fn certify(&self, certificate: Option<&[u8]>, peer: IpAddr) -> Option<CertifiedName> {
        let (mapping, certificate) = (self.0.certificates.get()?, certificate?);
        match certified(mapping, certificate) {
            Ok(certified) => Some(certified),
            Err(error) => {
                self.note_refused(peer, &error.to_string());
                None
            }
        }
    }

    /// Logs in by a certificate; the name need not be a user.
    pub fn admit_certified(
        &self,
        certified: &CertifiedName,
        peer: IpAddr,
    ) -> Result<Principal, LoginError> {
        self.check_end(certified)?;
        let principal = self.admitted(&certified.name, peer)?;
        Ok(principal.vouched_for().until(certified.ends_ms))
    }

    /// Logs in by a certificate; the name must be a user.
    pub async fn log_in_certified(
        &self,
        certified: &CertifiedName,
        peer: IpAddr,
    ) -> Result<Principal, LoginError> {
        let logged_in = match self.check_end(certified) {
            Ok(()) => self.log_in_vouched(&certified.name, peer).await,
            Err(ended) => Err(ended),
        };
        match logged_in {
            Ok(principal) => Ok(principal.until(certified.ends_ms)),
            Err(error) => Err(self.refuse(&certified.name, peer, error).await),
        }
    }

    /// Checked again here: a resumed TLS connection presents its original certificate.
    fn check_end(&self, certified: &CertifiedName) -> Result<(), LoginError> {
        match self.now_ms() < certified.ends_ms {
            true => Ok(()),
            false => Err(LoginError::Ended { user: certified.name.to_string() }),
        }
    }
}

fn certified(
    mapping: &CertificateMapping,
    certificate: &[u8],
) -> Result<CertifiedName, UnnamedError> {
    let names = CertificateNames::from_der(certificate)?;
    let name = mapping.name_of(&names)?;
    check_name(&name)?;
    Ok(CertifiedName { name: Arc::from(name), ends_ms: names.ends_secs.saturating_mul(1_000) })
}
