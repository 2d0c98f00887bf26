//! Delivery by lease on a whole broker: the guarantees for gateways, also after crashes.

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
