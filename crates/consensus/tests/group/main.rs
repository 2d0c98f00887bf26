//! What a shard may rely on. Its group has one voter.

mod alone;
mod harness;
mod leadership;
