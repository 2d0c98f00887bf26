//! The node's shards, and their elections.

use base::ShardId;
use broker::ShardStatus;
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::gateway::Gateway;

use ::operations::document::{
    ElectedTerm, ShardContent, ShardList, ShardSummary, SnapshotTransfer,
};

pub(super) fn list(gateway: &Gateway) -> ShardList {
    ShardList { shards: gateway.broker.shard_statuses().iter().map(summary).collect() }
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

pub(super) async fn elect(gateway: &Gateway) -> Result<ElectedTerm, Fault> {
    let elected = gateway.broker.elect_all().await;
    // Clients do not retry this code by themselves.
    let term =
        elected.map_err(|error| Fault::new(ResponseError::RequestTimedOut, error.to_string()))?;
    Ok(ElectedTerm { term })
}
