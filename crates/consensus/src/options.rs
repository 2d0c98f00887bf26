//! The options of a group's member.

use base::limits;

use crate::floor::Floor;
use crate::group::Group;

#[derive(Clone, Debug)]
pub struct ConsensusOptions {
    /// The log grows by at least this before the next snapshot.
    pub snapshot_log_bytes_min: u64,
    /// Or, if that comes first, a restart would have to replay this many applied changes (see
    /// [`StateMachine::apply`](crate::StateMachine::apply)).
    pub snapshot_changes_min: u64,
    /// Bytes of the log covered by a snapshot that are kept for members without them.
    pub kept_log_bytes_max: u64,
    /// Notified when consensus stops permanently.
    pub node: tasks::Failure,
    /// The group that this node is to be a member of. Without one, it is a permanent group of one.
    pub group: Option<Group>,
    /// Promises of this node in the group from before its log was deleted.
    pub floor: Option<Floor>,
}

impl Default for ConsensusOptions {
    fn default() -> Self {
        Self {
            snapshot_log_bytes_min: limits::SEGMENT_BYTES_DEFAULT,
            snapshot_changes_min: crate::limits::REPLAYED_CHANGES_MAX,
            kept_log_bytes_max: limits::KEPT_LOG_BYTES_MAX,
            node: tasks::Failure::new(),
            group: None,
            floor: None,
        }
    }
}
