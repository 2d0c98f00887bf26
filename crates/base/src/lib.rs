//! Items that every part shares: ids, limits and the checksum. No I/O.
//!
//! * [`ids`]: the names of things inside a node
//! * [`headers`]: the record headers that the broker reads and writes
//! * [`level`]: the cluster's feature level, and the level that each format needs
//! * [`json`]: weight of a JSON document before it is parsed
//! * [`lag`]: records that a group has not read
//! * [`limits`]: every bound of the product, in one file
//! * [`queue_topics`]: names of topics that store queues, and their virtual host
//! * [`ranges`]: sets of offsets
//! * [`stripe`]: which partitions of a topic a shard has
//! * [`shared`]: collections that a snapshot takes a cheap copy of
//! * [`collections`]: hash maps whose order a seed fixes
//! * [`checksum`]: CRC32C, the one checksum on the wire and on disk

pub mod checksum;
pub mod collections;
pub mod headers;
pub mod ids;
pub mod json;
pub mod lag;
pub mod level;
pub mod limits;
pub mod queue_topics;
pub mod ranges;
pub mod shared;
pub mod stripe;
pub mod topics;

pub use collections::{HashMap, HashSet};
pub use ids::{LeaseGroupId, MAIN_LEASE_GROUP, Offset, PartitionId, ShardId, TopicId};
pub use level::{ClusterLevel, Format, Level, Levelled, Levels};
pub use ranges::OffsetRanges;
pub use shared::{SharedMap, SharedRows};
pub use stripe::Stripe;
