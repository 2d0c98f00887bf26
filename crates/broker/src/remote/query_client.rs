//! Queries the leader of a shard about its rows, and its successor after a change of leadership.

use bytes::Bytes;
use shard::LocalShard;
use shard::error::{FetchError, Unavailable};
use shard_peers::Remote;
use shard_peers::shard_query::{ShardQuery, ShardQueryReply};
use tokio::time::{Duration, Instant, sleep};

use super::query_server;

/// Time limit for finding a leader: an election takes less.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(3);
/// Delay before the next attempt to find or query the shard's leader.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Repeats the query until the leader replies. Fails if no leader is known, or none replies in time.
#[tasks::boxed]
pub(crate) async fn query_leader(
    remote: Option<&Remote>,
    shard: &LocalShard,
    query: &ShardQuery,
    within: Duration,
) -> Result<(ShardQueryReply, Bytes), FetchError> {
    let deadline = Instant::now() + within;
    loop {
        let result = query_leader_once(remote, shard, query, deadline).await;
        let why = match result {
            Err(FetchError::Unavailable(
                why @ (Unavailable::NotLeader | Unavailable::Unanswered),
            )) => why,
            answered => return answered,
        };
        if Instant::now() + RETRY_DELAY >= deadline {
            return Err(why.into());
        }
        sleep(RETRY_DELAY).await;
    }
}

async fn query_leader_once(
    remote: Option<&Remote>,
    shard: &LocalShard,
    query: &ShardQuery,
    deadline: Instant,
) -> Result<(ShardQueryReply, Bytes), FetchError> {
    if shard.is_led_here() {
        let (reply, pieces) = query_server::reply_to(shard, query.clone()).await?;
        return Ok((reply, pieces.concat().into()));
    }
    match (shard.leader(), remote) {
        (Some(leader), Some(remote)) => {
            remote.query_rows(leader, shard.id(), query, deadline).await
        }
        _ => Err(Unavailable::NotLeader.into()),
    }
}

/// Queries the leader like [`query_leader`], and returns the part of the reply that `part` extracts.
pub(crate) async fn query_leader_for<T>(
    remote: Option<&Remote>,
    shard: &LocalShard,
    query: &ShardQuery,
    within: Duration,
    part: impl FnOnce(ShardQueryReply) -> Option<T>,
) -> Result<T, Unavailable> {
    match query_leader(remote, shard, query, within).await {
        Ok((reply, _)) => part(reply).ok_or(Unavailable::Unanswered),
        Err(FetchError::Unavailable(why)) => Err(why),
        Err(error) => {
            tracing::warn!(shard = %shard.id(), %error, "a leader does not answer what it is asked");
            Err(Unavailable::Unanswered)
        }
    }
}
