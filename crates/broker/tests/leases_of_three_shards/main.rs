//! The lease suites on a node with several shards: the guarantees are the same.

#[path = "../leases/admin.rs"]
mod admin;
#[path = "../leases/atomicity.rs"]
mod atomicity;
#[path = "../leases/clock.rs"]
mod clock;
#[path = "../leases/consumers.rs"]
mod consumers;
#[path = "../leases/delivery.rs"]
mod delivery;
#[path = "../leases/durability.rs"]
mod durability;
#[path = "../leases/harness.rs"]
mod harness;
#[path = "../leases/large_topics.rs"]
mod large_topics;
#[path = "../leases/limits.rs"]
mod limits;
#[path = "../leases/order.rs"]
mod order;
#[path = "../leases/record_ids.rs"]
mod record_ids;
#[path = "../leases/redrive.rs"]
mod redrive;
mod several;
#[path = "../leases/terms.rs"]
mod terms;
#[path = "../leases/transfers.rs"]
mod transfers;

/// Shards with rows of the nodes in these tests.
pub(crate) const SHARDS: u32 = 3;
