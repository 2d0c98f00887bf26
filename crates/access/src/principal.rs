//! Logged-in users.

use std::sync::Arc;
use std::time::Duration;

use access_rules::OPERATOR;

use crate::permissions::Grant;
use crate::users::Users;

/// A logged-in user. Users may change while they are connected: sessions reload their rights when [`Users::changes`]
/// fires.
#[derive(Clone, Debug)]
pub struct Principal {
    name: Arc<str>,
    users: Users,
    /// Named by a certificate or token: there need not be such a user.
    is_vouched_for: bool,
    /// Expiry of its credentials, in wall-clock time.
    ends_ms: Option<i64>,
}

impl Principal {
    pub(crate) fn new(name: &str, users: &Users) -> Self {
        let (name, users) = (Arc::from(name), users.clone());
        Self { name, users, is_vouched_for: false, ends_ms: None }
    }

    pub(crate) fn vouched_for(self) -> Self {
        Self { is_vouched_for: true, ..self }
    }

    pub(crate) fn until(self, ends_ms: i64) -> Self {
        Self { ends_ms: Some(ends_ms), ..self }
    }

    /// Remaining validity of its credentials, such as a certificate; `None`: unlimited.
    pub fn ends_in(&self) -> Option<Duration> {
        let left_ms = self.ends_ms?.saturating_sub(self.users.now_ms());
        Some(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)))
    }

    pub fn has_ended(&self) -> bool {
        self.ends_in().is_some_and(|left| left.is_zero())
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The principal of the operators' token.
    pub fn operator(users: &Users) -> Self {
        Self::new(OPERATOR, users)
    }

    /// Whether it may do everything: the operator, and super users of the node's settings.
    pub fn is_super(&self) -> bool {
        &*self.name == OPERATOR || self.users.is_super(&self.name)
    }

    /// Whether the user still exists, where one is required.
    pub fn exists(&self) -> bool {
        self.is_vouched_for || &*self.name == OPERATOR || self.users.exists(&self.name)
    }

    /// Its permissions in a virtual host; `None`: it may not open it.
    pub fn grant(&self, virtual_host: &str) -> Option<Grant> {
        self.users.grant(&self.name, virtual_host)
    }
}
