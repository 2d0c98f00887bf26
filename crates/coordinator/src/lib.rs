//! Group coordination: membership of groups, and the assignment of partitions.
//!
//! Four protocols share the names of groups, and a group uses one at a time: the classic one, in which a member of
//! the group divides the partitions; KIP-848's, in which the group does; KIP-932's of share groups, whose members
//! settle records one by one; and KIP-1071's of Kafka Streams applications. Each is a pure state machine. Its
//! input is an event, a time and the existing topics. Its output is the new state, and the replies that are due.
//! It contains no lock, task, timer or socket, and no type of a wire protocol: gateways translate.
//!
//! * [`classic`], [`consumer`], [`share`], [`streams`]: the machines
//! * [`assignor`], [`assignment`]: assignment of partitions
//! * [`subscription`]: subscriptions of members, resolved to existing topics
//! * [`member`]: types for requests of members, of all protocols
//! * [`EpochGroup`]: the part that the three newer protocols share: members, epochs, deadlines
//! * [`MemberState`]: reconciliation of a member with its target, the same for partitions and tasks
//! * [`Coordinator`]: owns groups and their timers; [`Registry`]: the shell around the machines: locks, deadlines,
//!   delayed replies
//!
//! The stored form of a group: fields in `stored_fields`, each machine's in its `stored_group`, and the form of a
//! group of any protocol in `stored_group`.
//!
//! A node has a [`Coordinator`] for each term in which it leads some of the groups. Dropping it ends the waiting
//! requests without a reply. The state of its groups that outlives it is passed out as bytes whenever it changes
//! ([`keep_members`]), before members receive it. The next coordinator starts from these bytes
//! ([`Registry::restore`]).

mod alarms;
pub mod assignment;
pub mod assignor;
mod changed_groups;
pub mod classic;
mod client;
pub mod consumer;
mod coordinator;
mod epochs;
mod error;
mod group;
mod group_persistence;
mod limits;
mod members;
mod reconcile;
mod registry;
pub mod share;
mod stored_fields;
mod stored_group;
pub mod streams;
pub mod subscription;

pub use changed_groups::StoreReceipt;
pub use coordinator::Coordinator;
pub use epochs::EpochGroup;
pub use error::{ErrorKind, GroupError};
pub use group::Group;
pub use group_persistence::{NotCoordinator, keep_members};
pub use reconcile::{AssignmentSet, MemberState};
pub use registry::{GroupAccess, Registry, Totals, watch_deadlines};
pub use stored_fields::KeptError;
pub use stored_group::SessionTimeouts;

/// Types for requests of members, of all protocols.
pub mod member {
    pub use crate::classic::{Effects, Reply, Waiter};
    pub use crate::client::Client;
    pub use crate::members::{JOINING, LEAVING, PAUSING};
}

/// Ids and names. Each has its own memory: a group that kept a slice of a request would keep the whole request.
pub type Text = std::sync::Arc<str>;

/// A copy of a name.
#[must_use]
pub fn text(text: &str) -> Text {
    Text::from(text)
}
