//! Commands on a cluster: its nodes, shards and connections, a backup of it, and a cluster for trying it out.

pub(crate) mod backup;
pub(crate) mod connection;
pub(crate) mod demo;
pub(crate) mod node;
pub(crate) mod shard;
mod shard_move;
pub(crate) mod status;

use client::{Client, ClientError};
use operations::cluster::{FAMILY, Operation};
use serde::de::DeserializeOwned;

/// Sends an operation on the cluster.
pub(crate) async fn operate<A: DeserializeOwned>(
    client: &Client,
    operation: &Operation,
) -> Result<A, ClientError> {
    client.operate_family(FAMILY, operation).await
}
