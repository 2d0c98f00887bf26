//! What every part shares: ids, limits, the clock and the checksum. No I/O.
//!
//! * [`ids`]: the names of things inside a node
//! * [`headers`]: the record headers that the broker reads and writes
//! * [`limits`]: every bound of the product, in one file
//! * [`ranges`]: sets of offsets
//! * [`shared`]: collections that a snapshot takes a cheap copy of
//! * [`clock`]: time as a dependency, so that tests can own it
//! * [`timeline`]: leases and dates on one line, whatever is done to the wall clock
//! * [`checksum`]: CRC32C, the one checksum on the wire and on disk

pub mod checksum;
pub mod clock;
pub mod headers;
pub mod ids;
pub mod limits;
pub mod ranges;
pub mod shared;
pub mod timeline;

pub use clock::{Clock, ManualClock, SystemClock};
pub use ids::{LeaseGroupId, MAIN_LEASE_GROUP, Offset, PartitionId, TopicId};
pub use ranges::OffsetRanges;
pub use shared::{SharedMap, SharedRows};
pub use timeline::{Shifts, Timeline};
