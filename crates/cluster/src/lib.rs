//! A node among others: the groups of its shards, over its links.
//!
//! `consensus` says what the members of a group tell each other, as bytes; `links` carries bytes between nodes.
//! This crate brings them together, so that neither knows the other.
//!
//! * [`Groups`]: what peers ask goes to the group that it is for
//! * [`LinkedPeers`]: what a group asks goes to the node that it is for
//! * `succession`: who follows a leader whose process is gone
//! * `wire`: how a group's messages lie in a link's

mod groups;
mod peers;
mod succession;
mod wire;

pub use groups::Groups;
pub use peers::LinkedPeers;
