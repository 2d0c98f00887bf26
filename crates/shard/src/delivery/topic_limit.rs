//! Limits of a topic's waiting records, which the sequencer and the driver enforce together: the sequencer refuses
//! records over the limit, or the driver drops the oldest.

use machine::TopicConfig;
use machine::config::LimitOverflow;

#[inline]
pub fn drops_oldest(topic: &TopicConfig) -> bool {
    topic.limit_overflow == LimitOverflow::DropOldest && is_limited(topic)
}

/// Whether the sequencer must know the waiting records of the topic's groups.
#[inline]
pub fn refuses(topic: &TopicConfig) -> bool {
    topic.limit_overflow != LimitOverflow::DropOldest && is_limited(topic)
}

#[inline]
fn is_limited(topic: &TopicConfig) -> bool {
    topic.limit_records.is_some() || topic.limit_bytes.is_some()
}

/// A shard's part of a topic's limit, in proportion to its partitions: `here` of `all`, and at least one. The
/// parts add up to more than the limit if the limit is less than the number of shards.
pub fn limit_here(limit: u64, here: usize, all: u32) -> u64 {
    if here as u64 >= u64::from(all) {
        return limit;
    }
    let part = u128::from(limit) * here as u128 / u128::from(all);
    (part as u64).max(1).min(limit)
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
