//! The rows of a look: the top of the requested order. Only these rows are queried elsewhere.

use std::cmp::Ordering;
use std::time::Duration;

use crate::limits::OVERVIEW_ASKED_MAX;
use base::{LeaseGroupId, PartitionId, TopicId};
use broker::Broker;
use broker::delivery::Counters;
use futures_util::StreamExt;
use futures_util::stream;
use operations::family::OperationError;
use operations::overview::{GroupRow, Order, QueueRow, Rows, Table, TableQuery, TopicRow};
use tokio::time::timeout_at;
use world::Instant;

use crate::sample::{GroupKey, GroupSeen, LargestLag, QueueSeen, Sample, TopicSeen};
use crate::unavailable;

/// Concurrent queries to queues.
const ASKED_AT_ONCE: usize = 16;
/// Timeout for busy drivers and disks; rows then lack the values that only they know.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Also returns the number of rows without a limit.
pub(crate) async fn of(
    broker: &Broker,
    sample: &Sample,
    look: &TableQuery,
) -> Result<(Rows, u64), OperationError> {
    match look.table {
        Table::Topics => topics(broker, sample, look).await,
        Table::Queues => Ok(queues(broker, sample, look).await),
        Table::Groups => Ok(groups(broker, sample, look).await),
    }
}

/// Case-insensitive substring filter on names.
struct Filter(String);

impl Filter {
    fn of(look: &TableQuery) -> Self {
        Self(look.filter.to_lowercase())
    }

    fn fits(&self, name: &str) -> bool {
        self.0.is_empty() || name.to_lowercase().contains(&self.0)
    }
}

/// The first `most` in this order, sorted. The rest is not sorted.
fn first<T>(mut all: Vec<T>, most: usize, order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    if all.len() > most {
        all.select_nth_unstable_by(most, &order);
        all.truncate(most);
    }
    all.sort_unstable_by(order);
    all
}

/// Descending; missing values last.
fn down(one: Option<f64>, other: Option<f64>) -> Ordering {
    other.unwrap_or(-1.0).total_cmp(&one.unwrap_or(-1.0))
}

async fn topics(
    broker: &Broker,
    sample: &Sample,
    look: &TableQuery,
) -> Result<(Rows, u64), OperationError> {
    let filter = Filter::of(look);
    let all: Vec<(&TopicId, &TopicSeen)> =
        sample.topics.iter().filter(|(_, topic)| filter.fits(&topic.name)).collect();
    let matching = all.len() as u64;
    let by_rate = |one: &TopicSeen, other: &TopicSeen| {
        // Without rates, by the records appended since the beginning.
        down(one.records_in, other.records_in).then(other.appended.cmp(&one.appended))
    };
    let order = |(_, one): &(_, &TopicSeen), (_, other): &(_, &TopicSeen)| {
        let by = match look.order {
            Order::Rate => by_rate(one, other),
            Order::Backlog | Order::Age => other.backlog.cmp(&one.backlog),
            Order::Name => Ordering::Equal,
        };
        by.then_with(|| one.name.cmp(&other.name))
    };
    let mut rows = Vec::new();
    for (id, topic) in first(all, look.rows_max as usize, order) {
        let partitions = (0..topic.partitions).map(|index| PartitionId::new(*id, index));
        let partitions: Vec<PartitionId> = partitions.collect();
        let bytes = broker.shards().known().live_bytes(&partitions).await.map_err(unavailable)?;
        rows.push(TopicRow {
            topic: topic.name.to_string(),
            partitions: topic.partitions,
            records: topic.records,
            bytes: bytes.into_iter().sum(),
            records_in: topic.records_in,
            backlog: topic.backlog,
            groups: topic.groups,
        });
    }
    Ok((Rows::Topics(rows), matching))
}

/// Counters of each queue from its leader, in the order of `ids`.
pub(crate) async fn ask_each(broker: &Broker, ids: &[LeaseGroupId]) -> Vec<Option<Counters>> {
    let until = Instant::now() + ANSWERED_WITHIN;
    let asking = ids
        .iter()
        .copied()
        .map(|id| async move { timeout_at(until, broker.counters(id)).await.ok().flatten() });
    let asking: Vec<_> = asking.collect();
    stream::iter(asking).buffered(ASKED_AT_ONCE).collect().await
}

/// Age of the first record at or after a place. It is the age of its batch, which is read without unpacking.
async fn age(
    broker: &Broker,
    topic: TopicId,
    worst: Option<LargestLag>,
    until: Instant,
) -> Option<f64> {
    let Some(LargestLag { partition, offset, .. }) = worst else { return Some(0.0) };
    let reading = broker.read_known_batches(PartitionId::new(topic, partition), offset, 1);
    // Deleted records have no age.
    let read = timeout_at(until, reading).await.ok()?.ok()?;
    let (header, _) = read.iter().next()?.ok()?;
    (header.base_timestamp >= 0).then(|| since(broker, header.base_timestamp))
}

fn since(broker: &Broker, at_ms: i64) -> f64 {
    broker.clock().now_ms().saturating_sub(at_ms).max(0) as f64 / 1_000.0
}

/// Selects the rows to show. Ages need a read each, so only the largest backlogs are compared by age.
async fn chosen<T: Copy>(
    broker: &Broker,
    all: Vec<T>,
    look: &TableQuery,
    order: impl Fn(Order, &T, &T) -> Ordering,
    place: impl Fn(T) -> (TopicId, Option<LargestLag>),
) -> Vec<(T, Option<f64>)> {
    let rows_max = look.rows_max as usize;
    let of_shown = look.order == Order::Age;
    let (first_by, most) = match of_shown {
        true => (Order::Backlog, OVERVIEW_ASKED_MAX.max(rows_max)),
        false => (look.order, rows_max),
    };
    let until = Instant::now() + ANSWERED_WITHIN;
    let mut rows = Vec::new();
    for one in first(all, most, |one, other| order(first_by, one, other)) {
        let (topic, worst) = place(one);
        rows.push((one, age(broker, topic, worst, until).await));
    }
    if of_shown {
        rows.sort_by(|(_, one), (_, other)| down(*one, *other));
        rows.truncate(rows_max);
    }
    rows
}

async fn queues(broker: &Broker, sample: &Sample, look: &TableQuery) -> (Rows, u64) {
    let filter = Filter::of(look);
    let name_of = |queue: &QueueSeen| sample.topics.get(&queue.topic).map(|topic| &topic.name);
    let all: Vec<(LeaseGroupId, &QueueSeen)> = sample
        .queues
        .iter()
        .filter(|(_, queue)| {
            filter.fits(&queue.name) || name_of(queue).is_some_and(|name| filter.fits(name))
        })
        .map(|(id, queue)| (*id, queue))
        .collect();
    let matching = all.len() as u64;
    type Row<'a> = (LeaseGroupId, &'a QueueSeen);
    let order = |by: Order, (_, one): &Row<'_>, (_, other): &Row<'_>| {
        let by = match by {
            Order::Rate => down(one.settled_a_second, other.settled_a_second)
                .then(other.backlog.cmp(&one.backlog)),
            Order::Backlog | Order::Age => other.backlog.cmp(&one.backlog),
            Order::Name => Ordering::Equal,
        };
        by.then_with(|| (name_of(one), &one.name).cmp(&(name_of(other), &other.name)))
    };
    let place = |(_, queue): Row<'_>| (queue.topic, queue.worst);
    let chosen = chosen(broker, all, look, order, place).await;
    let ids: Vec<LeaseGroupId> = chosen.iter().map(|((id, _), _)| *id).collect();
    let asked = ask_each(broker, &ids).await;
    let rows = chosen.into_iter().zip(asked).map(|(((_, queue), age), counters)| {
        let topic = sample.topics.get(&queue.topic);
        // The leader knows the oldest record of all partitions.
        let oldest = counters.and_then(|it| it.oldest_unsettled_ms).filter(|at| *at >= 0);
        QueueRow {
            topic: topic.map(|topic| topic.name.to_string()).unwrap_or_default(),
            group: queue.name.to_string(),
            paused: queue.paused,
            backlog: queue.backlog,
            ready: counters.map(|it| it.ready),
            leased: counters.map(|it| it.leased),
            delayed: counters.map(|it| it.delayed),
            consumers: counters.map(|it| it.consumers),
            age_seconds: oldest.filter(|_| queue.backlog > 0).map(|at| since(broker, at)).or(age),
            records_in: topic.and_then(|topic| topic.records_in),
            settled: queue.settled_a_second,
        }
    });
    (Rows::Queues(rows.collect()), matching)
}

async fn groups(broker: &Broker, sample: &Sample, look: &TableQuery) -> (Rows, u64) {
    let filter = Filter::of(look);
    let name_of = |key: &GroupKey| sample.topics.get(&key.1).map(|topic| &topic.name);
    type Row<'a> = (&'a GroupKey, &'a GroupSeen);
    let all: Vec<Row<'_>> = sample
        .groups
        .iter()
        .filter(|(key, _)| {
            filter.fits(&key.0) || name_of(key).is_some_and(|name| filter.fits(name))
        })
        .collect();
    let matching = all.len() as u64;
    let order = |by: Order, (key, one): &Row<'_>, (other_key, other): &Row<'_>| {
        let by = match by {
            Order::Rate => down(one.committed_a_second, other.committed_a_second)
                .then(other.backlog.cmp(&one.backlog)),
            Order::Backlog | Order::Age => other.backlog.cmp(&one.backlog),
            Order::Name => Ordering::Equal,
        };
        by.then_with(|| (&key.0, name_of(key)).cmp(&(&other_key.0, name_of(other_key))))
    };
    let place = |(key, group): Row<'_>| (key.1, group.worst);
    let chosen = chosen(broker, all, look, order, place).await;
    let rows = chosen.into_iter().map(|((key, group), age)| {
        let topic = sample.topics.get(&key.1);
        GroupRow {
            group: key.0.to_string(),
            topic: topic.map(|topic| topic.name.to_string()).unwrap_or_default(),
            partitions: group.partitions,
            backlog: group.backlog,
            age_seconds: age,
            records_in: topic.and_then(|topic| topic.records_in),
            committed: group.committed_a_second,
        }
    });
    (Rows::Groups(rows.collect()), matching)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_rows_are_selected_and_sorted() {
        let all: Vec<u32> = (0..1_000).map(|number| number * 7 % 1_000).collect();
        assert_eq!(first(all.clone(), 3, |one, other| other.cmp(one)), [999, 998, 997]);
        assert_eq!(first(all, 2_000, u32::cmp).len(), 1_000);
        assert_eq!(first(vec![2, 1], 2, u32::cmp), [1, 2]);
    }

    #[test]
    fn rows_without_a_rate_are_last() {
        let mut rates = [None, Some(2.0), Some(0.0), Some(3.0)];
        rates.sort_by(|one, other| down(*one, *other));
        assert_eq!(rates, [Some(3.0), Some(2.0), Some(0.0), None]);
    }
}
