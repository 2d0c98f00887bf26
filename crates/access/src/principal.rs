//! Somebody who is logged in.

use std::sync::Arc;
use std::time::Duration;

use crate::permissions::Grant;
use crate::users::{OPERATOR, Users};

/// A user who is logged in. Users change while they are connected: a session asks again for what it
/// holds when [`Users::changes`] says so.
#[derive(Clone, Debug)]
pub struct Principal {
    name: Arc<str>,
    users: Users,
    /// Somebody else says that this is its name: there need be no such user.
    is_vouched_for: bool,
    /// When what it logged in by ends, by the wall clock.
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

    /// For how long what it logged in by is good: a certificate, for one. `None`: for ever.
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

    /// Whoever has the operators' token.
    pub fn operator(users: &Users) -> Self {
        Self::new(OPERATOR, users)
    }

    /// Whether it may do everything by Kafka: the operator, and those whom the node's settings name.
    pub fn is_super(&self) -> bool {
        &*self.name == OPERATOR || self.users.is_super(&self.name)
    }

    /// Whether the user is still there, where there must be one.
    pub fn exists(&self) -> bool {
        self.is_vouched_for || &*self.name == OPERATOR || self.users.exists(&self.name)
    }

    /// What it may do in a virtual host; `None`: not even open it.
    pub fn grant(&self, virtual_host: &str) -> Option<Grant> {
        self.users.grant(&self.name, virtual_host)
    }
}
