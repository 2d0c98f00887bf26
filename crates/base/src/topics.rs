//! Topics of the broker's own.

/// What the audit has written.
pub const AUDIT: &str = "_postroad.audit";

/// Whether only nodes write to the topic of this name. Where records come from others by a way on which nobody's rights are
/// asked (dead letters, redrives), they do not go there: whoever reads the topic takes it for what nodes say.
pub fn is_written_by_nodes(name: &str) -> bool {
    name == AUDIT
}
