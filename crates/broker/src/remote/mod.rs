//! Requests for shards that another node leads: they go there, and so do their answers come back.
//!
//! A request that got no answer may have been carried out. Who asked hears [`Unavailable::Unanswered`], and asks
//! again only what may be done twice: channels number their messages, a change of the catalog names the version
//! that it is for.
//!
//! * `wire`: how requests and answers lie in a message; `crate::proxy` answers them

pub(crate) mod wire;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base::ShardId;
use base::limits::REMOTE_ANSWERED_WITHIN;
use cluster::Node;
use links::{NodeId, RequestError};
use tasks::Task;
use tokio::time::timeout;
use world::Instant;

use crate::error::Unavailable;
use crate::request::Request;
use crate::shard::Shard;

use wire::{Awaiting, Executed};

/// A change that another node made in the catalog is waited for so long in this node's copy.
const SEEN_WITHIN: Duration = Duration::from_secs(5);

/// The way to the leaders among the other nodes.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    node: Arc<Node>,
    /// This node's copy, once it is open.
    catalog: Arc<OnceLock<Weak<Shard>>>,
}

impl Remote {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        Self { node: Arc::clone(node), catalog: Arc::default() }
    }

    /// What is changed in the catalog elsewhere is waited for here.
    pub(crate) fn knows_catalog(&self, catalog: &Arc<Shard>) {
        let _ = self.catalog.set(Arc::downgrade(catalog));
    }

    /// Sends the request before this returns, and its answer comes by itself.
    pub(crate) fn request(&self, leader: u64, shard: ShardId, request: Request) {
        let (message, awaiting) = match wire::encode(request) {
            Ok(encoded) => encoded,
            Err(request) => return request.refuse(&Unavailable::NotLeader),
        };
        let remote = self.clone();
        tasks::spawn(Task::RemoteRequest, async move {
            let deadline = Instant::now() + REMOTE_ANSWERED_WITHIN;
            match remote.node.ask(NodeId(leader), shard, message, deadline).await {
                Ok(answer) => remote.answer(shard, awaiting, &answer.head).await,
                Err(error) => awaiting.fail(&unanswered(&error)),
            }
        });
    }

    async fn answer(&self, shard: ShardId, awaiting: Awaiting, answer: &[u8]) {
        match awaiting.answered(answer) {
            None => {}
            Some(Executed { index, reply, result }) => {
                if shard == ShardId::CATALOG {
                    self.seen(index).await;
                }
                // Who asked may be gone.
                let _ = reply.send(result);
            }
        }
    }

    /// Waits until this node's copy of the catalog has what is in the log up to there.
    async fn seen(&self, index: u64) {
        let Some(catalog) = self.catalog.get().and_then(Weak::upgrade) else { return };
        if timeout(SEEN_WITHIN, catalog.applied_to(index)).await.is_err() {
            tracing::warn!(index, "this node's copy of the catalog is behind");
        }
    }
}

fn unanswered(error: &RequestError) -> Unavailable {
    match error.is_not_sent() {
        true => Unavailable::NotLeader,
        false => Unavailable::Unanswered,
    }
}
