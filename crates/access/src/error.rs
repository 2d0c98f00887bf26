//! Reasons why users cannot be read or changed.

use access_rules::OPERATOR;
use documents::{MalformedDocument, StoreError};
use passwords::PasswordError;
use scram::Hash;

use crate::limits::{ACCESS_RULES_MAX, AMQP_USERS_MAX};
use crate::permissions::PatternError;
use crate::user_name::USER_NAME_BYTES_MAX;

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Malformed(#[from] MalformedDocument),
    #[error("document {name:?} in {space} is of no use: {reason}")]
    Inconsistent { space: &'static str, name: String, reason: String },
    #[error("what is said of virtual hosts that are gone could not be taken away: {0}")]
    Clearing(#[from] StoreError),
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum UserError {
    #[error("a user has a name of 1 to {USER_NAME_BYTES_MAX} bytes, other than {OPERATOR}")]
    Name,
    #[error("user {0} is there already")]
    Exists(String),
    #[error("there is no user {0}")]
    NotFound(String),
    #[error(
        "user {0} is one of the node's settings (amqp-user or admin-user), and is changed there"
    )]
    OfSettings(String),
    #[error("user {user} has no credential for {}", .hash.mechanism())]
    NoCredential { user: String, hash: Hash },
    #[error("a user has at most 32 tags of 1 to 255 bytes")]
    Tags,
    #[error("there would be more than {ACCESS_RULES_MAX} rules")]
    TooManyRules,
    #[error("there are {AMQP_USERS_MAX} users already")]
    TooMany,
    #[error("there is no vhost {0}")]
    NoSuchVirtualHost(String),
    #[error("user {user} has no permissions in vhost {virtual_host}")]
    NoPermissions { user: String, virtual_host: String },
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error("it could not be stored: {0}")]
    Storage(#[from] StoreError),
    /// A stored document is unreadable.
    #[error("{0}")]
    Unreadable(String),
}

impl From<OpenError> for UserError {
    fn from(error: OpenError) -> Self {
        Self::Unreadable(error.to_string())
    }
}
