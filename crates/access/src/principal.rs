//! Somebody who is logged in.

use std::sync::Arc;

use crate::permissions::Grant;
use crate::users::{OPERATOR, Users};

/// A user who is logged in. Users change while they are connected: a session asks again for what it
/// holds when [`Users::changes`] says so.
#[derive(Clone, Debug)]
pub struct Principal {
    name: Arc<str>,
    users: Users,
}

impl Principal {
    pub(crate) fn new(name: &str, users: &Users) -> Self {
        Self { name: Arc::from(name), users: users.clone() }
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

    /// Whether the user is still there.
    pub fn exists(&self) -> bool {
        &*self.name == OPERATOR || self.users.exists(&self.name)
    }

    /// What it may do in a virtual host; `None`: not even open it.
    pub fn grant(&self, virtual_host: &str) -> Option<Grant> {
        self.users.grant(&self.name, virtual_host)
    }
}
