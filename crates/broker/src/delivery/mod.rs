//! Delivery by lease: consumers lease records one by one and settle each.
//!
//! One driver per shard and term owns all volatile state (consumers, leases, waiting takes); none of it is
//! shared or locked. An iteration of the driver drains the messages of sessions, runs `dispatch`, and makes ONE
//! request to the sequencer with everything that must become durable. Record bodies are read concurrently,
//! never in the loop.
//!
//! * [`session`]: the operations of a session; [`event`]: the events that it receives
//! * [`admin`]: inspecting and changing groups from outside
//! * [`history`]: the history of a record
//! * [`dead_letter`]: the target of records that are not delivered again; [`redrive`]: the way back
//! * [`error`]: the errors of each operation

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
    ConsumerId, DeadReason, Selection as SettleWhat, SessionId, Settlement, Step, StepKind, Token,
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
