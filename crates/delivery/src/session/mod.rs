//! The sessions' side of delivery: a session talks to the driver of each shard with partitions of its groups.
//!
//! * [`links`]: the drivers of a session; [`session_credit`], `shares`: its credit in each
//! * [`events`]: the events that it receives; [`group_take`], [`transfers_over_shards`]: operations over several shards

pub mod events;
pub mod group_take;
pub mod links;
pub mod session_credit;
mod shares;
pub mod transfers_over_shards;
