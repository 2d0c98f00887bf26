//! Delivery by lease on a whole broker: what a gateway may rely on, also across crashes.

mod admin;
mod atomicity;
mod clock;
mod delivery;
mod durability;
mod formats;
mod harness;
mod large_topics;
mod limits;
mod terms;
mod transfers;
