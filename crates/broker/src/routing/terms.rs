//! Terms in which this node leads a shard. Its cached state of a consumer group is valid in one term only, and
//! requests that wait here must learn of another leader.

use std::future::pending;

use base::ShardId;
use consensus::Role;
use futures_util::future::{BoxFuture, FutureExt, select_all};
use tokio::sync::watch;

use crate::broker::Broker;

/// A term in which this node leads a home shard of groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HomeTerm {
    pub shard: ShardId,
    /// Unique: not reused after another node led.
    pub term: u64,
}

impl HomeTerm {
    /// Term of all groups on a node that is alone: it lasts as long as the node.
    const ALONE: Self = Self { shard: ShardId::CATALOG, term: 0 };
}

/// This node's role for a consumer group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coordination {
    /// It coordinates the group.
    Here(HomeTerm),
    /// It was elected, and has not applied all earlier commits yet.
    Loading,
    /// Another node coordinates the group, or none does.
    Elsewhere,
}

impl Broker {
    /// Whether this node coordinates the group, and in which term.
    pub fn coordination(&self, group: &str) -> Coordination {
        if self.is_alone() {
            return Coordination::Here(HomeTerm::ALONE);
        }
        let home = self.home_of(group);
        match home.serves_in() {
            Some(term) => Coordination::Here(HomeTerm { shard: home.id(), term }),
            None if home.is_led_here() => Coordination::Loading,
            None => Coordination::Elsewhere,
        }
    }

    /// Whether the term still lasts.
    pub fn still_leads(&self, home: HomeTerm) -> bool {
        if self.is_alone() {
            return home == HomeTerm::ALONE;
        }
        let shard = self.shards_with_rows().iter().find(|shard| shard.id() == home.shard);
        shard.is_some_and(|shard| shard.serves_in() == Some(home.term))
    }

    /// Returns a watch of changes after this call.
    pub fn leader_changes(&self) -> LeaderChanges {
        let roles = self.shards_with_rows().iter().filter_map(|shard| shard.role());
        let as_seen = |mut role: watch::Receiver<Role>| {
            role.mark_unchanged();
            role
        };
        LeaderChanges(roles.map(as_seen).collect())
    }
}

/// Watch of changes of leadership: a shard with rows gets another leader, or loses its leader.
#[derive(Debug)]
pub struct LeaderChanges(Vec<watch::Receiver<Role>>);

impl LeaderChanges {
    /// Returns once leadership has changed since the last call. Never on a node that is alone.
    pub async fn next(&mut self) {
        let changes: Vec<_> = self.0.iter_mut().map(changed).collect();
        match changes.is_empty() {
            true => pending().await,
            false => drop(select_all(changes).await),
        }
    }
}

fn changed(role: &mut watch::Receiver<Role>) -> BoxFuture<'_, ()> {
    let changed = async {
        if role.changed().await.is_err() {
            // The end of a shard is the end of the node, and no change.
            pending().await
        }
    };
    changed.boxed()
}
