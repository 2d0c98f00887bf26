//! Fences: other shards refuse transfers for which this one withholds records no longer.
//!
//! A driver knows only in memory for which transfers it withholds records. Another shard may decide on such a transfer,
//! or have decided, when the term is over. So a new term fences every other shard before its first delivery: they refuse
//! transfers for which an earlier term withheld records, and this shard waits for the messages that they sent until then.
//! After that no record is delivered whose settle was decided. `withholding` does the same for sessions that have ended.

use std::sync::Arc;
use std::time::Duration;

use base::{Level, ShardId};
use futures_util::FutureExt;
use futures_util::future::join_all;
use machine::{Command, Outcome, Preparation};
use shard::Shard;
use shard::error::{ExecuteError, Unavailable};
use shard::request::Request;
use shard_peers::Peers;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::{Driver, Purpose};
use crate::commit::FinishedCommit;
use crate::limits::FENCED_WITHIN;

/// Delay before another attempt while a shard has no leader.
const RETRY_DELAY: Duration = Duration::from_millis(50);
/// Interval of checks for messages that are on their way here.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// State of the fence of a term.
pub(super) enum Fence {
    /// Nothing is to be delivered yet.
    Needed,
    /// Dropping the sender ends the attempt.
    Pending {
        _cancel: oneshot::Sender<()>,
    },
    Closed,
}

impl Driver {
    /// Whether records may be delivered. The first call begins to fence the other shards.
    pub(super) fn is_fenced(&mut self) -> bool {
        if let Fence::Needed = self.fence {
            self.begin_fence();
        }
        matches!(self.fence, Fence::Closed)
    }

    fn begin_fence(&mut self) {
        let shards = self.shard.read(|view| view.catalog.shard_count());
        if shards == 1 || self.shard.level.now() < Level::MESSAGE_COMMANDS {
            self.fence = Fence::Closed;
            return;
        }
        let (cancel, cancelled) = oneshot::channel::<()>();
        self.fence = Fence::Pending { _cancel: cancel };
        let own = self.shard.role().shard();
        let all = self.fence_others(Preparation { term: self.term, number: 0 });
        let fencing = async move {
            tokio::select! {
                biased;
                fenced = timeout(FENCED_WITHIN, all) => {
                    if fenced.is_err() {
                        tracing::warn!(shard = %own, "another shard has no leader: records of a transaction that it \
                            decided may be delivered once more");
                    }
                }
                _ = cancelled => {}
            }
            FinishedCommit::without_request(Purpose::Fence)
        };
        self.commits.push(fencing.boxed());
    }

    pub(super) fn on_fenced(&mut self) {
        self.fence = Fence::Closed;
    }

    /// Ends all fences: the driver delivers no more records in this term.
    pub(super) fn end_fences(&mut self) {
        (self.fence, self.resolution) = (Fence::Closed, None);
        self.withholdings.clear();
    }

    /// Resolves once the other shards refuse transfers with earlier preparations of this shard, and all messages that
    /// they sent before have arrived. `false`: this node is about to end.
    pub(super) fn fence_others(&self, before: Preparation) -> impl Future<Output = bool> + use<> {
        let (own, shards) = self.shard.read(|view| (view.shard, view.catalog.shard_count()));
        let (shard, peers) = (Arc::clone(&self.shard), Arc::clone(&self.peers));
        async move {
            let others = (1..=shards).map(ShardId).filter(|other| *other != own);
            let all = others.map(|other| fence(&shard, &peers, own, other, before));
            join_all(all).await.into_iter().all(|is_fenced| is_fenced)
        }
    }
}

/// Fences one other shard: see [`Driver::fence_others`].
async fn fence(
    shard: &Shard,
    peers: &Peers,
    own: ShardId,
    other: ShardId,
    before: Preparation,
) -> bool {
    loop {
        let (reply, answer) = oneshot::channel();
        let command = Command::Fence { shard: own, before };
        peers.request(other, Request::Execute { command, reply });
        match answer.await {
            Ok(Ok(Outcome::Fenced { end })) => {
                while shard.rows().channels().expected(other) < end {
                    sleep(CHECK_INTERVAL).await;
                }
                return true;
            }
            // This node is about to end: another node's end is reported as no answer.
            Ok(Err(ExecuteError::Unavailable(Unavailable::Stopping | Unavailable::Failed(_)))) => {
                return false;
            }
            _ => sleep(RETRY_DELAY).await,
        }
    }
}
