//! Reasons of rejected changes, as data. Protocols add their codes and texts.

use bytes::Bytes;
use documents::StoreError;
use values::Value;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntityKind {
    Exchange,
    Queue,
}

/// The exchange or queue that a refusal is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entity {
    pub kind: EntityKind,
    pub name: String,
    pub vhost: String,
}

impl Entity {
    pub fn exchange(name: &str, vhost: &str) -> Self {
        Self { kind: EntityKind::Exchange, name: name.to_owned(), vhost: vhost.to_owned() }
    }

    pub fn queue(name: &str, vhost: &str) -> Self {
        Self { kind: EntityKind::Queue, name: name.to_owned(), vhost: vhost.to_owned() }
    }
}

impl std::fmt::Display for Entity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            EntityKind::Exchange => "exchange",
            EntityKind::Queue => "queue",
        };
        write!(f, "{kind} '{}' in vhost '{}'", self.name, self.vhost)
    }
}

/// Reason why a change was rejected.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ChangeError {
    /// The default exchange cannot be declared, deleted or bound.
    #[error("operation not permitted on the default exchange")]
    DefaultExchange,
    #[error("the name of {0} begins with amq., which is reserved")]
    ReservedName(Entity),
    /// A predeclared exchange cannot be deleted.
    #[error("deletion of system {0} not allowed")]
    SystemExchange(Entity),
    #[error("the default vhost cannot be deleted")]
    DefaultVirtualHost,
    #[error("refusing to delete virtual host '{0}' because it is protected from deletion")]
    ProtectedVirtualHost(String),
    #[error("no {0}")]
    NotFound(Entity),
    #[error("vhost '{0}' is deleted")]
    VirtualHostGone(String),
    /// The queue has another owner.
    #[error("{0} is locked by its owner")]
    Locked(Entity),
    #[error("{0} in use")]
    InUse(Entity),
    #[error("{0} not empty")]
    NotEmpty(Entity),
    #[error(transparent)]
    Binding(#[from] BindingError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Reason why an exchange rejects a binding: its type reads key or arguments otherwise.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum BindingError {
    #[error("x-match is none of all, any, all-with-x and any-with-x: {0:?}")]
    MatchValue(Bytes),
    #[error("x-match is no string: {0:?}")]
    MatchType(Value),
    #[error("the key is to be empty: {0:?}")]
    KeyNotEmpty(String),
    #[error("the key is to be an integer: {0:?}")]
    WeightNotInteger(String),
    #[error("the key is to be greater than 0")]
    WeightNotPositive,
    #[error("the key is to be less than 4294967296: {0}")]
    WeightTooLarge(String),
    /// An exchange that chooses among queues cannot be bound to an exchange.
    #[error("the exchange leads to queues only")]
    QueuesOnly,
}

/// Reason why a message cannot be routed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RouteError {
    #[error("no {0}")]
    NotFound(Entity),
    /// Only other exchanges publish to it.
    #[error("cannot publish to internal {0}")]
    Internal(Entity),
}
