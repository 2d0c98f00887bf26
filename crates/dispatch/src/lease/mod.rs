//! Leases: the table of the live ones, delivered records, and settlements by consumers.
//!
//! Depends on [`crate::record`] only.

mod assignment;
mod settlement;
mod table;

pub use assignment::{Assignment, Claim, LeaseAttributes};
pub use settlement::{Selection, SettleRefused, Settlement};
pub(crate) use table::{Lease, LeaseTable, Slot};
