//! Fetch sessions (KIP-227): the broker remembers a consumer's partitions, so that a fetch of 10,000
//! partitions names, reads and returns only those that changed.
//!
//! A session holds its partitions, the queue of those to read (`turns`), and a [`Watch`] on all of them.
//! Sessions are volatile and bounded: a client whose session was evicted gets an error, and restarts with a
//! full fetch.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use base::{HashMap, HashSet, PartitionId, TopicId};
use broker::catalog::Topic;
use broker::{Bounds, Broker, CatalogView, Watch, YieldBudget};
use parking_lot::Mutex;
use tokio::sync::Mutex as SessionMutex;
use tokio::time::Instant;

use crate::topic_ref::TopicRef;

/// Partitions of a fetch that are looked up, watched, read or answered between two yields: some 0.1 ms, for
/// which other tasks wait for the thread.
pub(crate) const PARTITIONS_AT_ONCE: u32 = 256;

/// A full cache evicts a session that was idle for so long (Kafka's
/// `min.incremental.fetch.session.eviction.ms`).
const EVICTABLE_AFTER: Duration = Duration::from_secs(120);
/// Limit of partitions over all cached sessions: each takes some 200 bytes.
const PARTITIONS_MAX: usize = 1_000_000;

/// Approximate bytes that a waiting fetch without a session holds for each partition.
const WAITING_BYTES_PER_PARTITION: usize = 160;

/// A partition's fetch parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FetchParameters {
    pub(crate) offset: i64,
    pub(crate) bytes_max: i32,
    /// -1 if the client sent none.
    pub(crate) leader_epoch: i32,
    /// Leader epoch of the client's last record; -1 if it sent none.
    pub(crate) last_epoch: i32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionPartition {
    pub(crate) want: FetchParameters,
    /// Bounds that the client received last.
    pub(crate) told: Option<Bounds>,
    /// It is in `turns`.
    pub(crate) queued: bool,
}

/// The partitions of one fetch: a session's, or those of a single request.
#[derive(Debug)]
pub(crate) struct FetchState {
    /// `None` for a fetch without a session, until it has to wait.
    pub(crate) watch: Option<Watch>,
    topics: HashMap<TopicRef, TopicId>,
    names: HashMap<TopicId, TopicRef>,
    pub(crate) wanted: HashMap<PartitionId, SessionPartition>,
    /// Queue of the partitions to read. A served partition goes to the back.
    pub(crate) turns: VecDeque<PartitionId>,
    /// Partitions that do not exist (yet, or any more), and whether the client was informed.
    pub(crate) missing: HashMap<(TopicRef, i32), MissingPartition>,
    /// Topics and partitions in the order in which the client named them.
    pub(crate) named: Vec<(TopicRef, i32)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MissingPartition {
    pub(crate) want: FetchParameters,
    pub(crate) told: bool,
}

impl FetchState {
    pub(crate) fn new(watch: Option<Watch>) -> Self {
        Self {
            watch,
            topics: HashMap::default(),
            names: HashMap::default(),
            wanted: HashMap::default(),
            turns: VecDeque::new(),
            missing: HashMap::default(),
            named: Vec::new(),
        }
    }

    pub(crate) fn partitions(&self) -> usize {
        self.wanted.len() + self.missing.len()
    }

    pub(crate) fn name(&self, topic: TopicId) -> Option<&TopicRef> {
        self.names.get(&topic)
    }

    pub(crate) fn resolved(&self, topic: &TopicRef, index: i32) -> Option<PartitionId> {
        let topic = *self.topics.get(topic)?;
        Some(PartitionId::new(topic, u32::try_from(index).ok()?))
    }

    /// Adds partitions, or changes their parameters. In steps: a client may name 100,000 partitions.
    pub(crate) async fn want(
        &mut self,
        broker: &Broker,
        wants: Vec<(TopicRef, i32, FetchParameters)>,
        pace: &mut YieldBudget,
    ) {
        let mut wants = wants.into_iter();
        while !wants.as_slice().is_empty() {
            pace.step(wants.len().min(PARTITIONS_AT_ONCE as usize) as u32).await;
            let step = &wants.as_slice()[..wants.len().min(PARTITIONS_AT_ONCE as usize)];
            let found = find_partitions(&broker.catalog(), step);
            for (found, (topic, index, want)) in found.into_iter().zip(wants.by_ref()) {
                match found {
                    Some(partition) => self.want_partition(topic, index, partition, want),
                    None => self.miss(topic, index, want),
                }
            }
        }
    }

    fn want_partition(
        &mut self,
        topic: TopicRef,
        index: i32,
        partition: PartitionId,
        want: FetchParameters,
    ) {
        if self.topics.get(&topic) != Some(&partition.topic) {
            self.topics.insert(topic.clone(), partition.topic);
            self.names.insert(partition.topic, topic.clone());
        }
        if !self.missing.is_empty() {
            self.missing.remove(&(topic, index));
        }
        // Watched before it is read, so that no change is missed in between.
        if let Some(watch) = &self.watch {
            watch.add(partition);
        }
        let known = self.wanted.entry(partition).or_insert(SessionPartition {
            want,
            told: None,
            queued: false,
        });
        known.want = want;
        self.queue(partition);
    }

    fn miss(&mut self, topic: TopicRef, index: i32, want: FetchParameters) {
        let missing =
            self.missing.entry((topic, index)).or_insert(MissingPartition { want, told: false });
        missing.want = want;
    }

    /// Marks a partition as deleted. It is looked up by name from now on, since its topic may be recreated.
    pub(crate) fn lose(&mut self, partition: PartitionId) {
        let Some(wanted) = self.wanted.remove(&partition) else { return };
        if let Some(watch) = &self.watch {
            watch.remove(partition);
        }
        let Some(topic) = self.names.get(&partition.topic).cloned() else { return };
        match self.topics.get(&topic) {
            // A recreated topic of this name was found already.
            Some(anew) if *anew != partition.topic => {
                if self.wanted.contains_key(&PartitionId::new(*anew, partition.index)) {
                    return;
                }
            }
            _ => drop(self.topics.remove(&topic)),
        }
        self.miss(topic, partition.index as i32, wanted.want);
    }

    pub(crate) fn forget(&mut self, topic: &TopicRef, index: i32) {
        if !self.missing.is_empty() {
            self.missing.remove(&(topic.clone(), index));
        }
        // An entry in `turns` is skipped when its turn comes.
        if let Some(partition) = self.resolved(topic, index)
            && self.wanted.remove(&partition).is_some()
            && let Some(watch) = &self.watch
        {
            watch.remove(partition);
        }
    }

    /// Looks up the missing partitions again.
    pub(crate) async fn find_missing(&mut self, broker: &Broker, pace: &mut YieldBudget) {
        if self.missing.is_empty() {
            return;
        }
        let wants = self
            .missing
            .iter()
            .map(|((topic, index), missing)| (topic.clone(), *index, missing.want));
        let wants = wants.collect();
        self.want(broker, wants, pace).await;
    }

    /// Queues a partition for reading.
    pub(crate) fn queue(&mut self, partition: PartitionId) {
        if let Some(wanted) = self.wanted.get_mut(&partition)
            && !wanted.queued
        {
            wanted.queued = true;
            self.turns.push_back(partition);
        }
    }

    /// Queues every partition.
    pub(crate) fn queue_all(&mut self) {
        let partitions: Vec<_> = self.wanted.keys().copied().collect();
        for partition in partitions {
            self.queue(partition);
        }
    }

    /// Releases memory that is not needed while the fetch waits.
    pub(crate) fn compact(&mut self) {
        self.wanted.shrink_to_fit();
        self.turns.shrink_to_fit();
        self.missing.shrink_to_fit();
        self.named.shrink_to_fit();
    }

    /// Bytes held while the fetch waits, its watch included.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.partitions() * WAITING_BYTES_PER_PARTITION
    }

    /// Queues partitions that changed since the last read.
    pub(crate) fn queue_ready(&mut self) {
        let Some(watch) = &self.watch else { return };
        for partition in watch.take_ready() {
            self.queue(partition);
        }
    }

    /// Watches every partition; no later change is missed. In steps, as [`Self::want`].
    pub(crate) async fn watch_all(&self, broker: &Broker, pace: &mut YieldBudget) -> Watch {
        let watch = broker.watch();
        // Sorted, because neighbours are adjacent in the registry.
        let mut partitions: Vec<_> = self.wanted.keys().copied().collect();
        partitions.sort_unstable();
        for step in partitions.chunks(PARTITIONS_AT_ONCE as usize) {
            pace.step(step.len() as u32).await;
            watch.add_all(step);
        }
        watch
    }
}

/// Looks up partitions; each result is at the index of its request. Partitions of a topic are mostly
/// adjacent, so the topic is looked up once for all of them.
fn find_partitions(
    catalog: &CatalogView<'_>,
    wants: &[(TopicRef, i32, FetchParameters)],
) -> Vec<Option<PartitionId>> {
    let mut last: Option<(&TopicRef, Option<Topic<'_>>)> = None;
    let mut found = Vec::with_capacity(wants.len());
    for (topic, index, _) in wants {
        let known = match last {
            Some((last, known)) if last == topic => known,
            _ => topic.find(catalog),
        };
        last = Some((topic, known));
        found.push(known.and_then(|known| known.partition(*index)));
    }
    found
}

/// A cached session.
#[derive(Debug)]
pub(crate) struct FetchSession {
    /// Epoch that the next request must have.
    pub(crate) epoch: i32,
    /// Whether topics are named by id (version 13 and later); may not change.
    pub(crate) by_id: bool,
    /// Boxed, so that it can be returned when there is no room for the session.
    pub(crate) state: Box<FetchState>,
}

/// The largest epoch is followed by 1, because 0 and -1 are reserved.
pub(crate) fn next_epoch(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

#[derive(Debug)]
struct Cached {
    session: Arc<SessionMutex<FetchSession>>,
    last_used: Instant,
    partitions: usize,
}

/// All sessions of the node.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    sessions_max: usize,
    last_id: AtomicI32,
    cached: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    sessions: HashMap<i32, Cached>,
    partitions: usize,
}

impl FetchSessions {
    pub(crate) fn new(sessions_max: usize) -> Self {
        Self { sessions_max, last_id: AtomicI32::new(0), cached: Mutex::default() }
    }

    /// Caches a session, or returns it if there is no room and no other can be evicted.
    pub(crate) fn insert(
        &self,
        session: FetchSession,
        now: Instant,
    ) -> Result<(i32, Arc<SessionMutex<FetchSession>>), FetchSession> {
        let partitions = session.state.partitions();
        let mut cache = self.cached.lock();
        if !cache.make_room(partitions, self.sessions_max, now) {
            return Err(session);
        }
        let id = self.unused_id(&cache);
        let session = Arc::new(SessionMutex::new(session));
        cache.partitions += partitions;
        let cached = Cached { session: Arc::clone(&session), last_used: now, partitions };
        cache.sessions.insert(id, cached);
        Ok((id, session))
    }

    fn unused_id(&self, cache: &Cache) -> i32 {
        loop {
            // Positive: 0 means no session.
            let id = self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX;
            if id != 0 && !cache.sessions.contains_key(&id) {
                return id;
            }
        }
    }

    pub(crate) fn find(&self, id: i32, now: Instant) -> Option<Arc<SessionMutex<FetchSession>>> {
        let mut cache = self.cached.lock();
        let cached = cache.sessions.get_mut(&id)?;
        cached.last_used = now;
        Some(Arc::clone(&cached.session))
    }

    /// Updates the number of a session's partitions.
    pub(crate) fn resized(&self, id: i32, partitions: usize) {
        let mut cache = self.cached.lock();
        let Some(cached) = cache.sessions.get_mut(&id) else { return };
        let former = std::mem::replace(&mut cached.partitions, partitions);
        cache.partitions = cache.partitions + partitions - former;
    }

    pub(crate) fn remove(&self, id: i32) {
        let removed = self.cached.lock().remove(id);
        // Dropped here, outside of the lock: it may hold many partitions.
        drop(removed);
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.cached.lock().sessions.len()
    }
}

impl Cache {
    fn remove(&mut self, id: i32) -> Option<Cached> {
        let removed = self.sessions.remove(&id)?;
        self.partitions -= removed.partitions;
        Some(removed)
    }

    fn make_room(&mut self, partitions: usize, sessions_max: usize, now: Instant) -> bool {
        while self.sessions.len() >= sessions_max || self.partitions + partitions > PARTITIONS_MAX {
            let longest_silent = self
                .sessions
                .iter()
                .min_by_key(|(_, cached)| cached.last_used)
                .filter(|(_, cached)| now.duration_since(cached.last_used) >= EVICTABLE_AFTER)
                .map(|(id, _)| *id);
            match longest_silent {
                Some(id) => drop(self.remove(id)),
                None => return false,
            }
        }
        true
    }
}

/// Sessions that were created through one connection, and are dropped with it: a client that reconnects
/// starts with a full fetch anyway.
#[derive(Debug, Default)]
pub(crate) struct OwnSessions(Mutex<HashSet<i32>>);

impl OwnSessions {
    pub(crate) fn add(&self, id: i32) {
        self.0.lock().insert(id);
    }

    pub(crate) fn remove(&self, id: i32) {
        self.0.lock().remove(&id);
    }

    pub(crate) fn drop_all(&self, sessions: &FetchSessions) {
        for id in self.0.lock().drain() {
            sessions.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> FetchSession {
        FetchSession { epoch: 1, by_id: true, state: Box::new(FetchState::new(None)) }
    }

    #[test]
    fn full_cache_evicts_only_the_longest_idle_session() {
        let sessions = FetchSessions::new(2);
        let now = Instant::now();
        let (first, _) = sessions.insert(session(), now).unwrap();
        let (second, _) = sessions.insert(session(), now).unwrap();
        assert!(sessions.insert(session(), now).is_err(), "both are in use");

        let later = now + EVICTABLE_AFTER;
        assert!(sessions.find(first, later).is_some());
        let (third, _) = sessions.insert(session(), later).unwrap();
        assert!(sessions.find(second, later).is_none());
        assert!(sessions.find(first, later).is_some() && sessions.find(third, later).is_some());
        assert_eq!(sessions.len(), 2);
    }

    #[test]
    fn next_epoch_skips_the_reserved_values() {
        assert_eq!(next_epoch(1), 2);
        assert_eq!(next_epoch(i32::MAX), 1);
    }
}
