//! Delivery policy derived from the configuration of a lease group and its topic.

use dispatch::{Ordering, Policy};
use machine::TopicConfig;
use machine::config::{Consumers, LeaseGroupConfig, LeaseOrdering, LimitOverflow, PrioritiesOrder};

/// Whether the group's records change without a consumer.
pub(crate) fn is_attentive(group: &LeaseGroupConfig, topic: &TopicConfig) -> bool {
    expires_unattended(group) || drops_oldest(topic) || topic.limit_bytes.is_some()
}

fn expires_unattended(group: &LeaseGroupConfig) -> bool {
    // Without dead letters the time at which an expired record is dropped is not visible: it is dropped when a
    // consumer would get it.
    group.record_ttl_ms.is_some() || has_dead_letters(group)
}

pub(crate) fn drops_oldest(topic: &TopicConfig) -> bool {
    topic.limit_overflow == LimitOverflow::DropOldest && is_limited(topic)
}

/// Whether the sequencer must know the waiting records of the topic's groups.
pub(crate) fn refuses(topic: &TopicConfig) -> bool {
    topic.limit_overflow != LimitOverflow::DropOldest && is_limited(topic)
}

fn is_limited(topic: &TopicConfig) -> bool {
    topic.limit_records.is_some() || topic.limit_bytes.is_some()
}

/// A shard's part of a topic's limit, in proportion to its partitions: `here` of `all`, and at least one. The
/// parts add up to more than the limit if the limit is less than the number of shards.
pub(crate) fn limit_here(limit: u64, here: usize, all: u32) -> u64 {
    if here as u64 >= u64::from(all) {
        return limit;
    }
    let part = u128::from(limit) * here as u128 / u128::from(all);
    (part as u64).max(1).min(limit)
}

pub(crate) fn has_dead_letters(group: &LeaseGroupConfig) -> bool {
    group.dead_letter_topic.is_some() || group.dead_letter_route.is_some()
}

pub(crate) fn policy(group: &LeaseGroupConfig, topic: &TopicConfig) -> Policy {
    Policy {
        ordering: match group.ordering {
            LeaseOrdering::Free => Ordering::Free,
            LeaseOrdering::Key => Ordering::Key,
            LeaseOrdering::Partition => Ordering::Partition,
        },
        single_active: group.consumers == Consumers::SingleActive,
        // As in quorum queues, and only there: their topics have this order of priorities.
        priority_takes_over: topic.priorities_order == PrioritiesOrder::TwoToOne,
        lease_ms: group.lease_ms,
        attempts_max: group.attempts_max,
        backoff_first_ms: group.retry_backoff_ms,
        backoff_max_ms: group.retry_backoff_max_ms,
        record_ttl_ms: group.record_ttl_ms,
        priorities: topic.priorities_max,
        two_to_one: topic.priorities_order == PrioritiesOrder::TwoToOne,
        measured: topic.limit_bytes.is_some(),
        dead_letters: has_dead_letters(group),
        expire_unattended: expires_unattended(group),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_split_in_proportion_to_the_partitions_of_each_shard() {
        assert_eq!(limit_here(7, 1, 1), 7);
        assert_eq!((limit_here(10, 2, 4), limit_here(10, 1, 4), limit_here(10, 1, 4)), (5, 2, 2));
        assert_eq!((limit_here(2, 1, 9), limit_here(0, 1, 9)), (1, 0));
        assert_eq!(limit_here(u64::MAX, 1, 2), u64::MAX / 2);
    }
}
