//! Waiting for records.
//!
//! A [`Watch`] has the partitions that a session waits for, and collects the changed ones: a consumer of 10,000
//! partitions examines the three that changed instead of all. An append costs one look-up per batch; an unwatched
//! partition costs nothing.
//!
//! Delivery watches whole topics: a million partitions are one entry, and their changes are marked before a producer
//! gets its reply.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{HashMap, HashSet, PartitionId, TopicId};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Add first, then examine the partition, then wait: so no change is missed in between.
#[derive(Debug)]
pub struct Watch {
    ready: Arc<WatchState>,
    members: Mutex<HashSet<PartitionId>>,
    topics: Mutex<HashSet<TopicId>>,
    registry: Arc<Watchers>,
}

#[derive(Debug, Default)]
struct WatchState {
    /// Id of its watch; ids ascend in the order of creation.
    id: u64,
    partitions: Mutex<ReadyPartitions>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct ReadyPartitions {
    in_order: Vec<PartitionId>,
    /// Only filled when `in_order` is too long for a cheap scan.
    members: HashSet<PartitionId>,
}

/// Length up to which a scan is cheaper than a hash.
const SCAN_MAX: usize = 8;

impl WatchState {
    /// Marks a partition. Returns whether none was marked before.
    fn mark(&self, partition: PartitionId) -> bool {
        let mut partitions = self.partitions.lock();
        partitions.insert(partition) && partitions.in_order.len() == 1
    }
}

impl ReadyPartitions {
    /// False when it is marked already.
    fn insert(&mut self, partition: PartitionId) -> bool {
        if self.in_order.len() < SCAN_MAX {
            if self.in_order.contains(&partition) {
                return false;
            }
        } else {
            if self.members.is_empty() {
                self.members.extend(self.in_order.iter().copied());
            }
            if !self.members.insert(partition) {
                return false;
            }
        }
        self.in_order.push(partition);
        true
    }
}

/// The watches of one node, by partition and topic.
#[derive(Debug, Default)]
pub struct Watchers {
    last_id: AtomicU64,
    by_partition: Mutex<HashMap<PartitionId, PartitionWatches>>,
    by_topic: Mutex<HashMap<TopicId, PartitionWatches>>,
    /// Notified when a partition gets its first watch.
    pub added: Notify,
}

/// Watches of topics with a marked change that are not woken yet.
#[derive(Debug, Default)]
pub(crate) struct MarkedWatches(Vec<Arc<WatchState>>);

impl MarkedWatches {
    pub(crate) fn wake(&mut self) {
        for ready in self.0.drain(..) {
            ready.notify.notify_one();
        }
    }
}

/// The watches of one partition, by their ids: among thousands, one that is removed must be found without a scan.
type PartitionWatches = Vec<(u64, Arc<WatchState>)>;

/// Partitions unregistered under one lock of the registry, for which appends wait.
const UNREGISTERED_AT_ONCE: usize = 256;

impl Watchers {
    pub fn watch(self: &Arc<Self>) -> Watch {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed);
        let ready = Arc::new(WatchState { id, ..WatchState::default() });
        let (members, topics, registry) = (Mutex::default(), Mutex::default(), Arc::clone(self));
        Watch { ready, members, topics, registry }
    }

    /// Marks changed partitions in the watches of their topics. Those are woken separately, after producers have
    /// their replies.
    pub(crate) fn mark_topics(
        &self,
        partitions: impl Iterator<Item = PartitionId>,
        marked: &mut MarkedWatches,
    ) {
        let watchers = self.by_topic.lock();
        if watchers.is_empty() {
            return;
        }
        for partition in partitions {
            let Some(watching) = watchers.get(&partition.topic) else { continue };
            let first = watching.iter().filter(|(_, ready)| ready.mark(partition));
            marked.0.extend(first.map(|(_, ready)| Arc::clone(ready)));
        }
    }

    /// Wakes the watches of changed partitions: those with appends, and deleted ones.
    pub fn wake(&self, partitions: impl Iterator<Item = PartitionId>) {
        let watchers = self.by_partition.lock();
        if watchers.is_empty() {
            return;
        }
        for partition in partitions {
            let Some(watching) = watchers.get(&partition) else { continue };
            for (_, ready) in watching {
                if ready.mark(partition) {
                    ready.notify.notify_one();
                }
            }
        }
    }
}

impl Watchers {
    /// Returns the partitions that are watched individually.
    pub fn watched(&self) -> Vec<PartitionId> {
        self.by_partition.lock().keys().copied().collect()
    }

    /// Wakes all watches: any partition may have changed.
    pub(crate) fn wake_all(&self) {
        let watchers = self.by_partition.lock();
        for (partition, watching) in watchers.iter() {
            for (_, ready) in watching {
                if ready.mark(*partition) {
                    ready.notify.notify_one();
                }
            }
        }
    }
}

impl Watch {
    pub fn add(&self, partition: PartitionId) {
        self.add_all(&[partition]);
    }

    /// Adds partitions under one lock of the registry: to be called for some hundred at a time.
    pub fn add_all(&self, partitions: &[PartitionId]) {
        let mut members = self.members.lock();
        let mut watchers = self.registry.by_partition.lock();
        for &partition in partitions {
            if !members.insert(partition) {
                continue;
            }
            let watching = watchers.entry(partition).or_default();
            if watching.is_empty() {
                self.registry.added.notify_one();
            }
            self.register(watching);
        }
    }

    fn register(&self, watching: &mut PartitionWatches) {
        let mine = (self.ready.id, Arc::clone(&self.ready));
        // Mostly the latest watch is the one that grows.
        if watching.last().is_none_or(|(last, _)| *last < self.ready.id) {
            watching.push(mine);
        } else {
            let place = watching.partition_point(|(id, _)| *id < self.ready.id);
            watching.insert(place, mine);
        }
    }

    pub fn remove(&self, partition: PartitionId) {
        if self.members.lock().remove(&partition) {
            self.unregister(&mut self.registry.by_partition.lock(), partition);
        }
    }

    /// Adds all of the topic's partitions, also later ones.
    pub fn add_topic(&self, topic: TopicId) {
        if self.topics.lock().insert(topic) {
            self.register(self.registry.by_topic.lock().entry(topic).or_default());
        }
    }

    pub fn remove_topic(&self, topic: TopicId) {
        if self.topics.lock().remove(&topic) {
            self.unregister(&mut self.registry.by_topic.lock(), topic);
        }
    }

    /// Number of individually added partitions.
    pub fn partitions(&self) -> usize {
        self.members.lock().len()
    }

    /// Takes the partitions changed since the last call, each once, oldest change first.
    pub fn take_ready(&self) -> Vec<PartitionId> {
        let mut ready = self.ready.partitions.lock();
        ready.members.clear();
        std::mem::take(&mut ready.in_order)
    }

    /// Returns when [`take_ready`](Self::take_ready) has changes, or had some a moment ago.
    pub async fn ready(&self) {
        while self.ready.partitions.lock().in_order.is_empty() {
            self.ready.notify.notified().await;
        }
    }

    fn unregister<K: Eq + Hash>(&self, watchers: &mut HashMap<K, PartitionWatches>, watched: K) {
        if let Some(watching) = watchers.get_mut(&watched) {
            if let Ok(place) = watching.binary_search_by_key(&self.ready.id, |(id, _)| *id) {
                watching.remove(place);
            }
            if watching.is_empty() {
                watchers.remove(&watched);
            } else if watching.len() < watching.capacity() / 4 {
                watching.shrink_to(watching.len() * 2);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for topic in std::mem::take(self.topics.get_mut()) {
            self.unregister(&mut self.registry.by_topic.lock(), topic);
        }
        let members = std::mem::take(self.members.get_mut());
        let mut members = members.into_iter().peekable();
        while members.peek().is_some() {
            let mut watchers = self.registry.by_partition.lock();
            for partition in members.by_ref().take(UNREGISTERED_AT_ONCE) {
                self.unregister(&mut watchers, partition);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use base::TopicId;

    use super::*;

    fn partition(index: u32) -> PartitionId {
        PartitionId::new(TopicId(1), index)
    }

    #[test]
    fn watch_names_each_changed_partition_once() {
        let watchers = Arc::new(Watchers::default());
        let watch = watchers.watch();
        for index in 0..100 {
            watch.add(partition(index));
        }
        for _ in 0..3 {
            watchers.wake((50..150).map(partition));
        }
        assert_eq!(watch.take_ready(), (50..100).map(partition).collect::<Vec<_>>());
        assert_eq!(watch.take_ready(), vec![]);
        watchers.wake([partition(50)].into_iter());
        assert_eq!(watch.take_ready(), vec![partition(50)]);
    }

    #[test]
    fn removed_or_dropped_watch_is_not_woken() {
        let watchers = Arc::new(Watchers::default());
        let (first, second) = (watchers.watch(), watchers.watch());
        first.add(partition(1));
        second.add(partition(1));
        second.add(partition(2));
        first.remove(partition(1));
        watchers.wake([partition(1)].into_iter());
        assert_eq!(first.take_ready(), vec![]);
        assert_eq!(second.take_ready(), vec![partition(1)]);
        drop((first, second));
        assert!(watchers.by_partition.lock().is_empty());
    }

    #[test]
    fn topic_watch_names_changed_partitions_and_wakes_once() {
        let watchers = Arc::new(Watchers::default());
        let (watch, mut marked) = (watchers.watch(), MarkedWatches::default());
        watchers.mark_topics([partition(1)].into_iter(), &mut marked);
        watch.add_topic(TopicId(1));
        watch.add_topic(TopicId(1));
        let other = PartitionId::new(TopicId(2), 0);
        watchers.mark_topics([partition(999_999), other, partition(7)].into_iter(), &mut marked);
        watchers.mark_topics([partition(7)].into_iter(), &mut marked);
        assert_eq!((marked.0.len(), watch.partitions()), (1, 0));
        marked.wake();
        assert_eq!(watch.take_ready(), vec![partition(999_999), partition(7)]);
        watch.remove_topic(TopicId(1));
        watchers.mark_topics([partition(7)].into_iter(), &mut marked);
        assert!(marked.0.is_empty());
        watch.add_topic(TopicId(1));
        drop(watch);
        assert!(watchers.by_topic.lock().is_empty());
    }

    #[test]
    fn watches_of_the_same_partitions_are_dropped_independently() {
        let watchers = Arc::new(Watchers::default());
        let mut watches: Vec<Watch> = (0..2_000).map(|_| watchers.watch()).collect();
        let all: Vec<_> = (0..600).map(partition).collect();
        watches.iter().rev().for_each(|watch| watch.add_all(&all));
        let kept = watches.swap_remove(1_000);
        drop(watches);
        assert!(watchers.by_partition.lock().values().all(|watching| watching.len() == 1));
        watchers.wake([partition(599)].into_iter());
        assert_eq!(kept.take_ready(), vec![partition(599)]);
    }

    #[tokio::test]
    async fn change_before_the_wait_is_not_missed() {
        let watchers = Arc::new(Watchers::default());
        let watch = watchers.watch();
        watch.add(partition(1));
        watchers.wake([partition(1)].into_iter());
        watch.ready().await;
        assert_eq!(watch.take_ready(), vec![partition(1)]);
    }
}
