//! The leader's side of relays: the relays of other nodes to shards of this node, and the replies to their
//! requests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::ShardId;
use bytes::Bytes;
use consensus::Role;
use links::{Message, NodeId};
use parking_lot::Mutex;
use shard_peers::ServingShard;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::frame::{self, BeginRelay, MalformedFrame, RelayId, Reply, Request};
use super::items::RelayCommand;
use super::served_relay::{EndConditions, ServedRelay};

/// Limit of the wait until this node's catalog has caught up with the requesting node's.
const CATALOG_SEEN_WITHIN: Duration = Duration::from_secs(5);

/// The relays of other nodes to shards of this one: at most one per node and shard.
#[derive(Debug, Default)]
pub struct Relays {
    all: Mutex<BTreeMap<(NodeId, ShardId), Entry>>,
    last: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// Boot number of the other node, and number of its attempt.
    begun: (u64, u64),
    served: Arc<ServedRelay>,
}

impl Relays {
    /// Replies to a relay's message. `None`: it is malformed.
    pub async fn answer(
        &self,
        led: ServingShard,
        from: NodeId,
        head: Bytes,
        body: Bytes,
    ) -> Option<Message> {
        let (request, commands, body) = match frame::read_request(&head, body) {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(%from, %error, "a relay is not understood: is that node of a later version?");
                return None;
            }
        };
        let reply = match request {
            Request::Begin(begin) => self.begin(led, from, begin),
            Request::Send { relay, number, catalog, .. } => {
                let seen = timeout(CATALOG_SEEN_WITHIN, led.shard.catalog_applied_to(catalog));
                if seen.await.is_err() {
                    tracing::warn!(catalog, "this node's copy of the catalog is behind");
                }
                match self.of(from, led.shard.role().shard(), relay) {
                    Some(served) => accept_commands(&served, number, commands, body).await,
                    None => Reply::Over,
                }
            }
            Request::Poll { relay, number } => {
                let Some(served) = self.of(from, led.shard.role().shard(), relay) else {
                    return Some(frame::reply(&Reply::Over));
                };
                return Some(next_notifications(&served, number).await);
            }
        };
        Some(frame::reply(&reply))
    }

    fn of(&self, from: NodeId, shard: ShardId, relay: RelayId) -> Option<Arc<ServedRelay>> {
        let all = self.all.lock();
        let served = &all.get(&(from, shard))?.served;
        (served.relay == relay).then(|| Arc::clone(served))
    }

    fn begin(&self, led: ServingShard, from: NodeId, begin: BeginRelay) -> Reply {
        let Role::Leader { term } = *led.role.borrow() else { return Reply::Over };
        if begin.term.is_some_and(|known| known != term) {
            return Reply::Over;
        }
        let place = (from, led.shard.role().shard());
        let begun = (begin.boot, begin.attempt);
        let mut all = self.all.lock();
        let suspended = match all.get(&place) {
            Some(former) if former.begun >= begun => return Reply::Over,
            // It ends before the next one opens the same sessions.
            Some(former) => former.served.replace(),
            None => BTreeSet::new(),
        };
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let relay = RelayId { boot: led.node.identity().at.boot, number };
        let watched =
            EndConditions { node: led.node, role: led.role, term, from, boot: begin.boot };
        let served = ServedRelay::begin(relay, led.handle, watched, suspended);
        all.insert(place, Entry { begun, served });
        Reply::Begun { relay, term }
    }
}

async fn accept_commands(
    served: &Arc<ServedRelay>,
    number: u64,
    commands: Vec<RelayCommand>,
    body: Bytes,
) -> Reply {
    match served.accept(number, commands, body) {
        Ok(true) => {
            served.has_room().await;
            Reply::Accepted
        }
        Ok(false) => Reply::Over,
        Err(error) => refused(served, &error),
    }
}

fn refused(served: &ServedRelay, error: &MalformedFrame) -> Reply {
    tracing::warn!(from = %served.from, %error, "what another node's relay says is refused");
    served.end();
    Reply::Over
}

/// Waits for output to the other node. If this future is dropped before, the other node's connection has ended,
/// which ends the relay.
async fn next_notifications(served: &Arc<ServedRelay>, number: u64) -> Message {
    struct RelayEndGuard<'a>(Option<&'a ServedRelay>);
    impl Drop for RelayEndGuard<'_> {
        fn drop(&mut self) {
            if let Some(served) = self.0 {
                served.end();
            }
        }
    }
    let (reply, notifications) = oneshot::channel();
    served.poll(number, reply);
    let mut ends = RelayEndGuard(Some(served));
    let notifications = notifications.await;
    ends.0 = None;
    notifications.unwrap_or_else(|_| frame::reply(&Reply::Over))
}
