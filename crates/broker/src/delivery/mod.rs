//! Delivery by lease: consumers lease records one by one and settle each.
//!
//! One task a shard, the driver, owns everything volatile (who consumes, what is leased, what
//! waits); nothing of it is shared or locked. A turn of it drains what sessions said, lets
//! `dispatch` decide, and makes ONE request to the sequencer of all that must be durable. Bodies
//! are read beside the loop and never in it.
//!
//! * [`session`]: what a session may do; [`event`]: what it hears
//! * [`admin`]: looking at groups and changing them from outside
//! * [`dead_letter`]: where a record goes that is not delivered again
//! * [`error`]: what can go wrong, per operation

pub mod admin;
pub mod dead_letter;
pub(crate) mod driver;
pub mod error;
pub mod event;
pub mod session;
mod words;

pub use admin::{
    Counters, DelayedRecord, LeaseInfo, PeekOptions, Peeked, RecordState, RedriveTo, RedriveWhat,
    Redriven,
};
pub use dead_letter::{DeadLetterRouter, DeadRecord, DeathReason};
pub use error::{
    BrowseError, ConsumeError, RedriveError, RemoveError, SettleError, TakeError, TransferError,
};
pub use event::{Delivery, Event, Events, GoneReason};
pub use session::{
    ConsumeOptions, Credit, CreditReturns, LeaseSession, Settle, SettleReply, SettleWhat,
    TakeOptions,
};
pub use words::{ConsumerId, SessionId, Settlement, Token};
