//! Delivery by lease: consumers lease records one by one and settle each.
//!
//! One driver per shard and term owns all volatile state (consumers, leases, waiting takes); none of it is
//! shared or locked. An iteration of the driver drains the messages of sessions, runs `dispatch`, and makes ONE
//! request to the sequencer with everything that must become durable. Record bodies are read concurrently,
//! never in the loop.
//!
//! * [`driver`]: the driver; [`Drivers`]: access to those of all shards
//! * [`session`]: the sessions' side: their drivers, credit, events and takes
//! * [`relay`]: connects the sessions of a node to the driver of another node
//! * `groups`: engines of lease groups, and their schedule; `sessions`, `open_session`, `takes`: the driver's sessions,
//!   and the takes that wait for records
//! * `reading`: reads records for deliveries
//! * `commit`: settles as commands of the log; `waiter`: callers that wait for a settle
//! * `dead_letters`, `dead_lettering`, [`dead_letter_batches`]: records that are not delivered again; `overflow`: those
//!   that a full topic drops
//! * `transfer`: settles and appends that take effect together; `plain_appends`: appends of the driver
//! * `handover`: what the driver of the next term takes over

mod commit;
pub mod dead_letter_batches;
mod dead_lettering;
mod dead_letters;
pub mod driver;
pub mod drivers;
mod groups;
mod handover;
pub mod limits;
mod open_session;
mod overflow;
mod plain_appends;
mod reading;
pub mod relay;
pub mod session;
mod sessions;
mod takes;
mod transfer;
mod waiter;

pub use drivers::Drivers;
