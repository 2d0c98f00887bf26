//! For how long this node leads what: what it remembers of a group of consumers is true in one term only, and who
//! waits here must hear when another node leads.

use std::future::pending;

use base::ShardId;
use consensus::Role;
use futures_util::future::{BoxFuture, FutureExt, select_all};
use tokio::sync::watch;

use crate::broker::Broker;

/// A term in which this node leads a shard that groups have their offsets in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HomeTerm {
    pub shard: ShardId,
    /// Never the same again once another node led in between.
    pub term: u64,
}

impl HomeTerm {
    /// Of all groups on a node that is alone: it goes on for as long as the node lives.
    const ALONE: Self = Self { shard: ShardId::CATALOG, term: 0 };
}

/// What this node is to a group of consumers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coordination {
    /// It coordinates the group.
    Here(HomeTerm),
    /// It was elected, and does not know all yet that was committed before.
    Loading,
    /// Another node coordinates it, or nobody does.
    Elsewhere,
}

impl Broker {
    /// Whether this node coordinates the group, and since which term.
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

    /// Whether the term goes on.
    pub fn still_leads(&self, home: HomeTerm) -> bool {
        if self.is_alone() {
            return home == HomeTerm::ALONE;
        }
        let shard = self.shards_with_rows().iter().find(|shard| shard.id() == home.shard);
        shard.is_some_and(|shard| shard.serves_in() == Some(home.term))
    }

    /// What has changed before this is called is not told of.
    pub fn leader_changes(&self) -> LeaderChanges {
        let roles = self.shards_with_rows().iter().filter_map(|shard| shard.role());
        let as_seen = |mut role: watch::Receiver<Role>| {
            role.mark_unchanged();
            role
        };
        LeaderChanges(roles.map(as_seen).collect())
    }
}

/// Tells when a shard with rows gets another leader, or loses the one it has.
#[derive(Debug)]
pub struct LeaderChanges(Vec<watch::Receiver<Role>>);

impl LeaderChanges {
    /// Returns once something has changed since it last did. Never on a node that is alone.
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
