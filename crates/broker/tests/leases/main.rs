//! Delivery by lease on a whole broker: what a gateway may rely on, also across crashes.

mod admin;
mod atomicity;
mod clock;
mod consumers;
mod delivery;
mod durability;
mod formats;
mod harness;
mod large_topics;
mod limits;
mod order;
mod record_ids;
mod redrive;
mod terms;
mod transfers;

/// Shards with rows of the nodes in these tests.
pub(crate) const SHARDS: u32 = 1;
