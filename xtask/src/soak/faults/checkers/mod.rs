//! Rules that histories must keep, as pure functions: a history in, violations out.
//!
//! * [`register`]: values that only rise, read at any node (committed offsets, ends of partitions)
//! * [`queue`]: confirmed messages, acknowledgements and dead letters
//! * [`share`]: records that a share group settles one by one
//! * [`catalog`]: queues and topics that are declared and deleted at different nodes
//! * [`conditional`]: writes that name the version that they replace

pub(super) mod catalog;
pub(super) mod conditional;
pub(super) mod queue;
pub(super) mod register;
pub(super) mod share;

/// Violations of one rule that are described; the rest are counted.
const DESCRIBED_MAX: usize = 5;

/// Describes the first ones, and counts the rest.
pub(super) fn described(rule: &str, found: Vec<String>) -> Vec<String> {
    let count = found.len();
    let mut all: Vec<String> =
        found.into_iter().take(DESCRIBED_MAX).map(|it| format!("{rule}: {it}")).collect();
    if count > DESCRIBED_MAX {
        all.push(format!("{rule}: {} more", count - DESCRIBED_MAX));
    }
    all
}
