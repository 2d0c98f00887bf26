//! Requests and messages between shards. Shards reach one another through their logs only, and a shard that another
//! node leads gets the same requests as one of this node.
//!
//! * [`Peers`]: sends requests to the leaders of shards, on this node or on others
//! * [`remote`]: requests to other nodes, and their replies; [`wire`]: the encoding of both
//! * [`pusher`]: pushes the messages of a shard to other shards
//! * [`shard_query`]: queries to a shard's leader, and replies; [`bounds`]: start and end of a partition
//! * [`backup_parts`]: parts of a backup that another node sends
//! * [`group_status`], [`stored_status`]: a node's report on the groups of its shards, and on its stored data

pub mod backup_parts;
pub mod bounds;
pub mod group_status;
pub mod limits;
mod peers;
pub mod pusher;
pub mod remote;
pub mod shard_query;
pub mod stored_status;
pub mod wire;

pub use peers::{Peers, Reach, ServingShard};
pub use remote::Remote;
