//! One node: the guarantees for gateways.

mod disk;
mod harness;
mod housekeeping;
mod records;
