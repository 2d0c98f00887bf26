//! Principal of a client by its TLS client certificate: the setting `tls-principal`.
//!
//! TLS has verified by now that a client authority signed the certificate and that the client has its key. What
//! remains is a name: [`names`] reads those in the certificate, [`mapping`] picks one. A client whose certificate
//! gives no name may still log in by other means ([`crate::login`]).
//!
//! For Kafka and HTTP the name need not be a user, since rules may name any principal. AMQP's EXTERNAL accepts users
//! only, as RabbitMQ does. Either log-in ends with the certificate.

use std::sync::Arc;

pub mod mapping;
pub mod names;

pub use mapping::{CertificateMapping, MappingError, NamelessError};
pub use names::{CertificateError, CertificateNames};

/// Name given by a certificate, and its expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertifiedName {
    pub(crate) name: Arc<str>,
    pub(crate) ends_ms: i64,
}

impl CertifiedName {
    pub fn name(&self) -> &str {
        &self.name
    }
}
