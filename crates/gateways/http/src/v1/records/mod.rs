//! Records: appending, reading, and search. They use topics.
//!
//! * `document`: records as documents; `json`: any JSON value as its shortest text
//! * `produce`, `new_records`, `appending`: appending; `read`, `stream`: reading by offset
//! * `search`, `filter`: record search; `whereabouts`: state of one record; `trace`: both

pub(super) mod appending;
pub(super) mod document;
pub(super) mod filter;
pub(super) mod json;
pub(super) mod new_records;
pub(super) mod produce;
pub(super) mod read;
pub(super) mod search;
pub(super) mod stream;
pub(super) mod trace;
pub(super) mod whereabouts;
