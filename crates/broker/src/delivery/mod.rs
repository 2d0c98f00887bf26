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
mod batches;
mod borrowed_credit;
mod commit;
pub mod dead_letter;
mod dead_letter_batches;
mod dead_lettering;
mod dead_letters;
mod divided_credit;
pub(crate) mod driver;
pub(crate) mod drivers;
pub mod error;
pub mod event;
mod events;
mod group;
pub(crate) mod group_backlog;
mod group_take;
mod groups;
pub(crate) mod handle;
mod handover;
pub mod history;
mod history_query;
mod in_transit;
mod inspect;
mod known_group;
mod links;
mod open_session;
mod options;
mod overflow;
mod plain_appends;
pub(crate) mod policy;
mod presenting;
mod rates;
mod reading;
mod record_reader;
pub mod redrive;
pub(crate) mod relay;
mod repeat;
pub mod session;
mod session_credit;
mod sessions;
mod settle_reply;
mod settles;
mod shares;
mod takes;
pub(crate) mod trace_queue;
pub(crate) mod trace_topic;
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
pub use history::{
    FeedEvent, FeedEventKind, HistoryEvents, HistoryFeed, SessionUser, UnsettledRecord,
};
pub use history_query::{HistoryEvent, RecordHistory};
pub use inspect::{
    Counters, DelayedRecord, LeaseInfo, PeekOptions, PeekedRecord, RecordState, SeekTo,
};
pub use options::{ConsumeOptions, Credit, CreditReturns, Settle, TakeOptions};
pub use rates::{LeaseTotals, RATE_WINDOW_SECONDS, Rates};
pub use redrive::{RedriveCounts, RedriveTo, RedriveWhat};
pub use session::{LeaseSession, SettleReply};
pub use trace_topic::TracedSteps;
