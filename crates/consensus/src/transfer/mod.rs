//! State of the snapshot transfers of a member: their pace, the ones that it sends, and the one that it receives.
//!
//! It depends on `message`, and knows neither the member nor its engine: `catch_up` sends and receives.

mod outgoing;
mod pace;
mod reception;

pub use pace::CatchUpPace;

pub(crate) use outgoing::OutgoingSnapshots;
pub(crate) use reception::{Fetch, Reception};
