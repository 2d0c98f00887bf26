//! Commands on users, access rules, quotas and certificates.

pub(crate) mod acl;
mod password;
pub(crate) mod quota;
pub(crate) mod tls;
pub(crate) mod user;
