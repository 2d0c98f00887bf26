//! A node in its cluster: the groups of its shards, over its links.
//!
//! `consensus` defines the messages between members of a group, as bytes; `links` carries bytes between nodes.
//! This crate connects them, so that neither depends on the other.
//!
//! * [`Node`]: a node as a member of its cluster: its identity, its links, and the other members
//! * [`Groups`]: routes requests of peers to the groups of their shards
//! * [`LinkedPeers`]: routes requests of a group to the other nodes
//! * [`Proxy`]: serves requests for shards led by this node
//! * `directory`: the node that a data directory belongs to; `seeds`, `founding`: founding of a cluster;
//!   `joining`: later admission of a node; `roster`: the members, and `applicants`
//! * `epochs`, `epoch_keeper`: detection of a directory that was set back while its node ran
//! * [`SurvivorDirectory`]: the directory of a node that continues without the majority of its cluster
//! * `succession`: the election after a leader's process is gone
//! * `wire`: the encoding of a group's messages in a link's

mod applicants;
mod directory;
mod epoch_keeper;
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
mod start_error;
mod succession;
mod waiting;
mod wire;

pub use applicants::ApplicantWatch;
pub use directory::{DirectoryError, MEMBER_FILE};
pub use groups::Groups;
pub use links::JoiningNode;
pub use node::{Node, NodeOptions};
pub use peers::LinkedPeers;
pub use proxy::Proxy;
pub use recovery::{DirectoryRecovery, SurvivorDirectory, SurvivorError};
pub use restoring::{DirectoryRestore, VacantDirectory, VacantError};
pub use roster::KnownNode;
pub use seeds::SeedsError;
pub use start_error::NodeStartError;
