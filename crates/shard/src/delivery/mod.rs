//! Messages to the driver of a shard's leases, and the data in them. The sequencer, the applying side, sessions and the
//! driver all use them, so they depend on none of these.
//!
//! * [`handle`]: the handle to a driver, and its messages; [`settle_reply`]: replies to settles
//! * [`event`]: the events that a session receives, and [`unread`]: their bytes
//! * [`options`]: arguments of a session's operations
//! * [`divided_credit`], [`borrowed_credit`]: credit that is split over shards
//! * [`group_backlog`]: waiting records, as the driver reports them to the sequencer; [`topic_limit`]: their limits
//! * [`dead_letter`]: the target of records that are not delivered again
//! * [`inspect`], [`rates`]: the state of groups for operators
//! * [`history`]: the history of a record; [`trace_queue`]: steps of records that are written to a topic
//! * [`error`]: the errors of each operation

pub mod borrowed_credit;
pub mod dead_letter;
pub mod divided_credit;
pub mod error;
pub mod event;
pub mod group_backlog;
pub mod handle;
pub mod history;
pub mod inspect;
pub mod options;
pub mod rates;
pub mod settle_reply;
pub mod topic_limit;
pub mod trace_queue;
pub mod unread;
