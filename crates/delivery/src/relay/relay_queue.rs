//! The connection to the leader, once the relay has begun: batches in order, a few in flight, in both
//! directions.
//!
//! Requests of a link may overtake one another, so batches are numbered and processed in order. Events of
//! sessions come as replies: some polls are always pending at the leader.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::limits::RELAY_BATCHES_IN_FLIGHT;
use base::ShardId;
use bytes::Bytes;
use cluster::Node;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use links::{Message, NodeId, ReceivedMessage, RequestError};
use shard_peers::limits::REMOTE_ANSWERED_WITHIN;
use world::Instant;

use super::frame::{self, MalformedFrame, RelayId, Reply, Request};
use super::items::{RelayCommand, RelayNotification, RequestId};

pub(super) type LinkReply = Result<ReceivedMessage, RequestError>;

/// Messages to send, in order.
pub(super) enum OutboundItem {
    Command(RelayCommand),
    /// A request that awaits a reply.
    Request(RequestId),
}

/// A reply from the leader.
pub(super) enum LeaderReply {
    Accepted(LinkReply),
    Notifications(u64, LinkReply),
}

/// A batch under construction.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Vec<u8>>,
    pub(super) body: Vec<Bytes>,
    pub(super) bytes: usize,
}

impl Batch {
    pub(super) fn add(&mut self, item: Vec<u8>, body: Vec<Bytes>) {
        self.bytes += item.len() + body.iter().map(Bytes::len).sum::<usize>();
        self.items.push(item);
        self.body.extend(body);
    }
}

/// Why a relay is over.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    #[error("the leader has ended it")]
    Ended,
    #[error(transparent)]
    Link(#[from] RequestError),
    #[error("what the leader says is not understood: {0}")]
    Malformed(#[from] MalformedFrame),
    #[error("another node leads, or in another term")]
    Moved,
}

pub(super) struct RelayQueue {
    pub(super) leader: Leader,
    relay: RelayId,
    pub(super) outbound: VecDeque<OutboundItem>,
    next_sent: u64,
    sends_in_flight: usize,
    next_poll: u64,
    next_received: u64,
    early: BTreeMap<u64, (Vec<RelayNotification>, Bytes)>,
    requests: FuturesUnordered<BoxFuture<'static, LeaderReply>>,
}

/// The relay's leader.
#[derive(Clone)]
pub(super) struct Leader {
    pub(super) here: Arc<Node>,
    pub(super) node: NodeId,
    pub(super) shard: ShardId,
    /// Its term; `None`: not known.
    pub(super) term: Option<u64>,
}

impl Leader {
    pub(super) fn request(&self, message: Message) -> BoxFuture<'static, LinkReply> {
        let Self { here, node, shard, .. } = self.clone();
        let deadline = Instant::now() + REMOTE_ANSWERED_WITHIN;
        async move { here.ask(node, shard, message, deadline).await }.boxed()
    }
}

impl RelayQueue {
    pub(super) fn new(leader: Leader, relay: RelayId) -> Self {
        let mut queue = Self {
            leader,
            relay,
            outbound: VecDeque::new(),
            next_sent: 0,
            sends_in_flight: 0,
            next_poll: 0,
            next_received: 0,
            early: BTreeMap::new(),
            requests: FuturesUnordered::new(),
        };
        (0..RELAY_BATCHES_IN_FLIGHT).for_each(|_| queue.poll());
        queue
    }

    pub(super) fn may_send(&self) -> bool {
        self.sends_in_flight < RELAY_BATCHES_IN_FLIGHT
    }

    pub(super) fn send(&mut self, batch: Batch, catalog: u64) {
        let Batch { items, body, .. } = batch;
        let (relay, number) = (self.relay, self.next_sent);
        self.next_sent += 1;
        self.sends_in_flight += 1;
        let request = Request::Send { relay, number, catalog, items: items.len() as u32 };
        let reply = self.leader.request(frame::request_with_items(&request, &items, body));
        self.requests.push(reply.map(LeaderReply::Accepted).boxed());
    }

    fn poll(&mut self) {
        let (relay, number) = (self.relay, self.next_poll);
        self.next_poll += 1;
        let reply = self.leader.request(frame::request(&Request::Poll { relay, number }));
        self.requests
            .push(reply.map(move |reply| LeaderReply::Notifications(number, reply)).boxed());
    }

    /// Waits for the next reply. Cancel safe.
    pub(super) async fn next_reply(&mut self) -> LeaderReply {
        match self.requests.next().await {
            Some(reply) => reply,
            // Some polls are always pending.
            None => std::future::pending().await,
        }
    }

    /// Returns the batches that are next in order.
    pub(super) fn on_reply(
        &mut self,
        reply: LeaderReply,
    ) -> Result<Vec<(Vec<RelayNotification>, Bytes)>, RelayError> {
        let (number, reply) = match reply {
            LeaderReply::Accepted(reply) => {
                self.sends_in_flight -= 1;
                return match frame::read_reply(reply?)? {
                    (Reply::Accepted, ..) => Ok(Vec::new()),
                    _ => Err(RelayError::Ended),
                };
            }
            LeaderReply::Notifications(number, reply) => (number, reply),
        };
        let (Reply::Notifications { .. }, items, body) = frame::read_reply(reply?)? else {
            return Err(RelayError::Ended);
        };
        self.early.insert(number, (items, body));
        let mut next = Vec::new();
        while let Some(batch) = self.early.remove(&self.next_received) {
            self.next_received += 1;
            next.push(batch);
            self.poll();
        }
        Ok(next)
    }
}
