//! Topics of the broker itself.

/// Audit events.
pub const AUDIT: &str = "_postroad.audit";

/// Events of records of traced topics.
pub const TRACE: &str = "_postroad.trace";

/// Names of the topics in which Kafka's brokers keep their state. Tools look for them, and would mistake an
/// ordinary topic of that name for the state itself.
pub const STATE_OF_KAFKA: [&str; 4] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"];

/// Whether only nodes write to the topic of this name. Dead letters and redriven records must not be moved there:
/// moves do not check a user's permissions, and readers of the topic trust that nodes wrote it.
pub fn is_written_by_nodes(name: &str) -> bool {
    name == AUDIT || name == TRACE
}
