//! Delivery policy derived from the configuration of a lease group and its topic.

use dispatch::{Ordering, Policy};
use machine::TopicConfig;
use machine::config::{Consumers, LeaseGroupConfig, LeaseOrdering, PrioritiesOrder};
use shard::delivery::topic_limit::drops_oldest;

/// Whether the group's records change without a consumer.
pub(crate) fn is_attentive(group: &LeaseGroupConfig, topic: &TopicConfig) -> bool {
    expires_unattended(group) || drops_oldest(topic) || topic.limit_bytes.is_some()
}

fn expires_unattended(group: &LeaseGroupConfig) -> bool {
    // Without dead letters the time at which an expired record is dropped is not visible: it is dropped when a
    // consumer would get it.
    group.record_ttl_ms.is_some() || has_dead_letters(group)
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
