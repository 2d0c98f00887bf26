//! Documents as their owners hold them: typed, and written as JSON under a name of several parts.
//!
//! The state keeps bytes under a space and a name, each with the version of the change that made
//! them what they are. What a space means is its owner's: users are `access`'s, virtual hosts with
//! all that is in them `topology`'s. This crate has what the owners share:
//!
//! * [`name`]: the parts of a name, escaped so that `/` separates them and nothing else does
//! * [`store`]: reading, and writing with the version as compare-and-set
//! * [`change`]: several documents, and a topic with them, that change together

pub mod change;
pub mod name;
pub mod store;

pub use change::Change;
pub use name::{join, split};
pub use store::{Expect, Found, MalformedDocument, StoreError, Stored};
