//! State of a node for probes, metrics and operators.

mod disk;
pub(crate) mod shard_status;
pub(crate) mod vitals;
