//! Rules that the histories of clients must keep, whatever happens to the servers. Pure: the soaks record the
//! requests, replies and reads of their clients, and get the violations.
//!
//! * [`log`]: acknowledged records, and reads of a partition
//! * [`leases`]: records that the consumers of queues settle one by one
//! * [`register`]: values that only rise, read at any node (committed offsets, ends of partitions)
//! * [`queue`]: confirmed messages, acknowledgements and dead letters
//! * [`share`]: records that a share group settles one by one
//! * [`catalog`]: queues and topics that are declared and deleted at different nodes
//! * [`conditional`]: writes that name the version that they replace

pub mod catalog;
pub mod conditional;
pub mod leases;
pub mod log;
pub mod queue;
pub mod register;
pub mod share;

/// Violations of one rule that are described; the rest are counted.
const DESCRIBED_MAX: usize = 5;

/// Describes the first ones, and counts the rest.
fn described(rule: &str, found: Vec<String>) -> Vec<String> {
    let count = found.len();
    let mut all: Vec<String> =
        found.into_iter().take(DESCRIBED_MAX).map(|it| format!("{rule}: {it}")).collect();
    if count > DESCRIBED_MAX {
        all.push(format!("{rule}: {} more", count - DESCRIBED_MAX));
    }
    all
}
