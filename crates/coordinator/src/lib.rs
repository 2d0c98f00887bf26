//! Groups: who consumes together, and who gets which partitions.
//!
//! Four protocols share the names of groups, and a group speaks one at a time: the classic one, in
//! which a member of the group divides the partitions; KIP-848's, in which the group does; KIP-932's
//! of share groups, whose members settle records one by one; and KIP-1071's of Kafka Streams
//! applications. Each is a pure state machine: an event, a time and the topics that there are go in;
//! the new state, and the answers that have become due, come out. No lock, task, timer or socket is
//! inside, and no type of a wire protocol: gateways translate.
//!
//! * [`classic`], [`consumer`], [`share`], [`streams`]: the machines
//! * [`assignor`], [`assignment`]: how partitions are divided
//! * [`subscription`]: what members want to consume, and what of it exists
//! * [`member`]: what members of all protocols have in common
//! * [`EpochGroup`]: what the three newer protocols share: members, epochs, deadlines
//! * [`MemberState`]: how a member is brought to what it is to have, the same for partitions and tasks
//! * [`Coordinator`]: owns groups and their timers; [`Registry`]: the shell around the machines: locks,
//!   deadlines, answers that come later
//!
//! A node has a [`Coordinator`] for each term in which it leads some of the groups. When that is dropped, requests
//! that wait in it end without an answer. What of its groups is to outlive it is handed out as bytes whenever it changes
//! ([`keep_members`]), before members are told of it, and the next one begins with that ([`Registry::restore`]).

mod alarms;
pub mod assignment;
pub mod assignor;
pub mod classic;
pub mod consumer;
mod coordinator;
mod epochs;
mod error;
mod group;
mod keeping;
mod kept;
pub mod member;
mod members;
mod reconcile;
mod registry;
pub mod share;
pub mod streams;
pub mod subscription;

pub use coordinator::Coordinator;
pub use epochs::EpochGroup;
pub use error::{ErrorKind, GroupError};
pub use group::Group;
pub use keeping::{Stored, TermOver, keep_members};
pub use kept::{KeptError, SessionTimeouts};
pub use reconcile::{Holding, MemberState};
pub use registry::{Registry, Totals, Visit, watch_deadlines};

/// Ids and names. Each has memory of its own: a group that kept a slice of a request would keep the
/// whole request.
pub type Text = std::sync::Arc<str>;

/// A copy of a name.
#[must_use]
pub fn text(text: &str) -> Text {
    Text::from(text)
}
