//! Typed documents, stored as JSON under a name of several parts.
//!
//! The catalog stores bytes under a space and a name, each with the version of its last change. The meaning of a
//! space belongs to its owner: `access` owns users, `topology` owns virtual hosts and their contents. The owners
//! share this crate:
//!
//! * [`name`]: joins and splits names; parts are escaped, so that every `/` is a separator
//! * [`store`]: reads, and writes with the version as compare-and-set
//! * [`change`]: changes several documents and a topic atomically

pub mod change;
pub mod name;
pub mod store;

pub use change::Change;
pub use name::{join, split};
pub use store::{DocumentRef, LoadedDocument, MalformedDocument, StoreError, WritePrecondition};
