//! Connections between the nodes of a cluster.

mod end;
mod frame;
mod identity;
mod lane;
mod refusal;
mod window;

pub use end::{ConnectError, End, Insecure, Violation};
pub use frame::{Message, Received};
pub use identity::{Admission, DirectoryIdentity, Identity, NodeId};
pub use lane::Lane;
pub use refusal::{Refusal, Versions};
