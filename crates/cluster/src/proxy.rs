//! Requests for shards that are led elsewhere.

use std::time::Duration;

use base::ShardId;
use futures_util::future::BoxFuture;
use links::{Declined, Message, NodeId, Received};

/// Answers what other nodes ask of the shards that this one leads. It does not know what is asked: that is the
/// broker's.
pub trait Proxy: Send + Sync + 'static {
    /// The future is dropped when `within` has passed, or the asking node's connection has ended. Requests of one
    /// node run beside each other.
    fn answer(
        &self,
        shard: ShardId,
        from: NodeId,
        request: Received,
        within: Duration,
    ) -> BoxFuture<'static, Result<Message, Declined>>;
}
