//! Authentication by SASL, and the requests that list and change access rules and credentials.

pub(crate) mod acls;
pub(crate) mod authentication;
pub(crate) mod scram_credentials;
