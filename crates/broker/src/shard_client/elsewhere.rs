//! Asks the nodes that lead what is asked about shards that this node has no rows of.

use base::ShardId;
use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio::time::Duration;

use crate::asking::{self, ANSWERED_WITHIN};
use crate::broker::Broker;
use crate::error::{FetchError, Unavailable};
use crate::local_shard::LocalShard;
use crate::question::{ASKED_AT_ONCE_MAX, Question, Told};

/// How a list of questions is asked of a leader, and its answers are found.
pub(crate) struct Elsewhere<Q, A> {
    pub(crate) ask: fn(Vec<Q>) -> Question,
    /// `None`: it answers something else.
    pub(crate) told: fn(Told) -> Option<Vec<A>>,
}

impl Broker {
    /// Asks the node that leads the shard, and the next one where that leads no more. Fails where nobody is known to
    /// lead, or nobody answers in time.
    pub(crate) async fn ask_leader(
        &self,
        shard: &LocalShard,
        question: &Question,
    ) -> Result<(Told, Bytes), FetchError> {
        asking::ask_leader(self.peers().remote(), shard, question, ANSWERED_WITHIN).await
    }

    /// Asks the leader, which tells what `part` takes out of the answer.
    pub(crate) async fn ask_leader_for<T>(
        &self,
        shard: &LocalShard,
        question: &Question,
        part: impl FnOnce(Told) -> Option<T>,
    ) -> Result<T, Unavailable> {
        self.ask_leader_within(shard, question, ANSWERED_WITHIN, part).await
    }

    /// The same with another time in which a leader is looked for and waited for.
    pub(crate) async fn ask_leader_within<T>(
        &self,
        shard: &LocalShard,
        question: &Question,
        within: Duration,
        part: impl FnOnce(Told) -> Option<T>,
    ) -> Result<T, Unavailable> {
        asking::ask_leader_for(self.peers().remote(), shard, question, within, part).await
    }

    /// Asks a list of questions about one shard, some at a time; as many answers, in their order.
    pub(crate) async fn ask_list<Q, A>(
        &self,
        shard: &LocalShard,
        mut questions: Vec<Q>,
        elsewhere: &Elsewhere<Q, A>,
    ) -> Result<Vec<A>, Unavailable> {
        let mut answers = Vec::with_capacity(questions.len());
        while !questions.is_empty() {
            let later = questions.split_off(questions.len().min(ASKED_AT_ONCE_MAX));
            let now = std::mem::replace(&mut questions, later);
            let (count, question) = (now.len(), (elsewhere.ask)(now));
            let told = self.ask_leader_for(shard, &question, elsewhere.told).await?;
            if told.len() != count {
                return Err(Unavailable::Unanswered);
            }
            answers.extend(told);
        }
        Ok(answers)
    }

    /// The same of several shards at once; each answer with the number that its question had.
    pub(crate) async fn ask_lists<Q, A>(
        &self,
        of_shards: Vec<(ShardId, Vec<(usize, Q)>)>,
        elsewhere: &Elsewhere<Q, A>,
    ) -> Result<Vec<(usize, A)>, Unavailable> {
        let asked = of_shards.into_iter().map(async |(shard, questions)| {
            let (numbers, questions): (Vec<usize>, Vec<Q>) = questions.into_iter().unzip();
            let shard = self.local(shard);
            let answers = self.ask_list(shard, questions, elsewhere).await?;
            Ok::<_, Unavailable>(numbers.into_iter().zip(answers).collect::<Vec<_>>())
        });
        Ok(try_join_all(asked).await?.into_iter().flatten().collect())
    }
}
