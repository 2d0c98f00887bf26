//! Requests for shards that are led by another node.

use std::time::Duration;

use base::ShardId;
use futures_util::future::BoxFuture;
use links::{Declined, Message, NodeId, ReceivedMessage};

/// Serves the requests of other nodes for the shards that this one leads. Their content is opaque here: it belongs
/// to the broker.
pub trait Proxy: Send + Sync + 'static {
    /// The future is dropped when `within` has passed, or the requesting node's connection has ended. Requests of
    /// one node run concurrently.
    fn answer(
        &self,
        shard: ShardId,
        from: NodeId,
        request: ReceivedMessage,
        within: Duration,
    ) -> BoxFuture<'static, Result<Message, Declined>>;
}
