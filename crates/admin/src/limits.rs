//! Bounds of this crate: memory, sizes and times. A bound that a user can set has its default here and its setting in
//! the comment. The others keep one bad client from harming the others.

/// Longer messages of errors are cut: they may quote the operation.
pub const MESSAGE_BYTES_MAX: usize = 1024;
/// Records examined for a response.
pub const OPERATION_PAGE_SCAN_MAX: usize = 20_000;
/// Leases in the description of a queue.
pub const OPERATION_LEASES_MAX: usize = 100;
/// Concurrent operations that hold a page of records, or a piece of a backup. Others of their class wait.
pub const RECORD_OPERATIONS_AT_ONCE_MAX: usize = 4;
pub const BACKUP_OPERATIONS_AT_ONCE_MAX: usize = 4;
pub const GROUP_OPERATIONS_AT_ONCE_MAX: usize = 16;
/// Groups with committed offsets whose position relative to a record is looked up.
pub const HISTORY_OFFSET_GROUPS_MAX: usize = 1_000;
