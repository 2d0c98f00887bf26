//! Principal of a client by its TLS client certificate: the setting `tls-principal`.
//!
//! TLS has verified by now that a client authority signed the certificate and that the client has its key. What
//! remains is a name: [`names`] reads those in the certificate, [`mapping`] picks one. A client whose certificate
//! gives no name may still log in by other means.
//!
//! For Kafka and HTTP the name need not be a user, since rules may name any principal. AMQP's EXTERNAL accepts users
//! only, as RabbitMQ does. Either log-in ends with the certificate.

use std::net::IpAddr;
use std::sync::Arc;

use access_rules::OPERATOR;

use crate::login::LoginError;
use crate::principal::Principal;
use crate::users::{USER_NAME_BYTES_MAX, Users};

pub mod mapping;
pub mod names;

pub use mapping::{CertificateMapping, MappingError, NamelessError};
pub use names::{CertificateError, CertificateNames};

/// Name given by a certificate, and its expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertifiedName {
    name: Arc<str>,
    ends_ms: i64,
}

/// Reason why an externally vouched name is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    #[error("it is empty")]
    Empty,
    #[error("it has more than {USER_NAME_BYTES_MAX} bytes")]
    Long,
    #[error("it has control characters")]
    Control,
    #[error("no user has the name")]
    Reserved,
}

/// Whether an external authority may vouch for this name. The operator's name has a log-in of its own; `*` is every
/// user in rules.
pub(crate) fn check_name(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Empty),
        OPERATOR | "*" => Err(NameError::Reserved),
        long if long.len() > USER_NAME_BYTES_MAX => Err(NameError::Long),
        name if name.chars().any(char::is_control) => Err(NameError::Control),
        _ => Ok(()),
    }
}

impl CertifiedName {
    pub fn name(&self) -> &str {
        &self.name
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_and_malformed_names_are_rejected() {
        for (name, expected) in [
            ("app", Ok(())),
            ("CN=app,O=Postroad", Ok(())),
            ("名前", Ok(())),
            ("", Err(NameError::Empty)),
            (OPERATOR, Err(NameError::Reserved)),
            ("*", Err(NameError::Reserved)),
            ("a\nb", Err(NameError::Control)),
            ("a\0", Err(NameError::Control)),
            ("\u{9b}31m", Err(NameError::Control)),
        ] {
            assert_eq!(check_name(name), expected, "{name:?}");
        }
        assert_eq!(check_name(&"x".repeat(USER_NAME_BYTES_MAX)), Ok(()));
        assert_eq!(check_name(&"x".repeat(USER_NAME_BYTES_MAX + 1)), Err(NameError::Long));
    }
}
