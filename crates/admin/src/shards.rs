//! The node's shards, and their elections.

use base::ShardId;
use broker::{Broker, ShardStatus};
use operations::document::{ElectedTerm, ShardContent, ShardList, ShardSummary, SnapshotTransfer};

use crate::AdminError;

pub(crate) fn list(broker: &Broker) -> ShardList {
    ShardList { shards: broker.shard_statuses().iter().map(summary).collect() }
}

fn summary(status: &ShardStatus) -> ShardSummary {
    let ShardStatus {
        shard,
        term,
        log_end,
        topics,
        partitions,
        segments,
        live_bytes,
        syncs,
        sync_micros,
        unplaced,
        ref catching_up,
    } = *status;
    let holds = match shard == ShardId::CATALOG {
        true => ShardContent::Catalog,
        false => ShardContent::Records,
    };
    ShardSummary {
        shard: shard.0,
        holds,
        term,
        log_end,
        topics,
        partitions,
        segments,
        live_bytes,
        syncs,
        sync_micros,
        unplaced,
        catching_up: catching_up.iter().map(lagging_node).collect(),
    }
}

fn lagging_node(known: &broker::CatchUpProgress) -> SnapshotTransfer {
    let broker::CatchUpProgress { node, bytes, of_bytes } = *known;
    SnapshotTransfer { node, bytes, of_bytes }
}

pub(crate) async fn elect(broker: &Broker) -> Result<ElectedTerm, AdminError> {
    let elected = broker.elect_all().await;
    let term = elected.map_err(|error| AdminError::Unavailable(error.to_string()))?;
    Ok(ElectedTerm { term })
}
