//! What a shard may rely on, alone and in a group of several nodes.

mod alone;
mod cluster;
mod elections;
mod harness;
mod leadership;
mod network;
mod random;
