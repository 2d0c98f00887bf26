//! Requests of operators, and of the tasks that place replicas: changes of the shards' groups, elections, moves of
//! partitions and scrubs. It uses the broker and [`crate::shard_client`].

pub(crate) mod elections;
pub(crate) mod groups;
pub mod moves;
mod scrub;
