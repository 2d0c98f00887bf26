//! Waiting for records of shards that this node has no rows of: their leaders are asked what has changed.
//!
//! One question a shard waits at its leader, about all partitions that somebody here waits for, and is answered once one
//! of them has changed. While nobody waits for such a partition nothing is asked.

use std::sync::{Arc, Weak};
use std::time::Duration;

use base::{HashMap, HashSet, PartitionId, ShardId};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{sleep, timeout};

use crate::asking::ask_leader_for;
use crate::bounds::Bounds;
use crate::error::Unavailable;
use crate::local_shard::LocalShard;
use crate::question::{ASKED_AT_ONCE_MAX, Question, Told, WAITS_FOR};
use crate::remote::Remote;
use crate::watch::Watchers;

/// Between two questions: what changes meanwhile is in one answer.
const PAUSE: Duration = Duration::from_millis(10);
/// After a question that failed.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Whoever became no member is asked about after so long, if nobody begins to wait meanwhile.
const LOOKS_AFTER: Duration = Duration::from_secs(2);

/// Ends when the shards are gone. The catalog's is the first of them.
pub(crate) async fn run(remote: Remote, shards: Vec<Weak<LocalShard>>, watchers: Arc<Watchers>) {
    let mut known: HashMap<PartitionId, Option<Bounds>> = HashMap::default();
    loop {
        let open: Option<Vec<_>> = shards.iter().map(Weak::upgrade).collect();
        let Some(open) = open else { return };
        let asked = watched_elsewhere(&open, &watchers);
        let waited_for: HashSet<PartitionId> =
            asked.iter().flat_map(|(_, ids)| ids).copied().collect();
        known.retain(|id, _| waited_for.contains(id));
        if asked.is_empty() {
            drop(open);
            let _ = timeout(LOOKS_AFTER, watchers.added.notified()).await;
            continue;
        }
        let questions = asked.iter().flat_map(|(shard, ids)| {
            ids.chunks(ASKED_AT_ONCE_MAX).map(move |ids| (*shard, ids.to_vec()))
        });
        let mut answers: FuturesUnordered<_> =
            questions.map(|(shard, ids)| changed(&remote, shard, &known, ids)).collect();
        let answer = tokio::select! {
            biased;
            // The others are asked again with it.
            () = watchers.added.notified() => None,
            answer = answers.next() => answer,
        };
        drop(answers);
        let pause = match answer {
            Some(Ok(found)) => {
                let of_found = found.iter();
                let new = of_found.filter(|(id, bounds)| known.get(id) != Some(bounds));
                watchers.wake(new.map(|(id, _)| *id));
                known.extend(found);
                PAUSE
            }
            Some(Err(_)) => AGAIN_AFTER,
            None => PAUSE,
        };
        drop(open);
        sleep(pause).await;
    }
}

/// The partitions that somebody waits for and this node has no rows of, by their shards.
fn watched_elsewhere<'a>(
    shards: &'a [Arc<LocalShard>],
    watchers: &Watchers,
) -> Vec<(&'a LocalShard, Vec<PartitionId>)> {
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
    let asked = lacking.map(|shard| {
        let there = watched.iter().zip(&of_shards).filter(|(_, of)| **of == Some(shard.id()));
        (&**shard, there.map(|(id, _)| *id).collect::<Vec<_>>())
    });
    asked.filter(|(_, ids)| !ids.is_empty()).collect()
}

async fn changed(
    remote: &Remote,
    shard: &LocalShard,
    known: &HashMap<PartitionId, Option<Bounds>>,
    ids: Vec<PartitionId>,
) -> Result<Vec<(PartitionId, Option<Bounds>)>, Unavailable> {
    // Of one that is new here the leader tells at once where it is.
    let asked = ids.iter().map(|id| (*id, known.get(id).copied().flatten())).collect();
    let count = ids.len();
    let part = |told| match told {
        Told::Bounds(bounds) if bounds.len() == count => Some(bounds),
        _ => None,
    };
    let question = Question::Changed(asked);
    let told = ask_leader_for(Some(remote), shard, &question, WAITS_FOR * 2, part).await?;
    Ok(ids.into_iter().zip(told).collect())
}
