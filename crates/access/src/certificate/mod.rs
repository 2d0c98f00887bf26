//! Who a client is by the certificate that it was let in with: the setting `tls-principal`.
//!
//! TLS has checked by now that an authority of clients signed it, and that the client has its key. What is left is a
//! name: [`names`] reads what the certificate says of its holder, [`mapping`] makes one name of it. Whatever names
//! nobody is nobody, who may still log in by other means.
//!
//! A name of a certificate need not be a user for Kafka and HTTP, where rules name whom they like; AMQP's EXTERNAL takes
//! users only, as RabbitMQ does. Either ends with the certificate.

use std::net::IpAddr;
use std::sync::Arc;

use crate::login::LoginError;
use crate::principal::Principal;
use crate::users::{OPERATOR, USER_NAME_BYTES_MAX, Users};

pub mod mapping;
pub mod names;

pub use mapping::{CertificateMapping, MappingError, NamelessError};
pub use names::{CertificateError, CertificateNames};

/// Whom a certificate names, and until when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certified {
    name: Arc<str>,
    ends_ms: i64,
}

/// Why a name that somebody else vouches for is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    #[error("it is empty")]
    Empty,
    #[error("it has more than {USER_NAME_BYTES_MAX} bytes")]
    Long,
    #[error("it has control characters")]
    Control,
    #[error("it is a name that nobody has")]
    Reserved,
}

/// Whether somebody may be called so whom this node has not made itself. The operator's name is a log-in of its own,
/// which nobody else can vouch for; `*` is everybody in rules.
pub(crate) fn check_name(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Empty),
        OPERATOR | "*" => Err(NameError::Reserved),
        long if long.len() > USER_NAME_BYTES_MAX => Err(NameError::Long),
        name if name.chars().any(char::is_control) => Err(NameError::Control),
        _ => Ok(()),
    }
}

impl Certified {
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Debug, thiserror::Error)]
enum UnnamedError {
    #[error("its certificate cannot be read: {0}")]
    Certificate(#[from] CertificateError),
    #[error("its certificate names nobody: {0}")]
    Nameless(#[from] NamelessError),
    #[error("the name that its certificate gives is none: {0}")]
    Name(#[from] NameError),
}

impl Users {
    /// Has certificates of clients say who they are; once, before anybody connects.
    pub fn believe_certificates(&self, mapping: CertificateMapping) {
        let believed = self.0.certificates.set(mapping);
        debug_assert!(believed.is_ok(), "they were believed before");
    }

    /// Whom the certificate of a client names, if these count here and it names somebody.
    pub fn certify(&self, certificate: Option<&[u8]>, peer: IpAddr) -> Option<Certified> {
        let (mapping, certificate) = (self.0.certificates.get()?, certificate?);
        match certified(mapping, certificate) {
            Ok(certified) => Some(certified),
            Err(error) => {
                self.note_refused(peer, &error.to_string());
                None
            }
        }
    }

    /// Lets somebody in by a certificate, whether there is such a user or not.
    pub fn admit_certified(
        &self,
        certified: &Certified,
        peer: IpAddr,
    ) -> Result<Principal, LoginError> {
        self.check_end(certified)?;
        let principal = self.admitted(&certified.name, peer)?;
        Ok(principal.vouched_for().until(certified.ends_ms))
    }

    /// Logs a user in by a certificate. There must be one.
    pub async fn log_in_certified(
        &self,
        certified: &Certified,
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

    /// A connection that was resumed shows the certificate of before.
    fn check_end(&self, certified: &Certified) -> Result<(), LoginError> {
        match self.now_ms() < certified.ends_ms {
            true => Ok(()),
            false => Err(LoginError::Ended { user: certified.name.to_string() }),
        }
    }
}

fn certified(mapping: &CertificateMapping, certificate: &[u8]) -> Result<Certified, UnnamedError> {
    let names = CertificateNames::of_der(certificate)?;
    let name = mapping.name_of(&names)?;
    check_name(&name)?;
    Ok(Certified { name: Arc::from(name), ends_ms: names.ends_secs.saturating_mul(1_000) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_called_as_the_operator_or_as_everybody_or_as_nothing() {
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
