//! Background work on the shards of a node. It keeps stored data within its bounds and readable, moves partitions, and
//! sends backups. It knows no session and no protocol.
//!
//! * [`housekeeping`]: retention, compaction, expiry of producers and record ids, and reclaiming of space
//! * [`scrub`]: verifies all stored data
//! * [`moves`]: moves partitions to other shards
//! * [`backup`]: sends the parts of a backup, and retains the data of each
//! * [`disk_watchdog`]: reports a hanging disk

pub mod backup;
pub mod disk_watchdog;
pub mod housekeeping;
pub mod limits;
pub mod moves;
pub mod scrub;
