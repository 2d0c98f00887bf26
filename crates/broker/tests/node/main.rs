//! One node: what a gateway may rely on.

mod disk;
mod harness;
mod housekeeping;
mod records;
