//! Routes requests of peers to the groups of their shards.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};

use base::ShardId;
use bytes::Bytes;
use consensus::{BulkReply, CatchUpPace, Consensus, LogEnd, ReceivedAppend, Starvation};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use links::{
    Declined, IncomingAppend, IncomingAppends, Lane, Links, Message, NodeId, Request, Service,
};
use parking_lot::{Mutex, RwLock};
use tasks::{Failure, Task};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::proxy::Proxy;
use crate::roster::Roster;
use crate::succession::{Succession, looks_gone};
use crate::wire::{ControlRequest, Opinion, Process, is_there};

/// The groups with this node as a member, by shard. Clones share them.
#[derive(Clone, Default, Debug)]
pub struct Groups(Arc<State>);

#[derive(Default)]
struct State {
    groups: RwLock<BTreeMap<ShardId, Member>>,
    links: OnceLock<Weak<Links>>,
    roster: OnceLock<Weak<Roster>>,
    proxy: RwLock<Option<Arc<dyn Proxy>>>,
    heard: watch::Sender<BTreeMap<NodeId, Bytes>>,
    catch_up_pace: CatchUpPace,
    starvation: Starvation,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shards: Vec<_> = self.groups.read().keys().copied().collect();
        f.debug_struct("State").field("shards", &shards).finish_non_exhaustive()
    }
}

/// Position of a group that changes with each entry and each vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupEnd {
    /// Latest term that this node voted in.
    pub(crate) voted: u64,
    pub(crate) log: LogEnd,
}

#[derive(Debug)]
struct Member {
    group: Consensus,
    succession: AbortHandle,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.succession.abort();
    }
}

impl Groups {
    /// Rate limit of received snapshots, shared by all groups.
    pub fn catch_up_pace(&self) -> &CatchUpPace {
        &self.0.catch_up_pace
    }

    /// Delay of due tasks in this process.
    pub fn starvation(&self) -> &Starvation {
        &self.0.starvation
    }

    /// Sets the links that serve these groups; to be called once, before a group joins.
    pub fn link(&self, links: &Arc<Links>) {
        tasks::spawn(Task::ConsensusRole, self.0.starvation.measure());
        let linked = self.0.links.set(Arc::downgrade(links));
        debug_assert!(linked.is_ok(), "groups are served by one node's links");
    }

    /// Routes requests for the shard to the group, in place of a former one, and watches for a dead leader
    /// process. `failure` is set if the watching task panics.
    pub fn join(&self, shard: ShardId, group: Consensus, failure: &Failure) {
        let links = self.0.links.get().cloned().unwrap_or_default();
        let succession = Succession::new(links, shard, group.clone()).run();
        let succession = tasks::vital(Task::Succession, succession, failure).abort_handle();
        let former = self.0.groups.write().insert(shard, Member { group, succession });
        drop(former);
    }

    /// Routes no more requests to the group.
    pub fn leave(&self, shard: ShardId) {
        let left = self.0.groups.write().remove(&shard);
        drop(left);
    }

    /// Serves the requests of the proxy lane, in place of a former proxy. Without a proxy such requests are
    /// declined as [`Declined::NotServed`].
    pub fn serve_proxy(&self, proxy: Arc<dyn Proxy>) {
        *self.0.proxy.write() = Some(proxy);
    }

    /// The last gossip of each peer. It changes only when its payload does, though peers repeat it each second.
    pub fn latest_gossip(&self) -> watch::Receiver<BTreeMap<NodeId, Bytes>> {
        self.0.heard.subscribe()
    }

    /// Drops the gossip of nodes that have left the cluster.
    pub(crate) fn remember_only(&self, stays: impl Fn(NodeId) -> bool) {
        self.0.heard.send_if_modified(|heard| {
            let before = heard.len();
            heard.retain(|node, _| stays(*node));
            heard.len() != before
        });
    }

    /// Term of the vote and end of the log of each shard.
    pub(crate) fn ends(&self) -> Vec<(ShardId, GroupEnd)> {
        let groups = self.0.groups.read();
        let end = |(shard, member): (&ShardId, &Member)| {
            let Member { group, .. } = member;
            (*shard, GroupEnd { voted: group.voted_term(), log: group.log_end() })
        };
        groups.iter().map(end).collect()
    }

    /// Members that lost acknowledged entries, as this node found as a leader since the last call.
    pub(crate) fn take_lost(&self) -> Vec<(ShardId, u64)> {
        let groups = self.0.groups.read();
        let lost = groups.iter().flat_map(|(shard, member)| {
            member.group.take_lost_members().into_iter().map(|node| (*shard, node))
        });
        lost.collect()
    }

    /// Reports epochs of peers to this roster; to be called once.
    pub(crate) fn report_epochs(&self, roster: &Arc<Roster>) {
        let first = self.0.roster.set(Arc::downgrade(roster));
        debug_assert!(first.is_ok(), "groups belong to one node");
    }

    fn of(&self, shard: ShardId) -> Option<Consensus> {
        self.0.groups.read().get(&shard).map(|member| member.group.clone())
    }

    fn sees_process_end(&self, process: Process) -> bool {
        let links = self.0.links.get().and_then(Weak::upgrade);
        links.is_some_and(|links| looks_gone(&links, process))
    }
}

impl Service for Groups {
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Message, Declined>> {
        let Request { from, lane, shard, message, within } = request;
        if lane == Lane::Proxy {
            let proxy = self.0.proxy.read().clone();
            return match proxy {
                Some(proxy) => proxy.answer(shard, from, message, within),
                None => async { Err(Declined::NotServed) }.boxed(),
            };
        }
        if lane == Lane::Bulk {
            return match self.of(shard) {
                Some(group) => async move {
                    let BulkReply { head, piece } = group.answer_fetch(message.head).await;
                    Ok(Message { head, body: vec![piece] })
                }
                .boxed(),
                None => async { Err(Declined::NotServed) }.boxed(),
            };
        }
        let asked = ControlRequest::of(message).filter(|_| lane == Lane::Control);
        if let Some(ControlRequest::LooksGone(process)) = asked {
            let log_end = self.of(shard).map(|group| group.log_end()).unwrap_or_default();
            let opinion = Opinion { looks_gone: self.sees_process_end(process), log_end };
            return async move { Ok(opinion.into()) }.boxed();
        }
        if asked == Some(ControlRequest::AreYouThere) {
            return async { Ok(is_there()) }.boxed();
        }
        if let Some(ControlRequest::Epoch { run, epoch }) = asked {
            if let Some(roster) = self.0.roster.get().and_then(Weak::upgrade) {
                roster.receive_epoch(from, run, epoch);
            }
            return async { Ok(is_there()) }.boxed();
        }
        let Some((group, asked)) = self.of(shard).zip(asked) else {
            tracing::debug!(%from, lane = lane.name(), %shard, "what a node asks is not served here");
            return async { Err(Declined::NotServed) }.boxed();
        };
        async move {
            let answer = match asked {
                ControlRequest::Request(request) => Some(group.answer(request).await),
                ControlRequest::AppendAlone(head) => {
                    let append = ReceivedAppend { head, entries: Bytes::new() };
                    pin!(group.answer_appends(stream::iter([append]))).next().await
                }
                ControlRequest::LooksGone(_)
                | ControlRequest::AreYouThere
                | ControlRequest::Epoch { .. } => None,
            };
            answer.map(Message::from_head).ok_or(Declined::NotServed)
        }
        .boxed()
    }

    fn appends(&self, appends: IncomingAppends) -> BoxFuture<'static, ()> {
        let (from, shard) = (appends.peer(), appends.shard());
        let Some(group) = self.of(shard) else {
            tracing::debug!(%from, %shard, "entries of a shard that is not served here");
            return async {}.boxed();
        };
        async move {
            // In the order of arrival, which is that of the replies. Each keeps its slot in the window of the link
            // until it is answered.
            let unanswered = Arc::new(Mutex::new(VecDeque::<IncomingAppend>::new()));
            let taken = Arc::clone(&unanswered);
            let appends = stream::unfold((appends, taken), |(mut appends, taken)| async {
                let mut append = appends.next().await?;
                let message = append.take_message();
                taken.lock().push_back(append);
                let append = ReceivedAppend { head: message.head, entries: message.body };
                Some((append, (appends, taken)))
            });
            let mut answers = pin!(group.answer_appends(appends));
            while let Some(answer) = answers.next().await {
                let Some(append) = unanswered.lock().pop_front() else { return };
                append.answer(Message::from_head(answer)).await;
            }
        }
        .boxed()
    }

    fn gossip(&self, from: NodeId, payload: Bytes) {
        self.0.heard.send_if_modified(|heard| {
            let is_new = heard.get(&from) != Some(&payload);
            if is_new {
                heard.insert(from, payload);
            }
            is_new
        });
    }
}
