//! Queries all nodes with a replica of a shard for the history of a record.

use std::collections::{BTreeMap, BTreeSet};

use base::{LeaseGroupId, Offset, PartitionId, ShardId};
use delivery::drivers::node_of;
use dispatch::{SessionId, StepKind};
use futures_util::future::{join, join_all};
use shard::delivery::history::{HistoryQuery, HistoryReply, SessionUser, UnsettledRecord};

use crate::broker::Broker;
use crate::limits::HISTORY_WITHIN;

/// History of a record.
#[derive(Clone, Debug, Default)]
pub struct RecordHistory {
    /// State of the record in each queried group, in their order; `None` in it: settled. `None` as a whole: no
    /// leader has replied.
    pub standings: Option<Vec<Option<UnsettledRecord>>>,
    /// By time.
    pub events: Vec<HistoryEvent>,
    /// Steps before this time are not remembered by every queried node.
    pub since_ms: Option<i64>,
    /// Nodes that did not reply.
    pub silent: Vec<u32>,
    /// The users of the sessions in the history, as far as known.
    pub users: BTreeMap<SessionId, SessionUser>,
}

/// A step of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryEvent {
    /// By the clock of the node.
    pub at_ms: i64,
    /// The leader of the shard at that time.
    pub node: u32,
    pub group: LeaseGroupId,
    pub what: StepKind,
    /// 0: no session.
    pub session: SessionId,
    /// 1: the first delivery; 0: no delivery.
    pub attempt: u16,
}

impl Broker {
    /// State of a record in these groups of its topic, and its past steps. The leader is among the queried
    /// nodes.
    #[tasks::boxed]
    pub async fn record_history(
        &self,
        partition: PartitionId,
        offset: Offset,
        groups: Vec<LeaseGroupId>,
    ) -> RecordHistory {
        let look = HistoryQuery { groups, partition: partition.index, offset };
        let local = self.shard_of(partition);
        let (shard, leader) = (local.id(), local.leader());
        let here = self.node();
        let others = local.replicas().into_iter().filter(|node| *node != here);
        let remote = self.peers().remote();
        let replies = others.map(async |node| {
            let reply = match remote {
                Some(remote) => remote.history(node, shard, &look, HISTORY_WITHIN).await.ok(),
                None => None,
            };
            (node, reply)
        });
        // A node without a replica knows nothing, which does not mean that nothing happened.
        let ours = async {
            match local.has_rows() {
                true => {
                    Some((here, Some(local.record_history(look.clone(), HISTORY_WITHIN).await)))
                }
                false => None,
            }
        };
        let (ours, others) = join(ours, join_all(replies)).await;
        let mut history = RecordHistory::default();
        for (node, reply) in ours.into_iter().chain(others) {
            let Some(HistoryReply { standings, since_ms, past }) = reply else {
                history.silent.push(node);
                continue;
            };
            if standings.is_some() && (history.standings.is_none() || leader == Some(node)) {
                history.standings = standings;
            }
            history.since_ms = history.since_ms.max(since_ms);
            history.events.extend(past.into_iter().map(|past| HistoryEvent {
                at_ms: past.at_ms,
                node,
                group: past.group,
                what: past.what,
                session: past.session,
                attempt: past.attempt,
            }));
        }
        // The sort is stable: steps of one node stay in order.
        history.events.sort_by_key(|event| event.at_ms);
        history.users = self.users_of(shard, history.sessions()).await;
        history
    }

    /// The user of a session of this node. `None`: another node's session, or forgotten.
    pub fn session_user(&self, session: SessionId) -> Option<SessionUser> {
        self.peers().session_users().of(session)
    }

    /// Queries each node for the users of its own sessions.
    pub(super) async fn users_of(
        &self,
        shard: ShardId,
        sessions: BTreeSet<SessionId>,
    ) -> BTreeMap<SessionId, SessionUser> {
        let (known, remote) = (self.peers().session_users(), self.peers().remote());
        let mut of_nodes: BTreeMap<u32, Vec<SessionId>> = BTreeMap::new();
        let mut users = BTreeMap::new();
        for session in sessions {
            match u32::try_from(node_of(session)) {
                Ok(node) if remote.is_some() && node != self.node() => {
                    of_nodes.entry(node).or_default().push(session);
                }
                _ => users.extend(known.of(session).map(|user| (session, user))),
            }
        }
        let replies = of_nodes.into_iter().map(async |(node, sessions)| match remote {
            Some(remote) => {
                let reply = remote.session_users(node, shard, &sessions, HISTORY_WITHIN).await;
                let reply = reply.unwrap_or_default().into_iter();
                sessions.into_iter().zip(reply).collect()
            }
            None => Vec::new(),
        });
        let reply = join_all(replies).await.into_iter().flatten();
        users.extend(reply.filter_map(|(session, user)| Some((session, user?))));
        users
    }
}

impl RecordHistory {
    fn sessions(&self) -> BTreeSet<SessionId> {
        let held = self.standings.iter().flatten().flatten().filter_map(UnsettledRecord::session);
        let all = self.events.iter().map(|event| event.session).chain(held);
        all.filter(|session| *session != 0).collect()
    }
}
