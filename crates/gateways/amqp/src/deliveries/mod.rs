//! Deliveries to a client and their acknowledgements. They use the session, and no other methods.
//!
//! * `consume`: new consumers and their cancellation; `deliver`: the hot path out; `get`: one message at a time
//! * `outgoing`: a record as frames
//! * `settle`: acknowledgements; `answer_timeout`: deliveries that are not acknowledged in time

mod answer_timeout;
mod consume;
mod deliver;
mod get;
mod outgoing;
pub(crate) mod settle;
