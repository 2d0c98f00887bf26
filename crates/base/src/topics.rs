//! Topics of the broker's own.

/// What the audit has written.
pub const AUDIT: &str = "_postroad.audit";

/// What happened to records of topics that ask for it.
pub const TRACE: &str = "_postroad.trace";

/// Whether only nodes write to the topic of this name. Dead letters and redriven records must not go there: nobody's rights
/// are checked when they are moved, and whoever reads the topic trusts that nodes wrote it.
pub fn is_written_by_nodes(name: &str) -> bool {
    name == AUDIT || name == TRACE
}
