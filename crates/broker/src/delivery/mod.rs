//! Delivery by lease, as gateways and operators use it. Crate `delivery` has the drivers of leases and the sessions'
//! side of them. The operations here need the whole broker.
//!
//! * [`session`]: the operations of a session; `known_group`: retries them where this node's catalog may be behind
//! * [`admin`]: inspecting and changing groups from outside; `record_reader`: reads the records for that
//! * `history_query`: the history of a record; `trace_topic`: kept in a topic
//! * [`redrive`]: the way back of dead letters

pub mod admin;
mod history_query;
mod known_group;
mod record_reader;
pub mod redrive;
pub mod session;
pub(crate) mod trace_topic;

pub use delivery::session::events::Events;
pub use dispatch::{
    ConsumerId, DeadReason, Selection as SettleTarget, SessionId, Settlement, Step, StepKind, Token,
};
pub use history_query::{HistoryEvent, RecordHistory};
pub use redrive::{RedriveCounts, RedriveSelection, RedriveTo};
pub use session::{LeaseSession, SettleReply};
pub use shard::delivery::dead_letter::{DeadLetterRouter, DeadRecord, DeathReason};
pub use shard::delivery::error::{
    BrowseError, ConsumeError, RedriveError, RemoveError, SeekError, SettleError, TakeError,
    TransferError,
};
pub use shard::delivery::event::{Delivery, Event, GoneReason};
pub use shard::delivery::history::{
    FeedEvent, FeedEventKind, HistoryEvents, HistoryFeed, SessionUser, UnsettledRecord,
};
pub use shard::delivery::inspect::{
    Counters, DelayedRecord, LeaseInfo, PeekOptions, PeekedRecord, RecordState, SeekTo,
};
pub use shard::delivery::options::{ConsumeOptions, Credit, CreditReturns, Settle, TakeOptions};
pub use shard::delivery::rates::{LeaseTotals, RATE_WINDOW_SECONDS, Rates};
pub use trace_topic::TracedSteps;
