//! Guarantees to a shard, alone and in a group of several nodes.

mod alone;
mod catch_up;
mod cluster;
mod durability;
mod elections;
mod floors;
mod harness;
mod histories;
mod leadership;
mod membership;
mod network;
mod random;
mod repair;
mod retention;
