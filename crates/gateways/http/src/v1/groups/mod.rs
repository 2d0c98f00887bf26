//! Groups of consumers. They use topics, and the positions of records.
//!
//! * `lease_groups`: groups that settle records one by one, of a topic
//! * `waiting_records`: these groups of all topics, and their waiting records; `dead_letters`: dead letters
//! * `offset_groups`: groups that commit offsets; `offsets`: their committed offsets

pub(super) mod dead_letters;
pub(super) mod lease_groups;
pub(super) mod offset_groups;
pub(super) mod offsets;
pub(super) mod waiting_records;
