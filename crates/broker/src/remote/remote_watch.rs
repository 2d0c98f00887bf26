//! Waiting for records of shards without rows on this node, by queries to their leaders.
//!
//! Queries wait at the leader of each shard, for all partitions that sessions of this node wait for. A query gets its
//! reply once one of its partitions has changed, and is repeated; the others keep waiting. Without a session that
//! waits for such a partition there are no queries.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{ClusterLevel, HashMap, HashSet, Level, PartitionId, ShardId};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use shard::LocalShard;
use shard::watch::Watchers;
use shard_peers::Remote;
use shard_peers::bounds::{Bounds, LogRange};
use shard_peers::shard_query::{ASKED_AT_ONCE_MAX, ShardQuery, ShardQueryReply, WAITS_FOR};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::query_client::query_leader_for;

/// Delay between two queries, to collect changes in one reply.
const PAUSE: Duration = Duration::from_millis(10);
/// Delay after a failed query.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Maximum number of waiting queries of one shard, beyond the minimum for its partitions.
const SEPARATE_QUERIES_MAX: usize = 8;
/// Interval of checks for shards whose replica was removed, if no session begins to wait meanwhile.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Runs until the shards are gone. The first of them is the catalog's.
pub(crate) async fn run(
    remote: Remote,
    level: Arc<ClusterLevel>,
    shards: Vec<Weak<LocalShard>>,
    watchers: Arc<Watchers>,
) {
    let mut known: HashMap<PartitionId, Option<Bounds>> = HashMap::default();
    let mut pending = PendingQueries::default();
    let mut answers: FuturesUnordered<BoxFuture<'static, (u64, Changes)>> = FuturesUnordered::new();
    loop {
        let open: Option<Vec<_>> = shards.iter().map(Weak::upgrade).collect();
        let Some(open) = open else { return };
        let watched_ids = watched_elsewhere(&open, &watchers);
        let waited_for: HashSet<PartitionId> =
            watched_ids.iter().flat_map(|(_, ids)| ids).copied().collect();
        known.retain(|id, _| waited_for.contains(id));
        for (shard, ids) in watched_ids {
            for (number, dropped, ids) in pending.add(shard.id(), ids) {
                let bounds = |id: PartitionId| (id, known.get(&id).copied().flatten());
                let watched_ids = ids.into_iter().map(bounds).collect();
                let has_stable_ends = level.now() >= Level::TRANSACTIONS;
                let (remote, shard) = (remote.clone(), Arc::clone(shard));
                let query = changed(remote, shard, has_stable_ends, watched_ids);
                answers.push(until(dropped, query).map(move |it| (number, it)).boxed());
            }
        }
        drop(open);
        if answers.is_empty() {
            let _ = timeout(CHECK_INTERVAL, watchers.added.notified()).await;
            continue;
        }
        let answer = tokio::select! {
            biased;
            // The next query covers watchers that were added meanwhile.
            () = watchers.added.notified() => None,
            answer = answers.next() => answer,
        };
        let mut replies: Vec<_> = answer.into_iter().collect();
        while let Some(Some(answer)) = answers.next().now_or_never() {
            replies.push(answer);
        }
        for (number, found) in replies {
            pending.answered(number);
            let found = found.unwrap_or_default();
            let of_found = found.iter();
            let new = of_found.filter(|(id, bounds)| known.get(id) != Some(bounds));
            watchers.wake(new.map(|(id, _)| *id));
            known.extend(found);
        }
        sleep(PAUSE).await;
    }
}

/// The leader's reply for each partition. `None`: the leader was not reachable, or the query was dropped.
type Changes = Option<Vec<(PartitionId, Option<Bounds>)>>;

/// The queries that wait at leaders.
#[derive(Debug, Default)]
struct PendingQueries {
    number: u64,
    queries: HashMap<u64, PendingQuery>,
}

#[derive(Debug)]
struct PendingQuery {
    shard: ShardId,
    ids: Vec<PartitionId>,
    /// Ends the query when dropped.
    _waits: oneshot::Sender<()>,
}

/// A query to send: its number, its end, and its partitions.
type OutgoingQuery = (u64, oneshot::Receiver<()>, Vec<PartitionId>);

impl PendingQueries {
    /// Returns the queries to send so that each of these partitions is in one. Waiting queries stay, unless they are
    /// too many: then all partitions of the shard are queried together again.
    fn add(&mut self, shard: ShardId, ids: Vec<PartitionId>) -> Vec<OutgoingQuery> {
        let of_shard = |it: &&PendingQuery| it.shard == shard;
        let waiting = self.queries.values().filter(of_shard);
        let watched_ids: HashSet<PartitionId> = waiting.flat_map(|it| &it.ids).copied().collect();
        let mut new: Vec<PartitionId> =
            ids.iter().filter(|id| !watched_ids.contains(*id)).copied().collect();
        if new.is_empty() {
            return Vec::new();
        }
        let least = ids.len().div_ceil(ASKED_AT_ONCE_MAX);
        if self.queries.values().filter(of_shard).count() >= least + SEPARATE_QUERIES_MAX {
            self.queries.retain(|_, it| it.shard != shard);
            new = ids;
        }
        let queries = new.chunks(ASKED_AT_ONCE_MAX).map(|ids| {
            let (waits, dropped) = oneshot::channel();
            self.number += 1;
            let query = PendingQuery { shard, ids: ids.to_vec(), _waits: waits };
            self.queries.insert(self.number, query);
            (self.number, dropped, ids.to_vec())
        });
        queries.collect()
    }

    fn answered(&mut self, number: u64) {
        self.queries.remove(&number);
    }
}

/// Returns `None` once the other end of `dropped` is gone.
async fn until(dropped: oneshot::Receiver<()>, query: impl Future<Output = Changes>) -> Changes {
    tokio::select! {
        biased;
        answer = query => answer,
        _ = dropped => None,
    }
}

/// Returns the watched partitions without rows on this node, by their shards.
fn watched_elsewhere<'a>(
    shards: &'a [Arc<LocalShard>],
    watchers: &Watchers,
) -> Vec<(&'a Arc<LocalShard>, Vec<PartitionId>)> {
    let Some((catalog, with_rows)) = shards.split_first() else { return Vec::new() };
    if with_rows.iter().all(|shard| shard.has_rows()) {
        return Vec::new();
    }
    let watched = watchers.watched();
    let of_shards: Vec<Option<ShardId>> = catalog.read(|view| {
        let shard =
            |id: &PartitionId| Some(view.catalog.topic(id.topic)?.placement.shard_of(id.index));
        watched.iter().map(shard).collect()
    });
    let lacking = with_rows.iter().filter(|shard| !shard.has_rows());
    let watched_ids = lacking.map(|shard| {
        let there = watched.iter().zip(&of_shards).filter(|(_, of)| **of == Some(shard.id()));
        (shard, there.map(|(id, _)| *id).collect::<Vec<_>>())
    });
    watched_ids.filter(|(_, ids)| !ids.is_empty()).collect()
}

/// Waits until the bounds of a partition differ from the given ones, and returns the changed partitions.
async fn changed(
    remote: Remote,
    shard: Arc<LocalShard>,
    has_stable_ends: bool,
    watched_ids: Vec<(PartitionId, Option<Bounds>)>,
) -> Changes {
    // For a partition without known bounds the leader replies at once.
    let ids: Vec<PartitionId> = watched_ids.iter().map(|(id, _)| *id).collect();
    let part = |reply| match reply {
        ShardQueryReply::StableBounds(bounds) if bounds.len() == ids.len() => Some(bounds),
        ShardQueryReply::Bounds(ranges) if ranges.len() == ids.len() => {
            Some(ranges.into_iter().map(|range| range.map(Bounds::from)).collect())
        }
        _ => None,
    };
    let query = match has_stable_ends {
        true => ShardQuery::StableChanged(watched_ids),
        false => {
            let range = |(id, bounds): (_, Option<Bounds>)| (id, bounds.map(LogRange::from));
            ShardQuery::Changed(watched_ids.into_iter().map(range).collect())
        }
    };
    let reply = query_leader_for(Some(&remote), &shard, &query, WAITS_FOR * 2, part).await;
    drop(shard);
    match reply {
        Ok(reply) => Some(ids.into_iter().zip(reply).collect()),
        Err(_) => {
            sleep(RETRY_DELAY).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use base::TopicId;

    use super::*;

    const SHARD: ShardId = ShardId(1);

    fn ids(indexes: std::ops::Range<u32>) -> Vec<PartitionId> {
        indexes.map(|index| PartitionId::new(TopicId(0), index)).collect()
    }

    fn add(pending: &mut PendingQueries, indexes: std::ops::Range<u32>) -> Vec<OutgoingQuery> {
        pending.add(SHARD, ids(indexes))
    }

    #[test]
    fn query_keeps_waiting_when_another_completes_or_a_watcher_is_added() {
        let mut pending = PendingQueries::default();
        let chunk = ASKED_AT_ONCE_MAX as u32;
        let mut first = add(&mut pending, 0..2 * chunk);
        assert_eq!(first.len(), 2);
        let more = add(&mut pending, 0..2 * chunk + 1);
        assert_eq!(
            more.iter().map(|it| it.2.clone()).collect::<Vec<_>>(),
            [ids(2 * chunk..2 * chunk + 1)]
        );
        assert!(pending.add(ShardId(2), ids(0..1)).len() == 1, "another shard is asked apart");
        let (answered, ..) = first.remove(0);
        pending.answered(answered);
        let again = add(&mut pending, 0..2 * chunk + 1);
        assert_eq!(again.iter().map(|it| it.2.clone()).collect::<Vec<_>>(), [ids(0..chunk)]);
        assert!(
            first[0].1.try_recv() == Err(oneshot::error::TryRecvError::Empty),
            "it still waits"
        );
    }

    #[test]
    fn queries_of_a_shard_are_merged_to_bound_their_number() {
        let mut pending = PendingQueries::default();
        let mut most = 0;
        for end in 1..200 {
            let queries = add(&mut pending, 0..end);
            most = most.max(pending.queries.len());
            assert!(queries.len() == 1, "{queries:?}");
        }
        assert!(most <= SEPARATE_QUERIES_MAX + 1, "{most}");
    }
}
