//! Leaders of the shards: their spread over the nodes, the health of the disks that they need, and leadership gossip.
//! It uses the node's shards alone.

pub(crate) mod disk_health;
pub(crate) mod gossip_forwarding;
pub(crate) mod leader_balance;
pub(crate) mod leader_gossip;
pub(crate) mod majority_report;
pub(crate) mod slow_disk;
