//! Waiting for records.
//!
//! A [`Watch`] names the partitions that somebody waits for. It collects those that changed, so
//! that a consumer of 10,000 partitions looks at the three that did and not at all of them. An
//! append costs one look-up a batch; a partition that nobody watches costs nothing.

use std::sync::Arc;

use base::PartitionId;
use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Add first, then look at the partition, then wait: nothing is missed in between.
#[derive(Debug)]
pub struct Watch {
    ready: Arc<Ready>,
    members: Mutex<HashSet<PartitionId>>,
    registry: Arc<Watchers>,
}

#[derive(Debug, Default)]
struct Ready {
    partitions: Mutex<ReadyPartitions>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct ReadyPartitions {
    in_order: Vec<PartitionId>,
    /// Only filled when `in_order` is long enough for a scan of it to hurt.
    members: HashSet<PartitionId>,
}

/// Up to here a scan is cheaper than a hash.
const SCAN_MAX: usize = 8;

impl ReadyPartitions {
    /// False when it is there already.
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

/// Who watches what, for one shard.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_partition: Mutex<HashMap<PartitionId, Vec<Arc<Ready>>>>,
}

impl Watchers {
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        Watch { ready: Arc::default(), members: Mutex::default(), registry: Arc::clone(self) }
    }

    /// These partitions changed: they were appended to, or they are gone.
    pub(crate) fn wake(&self, partitions: impl Iterator<Item = PartitionId>) {
        let watchers = self.by_partition.lock();
        if watchers.is_empty() {
            return;
        }
        for partition in partitions {
            let Some(watching) = watchers.get(&partition) else { continue };
            for ready in watching {
                if ready.partitions.lock().insert(partition) {
                    ready.notify.notify_one();
                }
            }
        }
    }
}

impl Watch {
    pub fn add(&self, partition: PartitionId) {
        if self.members.lock().insert(partition) {
            let mut watchers = self.registry.by_partition.lock();
            watchers.entry(partition).or_default().push(Arc::clone(&self.ready));
        }
    }

    pub fn remove(&self, partition: PartitionId) {
        if self.members.lock().remove(&partition) {
            self.unregister(&mut self.registry.by_partition.lock(), partition);
        }
    }

    /// The partitions that changed since this was last called, each once, oldest change first.
    pub fn take_ready(&self) -> Vec<PartitionId> {
        let mut ready = self.ready.partitions.lock();
        ready.members.clear();
        std::mem::take(&mut ready.in_order)
    }

    /// Returns when [`take_ready`](Self::take_ready) has something to say, or had a moment ago.
    pub async fn ready(&self) {
        while self.ready.partitions.lock().in_order.is_empty() {
            self.ready.notify.notified().await;
        }
    }

    fn unregister(
        &self,
        watchers: &mut HashMap<PartitionId, Vec<Arc<Ready>>>,
        partition: PartitionId,
    ) {
        if let Some(watching) = watchers.get_mut(&partition) {
            watching.retain(|other| !Arc::ptr_eq(other, &self.ready));
            if watching.is_empty() {
                watchers.remove(&partition);
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let members = std::mem::take(self.members.get_mut());
        if members.is_empty() {
            return;
        }
        let mut watchers = self.registry.by_partition.lock();
        for partition in members {
            self.unregister(&mut watchers, partition);
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
    fn a_watch_names_each_changed_partition_once() {
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
    fn what_is_removed_or_dropped_is_no_longer_woken() {
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

    #[tokio::test]
    async fn a_change_before_the_wait_is_not_missed() {
        let watchers = Arc::new(Watchers::default());
        let watch = watchers.watch();
        watch.add(partition(1));
        watchers.wake([partition(1)].into_iter());
        watch.ready().await;
        assert_eq!(watch.take_ready(), vec![partition(1)]);
    }
}
