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
    pub(crate) ask: fn(Vec<Q>) -> ShardQuery,
    /// `None` for an unexpected reply.
    pub(crate) told: fn(ShardQueryReply) -> Option<Vec<A>>,
}

impl Broker {
    /// Queries the shard's leader, and its successor after a change of leadership. Fails if no leader is known, or
    /// none replies in time.
    pub(crate) async fn query_leader(
        &self,
        shard: &LocalShard,
        question: &ShardQuery,
    ) -> Result<(ShardQueryReply, Bytes), FetchError> {
        query_client::query_leader(self.peers().remote(), shard, question, ANSWERED_WITHIN).await
    }

    /// Queries the leader, and returns the part of the reply that `part` extracts.
    pub(crate) async fn query_leader_for<T>(
        &self,
        shard: &LocalShard,
        question: &ShardQuery,
        part: impl FnOnce(ShardQueryReply) -> Option<T>,
    ) -> Result<T, Unavailable> {
        self.query_leader_within(shard, question, ANSWERED_WITHIN, part).await
    }

    /// The same with another time limit for finding the leader and for its reply.
    pub(crate) async fn query_leader_within<T>(
        &self,
        shard: &LocalShard,
        question: &ShardQuery,
        within: Duration,
        part: impl FnOnce(ShardQueryReply) -> Option<T>,
    ) -> Result<T, Unavailable> {
        query_client::query_leader_for(self.peers().remote(), shard, question, within, part).await
    }

    /// Queries a leader about a list, in parts of bounded size; returns as many replies, in order.
    pub(crate) async fn query_list<Q, A>(
        &self,
        shard: &LocalShard,
        mut questions: Vec<Q>,
        elsewhere: &RemoteQuery<Q, A>,
    ) -> Result<Vec<A>, Unavailable> {
        let mut answers = Vec::with_capacity(questions.len());
        while !questions.is_empty() {
            let later = questions.split_off(questions.len().min(ASKED_AT_ONCE_MAX));
            let now = std::mem::replace(&mut questions, later);
            let (count, question) = (now.len(), (elsewhere.ask)(now));
            let told = self.query_leader_for(shard, &question, elsewhere.told).await?;
            if told.len() != count {
                return Err(Unavailable::Unanswered);
            }
            answers.extend(told);
        }
        Ok(answers)
    }

    /// Queries several shards at once; returns each reply with the number of its item.
    pub(crate) async fn query_lists<Q, A>(
        &self,
        of_shards: Vec<(ShardId, Vec<(usize, Q)>)>,
        elsewhere: &RemoteQuery<Q, A>,
    ) -> Result<Vec<(usize, A)>, Unavailable> {
        let asked = of_shards.into_iter().map(async |(shard, questions)| {
            let (numbers, questions): (Vec<usize>, Vec<Q>) = questions.into_iter().unzip();
            let shard = self.local(shard);
            let answers = self.query_list(shard, questions, elsewhere).await?;
            Ok::<_, Unavailable>(numbers.into_iter().zip(answers).collect::<Vec<_>>())
        });
        Ok(try_join_all(asked).await?.into_iter().flatten().collect())
    }
}
