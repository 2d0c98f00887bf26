//! Permissions of a user in a virtual host, as in RabbitMQ (`rabbit_auth_backend_internal`).

use serde::{Deserialize, Serialize};

/// Regular expressions for names of entities, one for each kind of access.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permissions {
    pub configure: String,
    pub write: String,
    pub read: String,
}

impl Permissions {
    pub fn everything() -> Self {
        let all = || ".*".to_owned();
        Self { configure: all(), write: all(), read: all() }
    }
}
