//! Queries to the leaders of shards without rows on this node.

use base::ShardId;
use bytes::Bytes;
use futures_util::future::try_join_all;
use shard::LocalShard;
use shard::error::{FetchError, Unavailable};
use shard_peers::shard_query::{ASKED_AT_ONCE_MAX, ShardQuery, ShardQueryReply};
use tokio::time::Duration;

use crate::broker::Broker;
use crate::remote::query_client::{self, ANSWERED_WITHIN};

/// How to build a query from a list, and how to extract its replies.
pub(crate) struct RemoteQuery<Q, A> {
    pub(crate) query: fn(Vec<Q>) -> ShardQuery,
    /// `None` for an unexpected reply.
    pub(crate) reply: fn(ShardQueryReply) -> Option<Vec<A>>,
}

impl Broker {
    /// Queries the shard's leader, and its successor after a change of leadership. Fails if no leader is known, or
    /// none replies in time.
    pub(crate) async fn query_leader(
        &self,
        shard: &LocalShard,
        query: &ShardQuery,
    ) -> Result<(ShardQueryReply, Bytes), FetchError> {
        query_client::query_leader(self.peers().remote(), shard, query, ANSWERED_WITHIN).await
    }

    /// Queries the leader, and returns the part of the reply that `part` extracts.
    pub(crate) async fn query_leader_for<T>(
        &self,
        shard: &LocalShard,
        query: &ShardQuery,
        part: impl FnOnce(ShardQueryReply) -> Option<T>,
    ) -> Result<T, Unavailable> {
        self.query_leader_within(shard, query, ANSWERED_WITHIN, part).await
    }

    /// The same with another time limit for finding the leader and for its reply.
    pub(crate) async fn query_leader_within<T>(
        &self,
        shard: &LocalShard,
        query: &ShardQuery,
        within: Duration,
        part: impl FnOnce(ShardQueryReply) -> Option<T>,
    ) -> Result<T, Unavailable> {
        query_client::query_leader_for(self.peers().remote(), shard, query, within, part).await
    }

    /// Queries a leader about a list, in parts of bounded size; returns as many replies, in order.
    pub(crate) async fn query_list<Q, A>(
        &self,
        shard: &LocalShard,
        mut items: Vec<Q>,
        elsewhere: &RemoteQuery<Q, A>,
    ) -> Result<Vec<A>, Unavailable> {
        let mut answers = Vec::with_capacity(items.len());
        while !items.is_empty() {
            let later = items.split_off(items.len().min(ASKED_AT_ONCE_MAX));
            let now = std::mem::replace(&mut items, later);
            let (count, query) = (now.len(), (elsewhere.query)(now));
            let reply = self.query_leader_for(shard, &query, elsewhere.reply).await?;
            if reply.len() != count {
                return Err(Unavailable::Unanswered);
            }
            answers.extend(reply);
        }
        Ok(answers)
    }

    /// Queries several shards at once; returns each reply with the number of its item.
    pub(crate) async fn query_lists<Q, A>(
        &self,
        of_shards: Vec<(ShardId, Vec<(usize, Q)>)>,
        elsewhere: &RemoteQuery<Q, A>,
    ) -> Result<Vec<(usize, A)>, Unavailable> {
        let queries = of_shards.into_iter().map(async |(shard, items)| {
            let (numbers, items): (Vec<usize>, Vec<Q>) = items.into_iter().unzip();
            let shard = self.local(shard);
            let answers = self.query_list(shard, items, elsewhere).await?;
            Ok::<_, Unavailable>(numbers.into_iter().zip(answers).collect::<Vec<_>>())
        });
        Ok(try_join_all(queries).await?.into_iter().flatten().collect())
    }
}
