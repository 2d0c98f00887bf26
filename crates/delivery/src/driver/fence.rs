//! The fence at the start of a term, before its first delivery.
//!
//! A driver knows only in memory for which transfers it withholds records. Another shard may decide on such a transfer,
//! or have decided, when the term is over. So a new term first has every other shard refuse transfers for which an
//! earlier term withheld records, and waits for the messages that they sent until then. After that no record is
//! delivered whose settle was decided.

use std::sync::Arc;
use std::time::Duration;

use base::{Level, ShardId};
use futures_util::FutureExt;
use futures_util::future::join_all;
use machine::{Command, Outcome};
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
        let (own, shards) = self.shard.read(|view| (view.shard, view.catalog.shard_count()));
        let others: Vec<ShardId> =
            (1..=shards).map(ShardId).filter(|other| *other != own).collect();
        if others.is_empty() || self.shard.level.now() < Level::MESSAGE_COMMANDS {
            self.fence = Fence::Closed;
            return;
        }
        let (cancel, cancelled) = oneshot::channel::<()>();
        self.fence = Fence::Pending { _cancel: cancel };
        let (shard, peers, term) = (Arc::clone(&self.shard), Arc::clone(&self.peers), self.term);
        let fencing = async move {
            let all = others.into_iter().map(|other| fence(&shard, &peers, own, other, term));
            tokio::select! {
                biased;
                fenced = timeout(FENCED_WITHIN, join_all(all)) => {
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
}

/// Resolves once the shard sends nothing more that this one prepared for before the term, and all that it sent before
/// has arrived.
async fn fence(shard: &Shard, peers: &Peers, own: ShardId, other: ShardId, term: u64) {
    loop {
        let (reply, answer) = oneshot::channel();
        let command = Command::Fence { shard: own, term };
        peers.request(other, Request::Execute { command, reply });
        match answer.await {
            Ok(Ok(Outcome::Fenced { end })) => {
                while shard.rows().channels().expected(other) < end {
                    sleep(CHECK_INTERVAL).await;
                }
                return;
            }
            // This node is about to end: another node's end is reported as no answer.
            Ok(Err(ExecuteError::Unavailable(Unavailable::Stopping | Unavailable::Failed(_)))) => {
                return;
            }
            _ => sleep(RETRY_DELAY).await,
        }
    }
}
