//! Rules of access as data, in the words of Kafka and RabbitMQ. Operators write them, and nodes store and apply them
//! (crate `access`). Pure.
//!
//! * [`acl`]: Kafka's access rules, and filters of them
//! * [`quota`]: entities and kinds of quotas
//! * [`permissions`]: RabbitMQ's permissions of a user in a virtual host

pub mod acl;
pub mod permissions;
pub mod quota;

pub use permissions::Permissions;

/// Principal of clients with the operators' token; no user has this name.
pub const OPERATOR: &str = "_operator";
