//! The commands, one file each.

pub(crate) mod agent;
pub(crate) mod conformance;
pub(crate) mod list;
pub(crate) mod peers;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod systems;
pub(crate) mod tools;
