//! The range assignor: each topic is cut into as many ranges as it has subscribers.
//!
//! All topics are cut alike, so members with the same topics get the same partitions of each: a member that joins
//! two topics by key has both halves.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Subscriber;
use crate::assignment::Assignment;

/// Progress of cutting one topic.
struct RangeSplit {
    next: u32,
    each: u32,
    /// Number of ranges that are one longer.
    longer: u32,
}

pub(super) fn assign(
    subscribers: &[Subscriber<'_>],
    partitions: &BTreeMap<Uuid, u32>,
) -> Vec<Assignment> {
    let mut wanted_by: BTreeMap<Uuid, u32> = BTreeMap::new();
    for topic in subscribers.iter().flat_map(|subscriber| subscriber.topics) {
        *wanted_by.entry(*topic).or_default() += 1;
    }
    let cut = |(&topic, &subscribers): (&Uuid, &u32)| {
        let count = *partitions.get(&topic)?;
        let (each, longer) = (count / subscribers, count % subscribers);
        Some((topic, RangeSplit { next: 0, each, longer }))
    };
    let mut cuttings: BTreeMap<Uuid, RangeSplit> = wanted_by.iter().filter_map(cut).collect();
    let mut assignments = vec![Assignment::default(); subscribers.len()];
    for index in in_order(subscribers) {
        for topic in subscribers[index].topics {
            let Some(cutting) = cuttings.get_mut(topic) else { continue };
            let stretch = cutting.take();
            assignments[index].extend(stretch.map(|partition| (*topic, partition as i32)));
        }
    }
    assignments
}

impl RangeSplit {
    fn take(&mut self) -> std::ops::Range<u32> {
        let is_longer = self.longer > 0;
        self.longer -= u32::from(is_longer);
        let start = self.next;
        self.next += self.each + u32::from(is_longer);
        start..self.next
    }
}

/// Static members first, by their instance id, so that a restart of one moves nothing.
fn in_order(subscribers: &[Subscriber<'_>]) -> Vec<usize> {
    let mut order: Vec<_> = (0..subscribers.len()).collect();
    order.sort_by_key(|&index| {
        let subscriber = &subscribers[index];
        (subscriber.instance_id.is_none(), subscriber.instance_id, subscriber.id)
    });
    order
}
