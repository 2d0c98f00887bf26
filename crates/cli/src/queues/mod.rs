//! Commands on topics as queues: the queues themselves, dead letters and scheduled records.

pub(crate) mod dead_letter;
pub(crate) mod queue;
pub(crate) mod schedule;
