//! What this node answers to requests for shards that it leads.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::ShardId;
use cluster::Proxy;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use links::{Declined, Message, NodeId, Received};

use crate::peers::Peers;
use crate::remote::wire::{self, Decoded};

/// Answers other nodes for as long as the broker is open.
#[derive(Debug)]
pub(crate) struct LedHere(Weak<Peers>);

impl LedHere {
    pub(crate) fn new(peers: &Arc<Peers>) -> Arc<Self> {
        Arc::new(Self(Arc::downgrade(peers)))
    }
}

impl Proxy for LedHere {
    fn answer(
        &self,
        shard: ShardId,
        from: NodeId,
        request: Received,
        _: Duration,
    ) -> BoxFuture<'static, Result<Message, Declined>> {
        let Some(peers) = self.0.upgrade() else {
            return async { Err(Declined::NotServed) }.boxed();
        };
        let (request, asking) = match wire::decode(request) {
            Some(Decoded::Request(request, asking)) => (request, asking),
            Some(Decoded::Relay(head, body)) => {
                return async move {
                    let answer = peers.relay_here(shard, from, head, body).await;
                    answer.ok_or(Declined::NotServed)
                }
                .boxed();
            }
            None => {
                tracing::warn!(%from, %shard, "a request is not understood: is that node of a later version?");
                return async { Err(Declined::NotServed) }.boxed();
            }
        };
        peers.request_here(shard, request);
        async move {
            let answer = asking.answer(|| peers.applied(shard)).await;
            answer.map(Message::of_head).ok_or(Declined::NotServed)
        }
        .boxed()
    }
}
