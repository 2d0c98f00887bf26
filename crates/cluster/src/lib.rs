//! A node among others: the groups of its shards, over its links.
//!
//! `consensus` says what the members of a group tell each other, as bytes; `links` carries bytes between nodes.
//! This crate brings them together, so that neither knows the other.
//!
//! * [`Node`]: a node as a member of its cluster: its identity, its links, and who the others are
//! * [`Groups`]: what peers ask goes to the group that it is for
//! * [`LinkedPeers`]: what a group asks goes to the node that it is for
//! * [`Proxy`]: answers requests for shards that are led elsewhere
//! * `directory`: which node a data directory is of; `seeds`, `founding`: how nodes become a cluster; `joining`: how
//!   one is let in later; `roster`: who is in it
//! * `epochs`: detection of a directory that was set back while its node ran
//! * [`Survivor`]: the directory of a node that goes on without the majority of its cluster
//! * `succession`: who follows a leader whose process is gone
//! * `wire`: how a group's messages lie in a link's

mod directory;
mod epochs;
mod founding;
mod groups;
mod joining;
pub mod level;
mod node;
mod peers;
mod proxy;
mod recovery;
mod restoring;
mod roster;
mod seeds;
mod succession;
mod waiting;
mod wire;

pub use directory::{DirectoryError, MEMBER_FILE};
pub use groups::Groups;
pub use joining::ApplicantWatch;
pub use links::Joining;
pub use node::{KnownNode, Node, NodeOptions, NodeStartError};
pub use peers::LinkedPeers;
pub use proxy::Proxy;
pub use recovery::{Recovering, Survivor, SurvivorError};
pub use restoring::{Restoring, Vacant, VacantError};
pub use seeds::SeedsError;
