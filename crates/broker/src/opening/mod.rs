//! Opening of a data directory: its layout, identity, level and shards. [`restore`] and [`recovery`] write a directory
//! before a node opens it. The parts of a running node come after it.

pub(crate) mod cluster_id;
mod directories;
pub(crate) mod founding;
pub(crate) mod layout;
pub mod level;
pub(crate) mod local_shard;
pub mod recovery;
mod removed_replica;
pub mod restore;
