//! Delivery by lease: consumers lease records one by one and settle each.
//!
//! A driver, one a shard and term, owns everything volatile (who consumes, what is leased, what
//! waits); nothing of it is shared or locked. A turn of it drains what sessions said, lets
//! `dispatch` decide, and makes ONE request to the sequencer of all that must be durable. Bodies
//! are read beside the loop and never in it.
//!
//! * [`session`]: what a session may do; [`event`]: what it hears
//! * [`admin`]: looking at groups and changing them from outside
//! * [`history`]: what became of a record
//! * [`dead_letter`]: where a record goes that is not delivered again; [`redrive`]: the way back
//! * [`error`]: what can go wrong, per operation

pub mod admin;
mod arrival;
mod batches;
mod commit;
pub mod dead_letter;
mod dead_letter_batches;
mod dead_lettering;
mod dead_letters;
mod divided;
mod divided_credit;
pub(crate) mod driver;
pub(crate) mod drivers;
pub mod error;
pub mod event;
mod events;
mod group;
mod groups;
pub(crate) mod handle;
mod handover;
pub mod history;
mod inspect;
mod known_group;
mod lent;
mod links;
mod looking;
mod open_session;
mod options;
mod overflow;
mod places;
pub(crate) mod policy;
mod presenting;
mod rates;
mod reading;
mod record_reader;
pub mod redrive;
pub(crate) mod relay;
mod repeat;
pub mod session;
mod sessions;
mod settle_reply;
mod settles;
mod shares;
pub(crate) mod standings;
mod takes;
mod taking;
pub(crate) mod trace_topic;
pub(crate) mod traced;
mod transfer;
pub(crate) mod transfers_over_shards;
pub(crate) mod unread;
pub(crate) mod view;
mod waiter;

pub use dead_letter::{DeadLetterRouter, DeadRecord, DeathReason};
pub use dispatch::{
    ConsumerId, DeadReason, Selection as SettleWhat, SessionId, Settlement, Step, Token, What,
};
pub use error::{
    BrowseError, ConsumeError, RedriveError, RemoveError, SeekError, SettleError, TakeError,
    TransferError,
};
pub use event::{Delivery, Event, GoneReason};
pub use events::Events;
pub use history::{Happened, Happening, HistoryEvents, HistoryFeed, SessionUser, Standing};
pub use inspect::{Counters, DelayedRecord, LeaseInfo, PeekOptions, Peeked, RecordState, SeekTo};
pub use looking::{HistoryEvent, RecordHistory};
pub use options::{ConsumeOptions, Credit, CreditReturns, Settle, TakeOptions};
pub use rates::{LeaseTotals, RATE_WINDOW_SECONDS, Rates};
pub use redrive::{RedriveTo, RedriveWhat, Redriven};
pub use session::{LeaseSession, SettleReply};
pub use trace_topic::TracedSteps;
