//! A leader's offers of a snapshot: the first one begins the transfer, each is answered with its progress.

use std::sync::Arc;

use tasks::Task;

use super::fetching::Source;
use crate::consensus::Consensus;
use crate::encoding::{Position, VoteRecord};
use crate::engine::Vote;
use crate::message::{self, OfferReply, Refusal, Reply, SnapshotOffer};
use crate::peers::MessageTarget;
use crate::transfer::Fetch;

impl Source for Fetch {
    fn target(&self) -> &MessageTarget {
        &self.from
    }

    fn is_wanted(&self) -> bool {
        self.is_offered()
    }
}

impl Consensus {
    pub(crate) async fn answer_offer(
        &self,
        from: u64,
        offer: SnapshotOffer,
    ) -> Result<Reply, Refusal> {
        let SnapshotOffer { leader, last, address } = offer;
        let last = last.ok_or_else(|| Refusal::Malformed("it offers nothing".to_owned()))?;
        let own = self.vote();
        if own > message::vote_of(leader) {
            return Ok(Reply::Offered(OfferReply::HigherVote(VoteRecord::from(&own))));
        }
        if self.has(last) {
            // Counted from here on like an acknowledged append.
            self.snapshots.durable().await.map_err(|_| Refusal::Stopped)?;
            return Ok(Reply::Offered(OfferReply::Has));
        }
        let source = MessageTarget { node: from, address };
        Ok(Reply::Offered(self.fetch(source, leader)))
    }

    fn vote(&self) -> Vote {
        use openraft::async_runtime::WatchReceiver;
        self.server.borrow_watched().vote
    }

    /// Whether the log, or the snapshot before it, has this entry.
    pub(super) fn has(&self, last: Position) -> bool {
        let purged = self.journal.purged_id();
        let entry = self.journal.entry_id(last.index);
        purged.is_some_and(|id| id.index >= last.index)
            || entry.is_some_and(|id| id.term == last.term)
    }

    /// Continues to fetch the offered snapshot, or begins to.
    fn fetch(&self, from: MessageTarget, leader: VoteRecord) -> OfferReply {
        self.reception.offered(from, leader, |fetch| {
            let (consensus, fetched) = (self.clone(), Arc::clone(fetch));
            let fetching = tasks::spawn(Task::SnapshotFetching, async move {
                let result = consensus.fetch_snapshot(&fetched).await;
                consensus.reception.ended(&fetched, &result);
            });
            fetching.abort_handle()
        })
    }
}
