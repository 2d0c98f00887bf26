//! Topics of the broker's own.

/// What the audit has written.
pub const AUDIT: &str = "_postroad.audit";

/// What happened to records of topics that ask for it.
pub const TRACE: &str = "_postroad.trace";

/// Names of the topics in which Kafka's brokers keep their state. Tools look for them, and would take an
/// ordinary topic of that name for the state itself.
pub const STATE_OF_KAFKA: [&str; 4] =
    ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"];

/// Whether only nodes write to the topic of this name. Dead letters and redriven records must not go there: nobody's rights
/// are checked when they are moved, and whoever reads the topic trusts that nodes wrote it.
pub fn is_written_by_nodes(name: &str) -> bool {
    name == AUDIT || name == TRACE
}
