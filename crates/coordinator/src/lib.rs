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
//! * [`member`]: parts that members of all protocols have in common
//! * [`EpochGroup`]: the part that the three newer protocols share: members, epochs, deadlines
//! * [`MemberState`]: reconciliation of a member with its target, the same for partitions and tasks
//! * [`Coordinator`]: owns groups and their timers; [`Registry`]: the shell around the machines: locks, deadlines,
//!   delayed replies
//!
//! A node has a [`Coordinator`] for each term in which it leads some of the groups. Dropping it ends the waiting
//! requests without a reply. The state of its groups that outlives it is passed out as bytes whenever it changes
//! ([`keep_members`]), before members receive it. The next coordinator starts from these bytes
//! ([`Registry::restore`]).

mod alarms;
pub mod assignment;
pub mod assignor;
pub mod classic;
pub mod consumer;
mod coordinator;
mod epochs;
mod error;
mod group;
mod group_persistence;
mod limits;
pub mod member;
mod members;
mod reconcile;
mod registry;
pub mod share;
mod stored_group;
pub mod streams;
pub mod subscription;

pub use coordinator::Coordinator;
pub use epochs::EpochGroup;
pub use error::{ErrorKind, GroupError};
pub use group::Group;
pub use group_persistence::{NotCoordinator, StoreReceipt, keep_members};
pub use reconcile::{AssignmentSet, MemberState};
pub use registry::{GroupAccess, Registry, Totals, watch_deadlines};
pub use stored_group::{KeptError, SessionTimeouts};

/// Ids and names. Each has its own memory: a group that kept a slice of a request would keep the whole request.
pub type Text = std::sync::Arc<str>;

/// A copy of a name.
#[must_use]
pub fn text(text: &str) -> Text {
    Text::from(text)
}
