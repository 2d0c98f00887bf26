//! The connection to the leader, once the relay has begun: batches in order, a few in flight, in both
//! directions.
//!
//! Requests of a link may overtake one another, so batches are numbered and processed in order. Events of
//! sessions come as replies: some polls (`Hear`) are always pending at the leader.

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
use super::items::{AskId, RelayCommand, RelayNotification};

pub(super) type LinkReply = Result<ReceivedMessage, RequestError>;

/// Messages to send, in order.
pub(super) enum OutboundItem {
    Said(RelayCommand),
    /// A request that awaits a reply.
    Ask(AskId),
}

/// A reply from the leader.
pub(super) enum LeaderReply {
    Taken(LinkReply),
    Heard(u64, LinkReply),
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
    pub(super) queue: VecDeque<OutboundItem>,
    next_said: u64,
    said_in_flight: usize,
    next_asked: u64,
    next_heard: u64,
    early: BTreeMap<u64, (Vec<RelayNotification>, Bytes)>,
    asks: FuturesUnordered<BoxFuture<'static, LeaderReply>>,
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
    pub(super) fn ask(&self, message: Message) -> BoxFuture<'static, LinkReply> {
        let Self { here, node, shard, .. } = self.clone();
        let deadline = Instant::now() + REMOTE_ANSWERED_WITHIN;
        async move { here.ask(node, shard, message, deadline).await }.boxed()
    }
}

impl RelayQueue {
    pub(super) fn new(leader: Leader, relay: RelayId) -> Self {
        let mut line = Self {
            leader,
            relay,
            queue: VecDeque::new(),
            next_said: 0,
            said_in_flight: 0,
            next_asked: 0,
            next_heard: 0,
            early: BTreeMap::new(),
            asks: FuturesUnordered::new(),
        };
        (0..RELAY_BATCHES_IN_FLIGHT).for_each(|_| line.hear());
        line
    }

    pub(super) fn may_say(&self) -> bool {
        self.said_in_flight < RELAY_BATCHES_IN_FLIGHT
    }

    pub(super) fn say(&mut self, batch: Batch, catalog: u64) {
        let Batch { items, body, .. } = batch;
        let (relay, number) = (self.relay, self.next_said);
        self.next_said += 1;
        self.said_in_flight += 1;
        let request = Request::Say { relay, number, catalog, items: items.len() as u32 };
        let answered = self.leader.ask(frame::say(&request, &items, body));
        self.asks.push(answered.map(LeaderReply::Taken).boxed());
    }

    fn hear(&mut self) {
        let (relay, number) = (self.relay, self.next_asked);
        self.next_asked += 1;
        let answered = self.leader.ask(frame::request(&Request::Hear { relay, number }));
        self.asks.push(answered.map(move |answered| LeaderReply::Heard(number, answered)).boxed());
    }

    /// Waits for the next reply. Cancel safe.
    pub(super) async fn next_reply(&mut self) -> LeaderReply {
        match self.asks.next().await {
            Some(came) => came,
            // Some polls are always pending.
            None => std::future::pending().await,
        }
    }

    /// Returns the batches that are next in order.
    pub(super) fn on_came(
        &mut self,
        came: LeaderReply,
    ) -> Result<Vec<(Vec<RelayNotification>, Bytes)>, RelayError> {
        let (number, answered) = match came {
            LeaderReply::Taken(answered) => {
                self.said_in_flight -= 1;
                return match frame::read_reply(answered?)? {
                    (Reply::Taken, ..) => Ok(Vec::new()),
                    _ => Err(RelayError::Ended),
                };
            }
            LeaderReply::Heard(number, answered) => (number, answered),
        };
        let (Reply::Heard { .. }, items, body) = frame::read_reply(answered?)? else {
            return Err(RelayError::Ended);
        };
        self.early.insert(number, (items, body));
        let mut next = Vec::new();
        while let Some(batch) = self.early.remove(&self.next_heard) {
            self.next_heard += 1;
            next.push(batch);
            self.hear();
        }
        Ok(next)
    }
}
