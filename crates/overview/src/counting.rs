//! Counts the contents of a node. A read of the state delays applies, so counting reads some partitions at a time and
//! yields in between.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::OVERVIEW_OFFSETS_MAX;
use base::collections::HashMap;
use base::lag::{lag, next_unread};
use base::limits::ESTIMATE_WITHIN;
use base::{LeaseGroupId, PartitionId, TopicId};
use broker::{Broker, LeaseProgress, Unavailable};
use world::Instant;

use crate::Host;
use crate::sample::{
    Counters, GroupKey, GroupSeen, LargestLag, QueueSeen, Sample, TopicSeen, a_second,
};

/// Partitions counted before a yield.
const PARTITIONS_PER_TURN: usize = 1_000;
/// Group names read at a time.
const GROUPS_PER_TURN: usize = 500;

pub(crate) async fn count(
    broker: &Broker,
    host: &Host,
    before: Option<&Sample>,
) -> Result<Sample, Unavailable> {
    let at = Instant::now();
    // For a shard without a leader, counts come from this node's replica.
    let _ = broker.all_are_current(ESTIMATE_WITHIN).await;
    let over = before.map(|before| at.duration_since(before.at));
    let since = before.zip(over);
    let mut counting = Sampler { broker, since, busy: Duration::ZERO, begun: at };
    let (mut topics, queues) = counting.topics().await?;
    let (groups, cut) = counting.groups(&mut topics).await?;
    let counters = counters(broker, host);
    let grown = before.map(|before| counters.since(&before.counters));
    let records_in = over.map(|_| topics.values().filter_map(|topic| topic.records_in).sum());
    let took = counting.busy + counting.begun.elapsed();
    Ok(Sample { at, over, took, topics, queues, groups, cut, counters, grown, records_in })
}

fn counters(broker: &Broker, host: &Host) -> Counters {
    let mut counters =
        Counters { cpu_seconds: (host.process)().cpu_seconds, ..Counters::default() };
    for (_, seen) in host.connections.traffic_seen() {
        counters.bytes_in += seen.bytes_received;
        counters.bytes_out += seen.bytes_delivered;
    }
    for shard in broker.vitals().shards {
        counters.delivered += shard.leases.delivered;
        counters.redelivered += shard.leases.redelivered;
        counters.settled += shard.leases.settled;
        counters.dead_letters += shard.leases.dead_letters;
        counters.syncs += shard.journal.syncs;
        counters.sync_micros += shard.journal.total_sync_micros;
    }
    counters
}

struct Sampler<'a> {
    broker: &'a Broker,
    since: Option<(&'a Sample, Duration)>,
    /// Processor time before the last yield.
    busy: Duration,
    begun: Instant,
}

/// A topic's definition in the catalog.
struct DefinedTopic {
    id: TopicId,
    name: Arc<str>,
    partitions: u32,
    queues: Vec<(LeaseGroupId, Arc<str>, bool)>,
}

impl Sampler<'_> {
    /// Yields to other tasks.
    async fn turn(&mut self) {
        self.busy += self.begun.elapsed();
        tokio::task::yield_now().await;
        self.begun = Instant::now();
    }

    /// Topics after this name, as many as are counted before a yield.
    fn defined_after(&self, after: Option<&str>) -> Vec<DefinedTopic> {
        let catalog = self.broker.catalog();
        let mut room = PARTITIONS_PER_TURN;
        let topics = catalog.topics_from(after.map_or(Bound::Unbounded, Bound::Excluded));
        let fits = topics.take_while(|topic| {
            let had_room = room > 0;
            room = room.saturating_sub(topic.partition_count() as usize);
            had_room
        });
        let defined = fits.map(|topic| DefinedTopic {
            id: topic.id(),
            name: Arc::clone(topic.name()),
            partitions: topic.partition_count(),
            queues: catalog
                .lease_groups_of(topic.id())
                .map(|group| (group.id(), Arc::clone(group.name()), group.is_paused()))
                .collect(),
        });
        defined.collect()
    }

    async fn topics(
        &mut self,
    ) -> Result<(HashMap<TopicId, TopicSeen>, HashMap<LeaseGroupId, QueueSeen>), Unavailable> {
        let (mut topics, mut queues) = (HashMap::default(), HashMap::default());
        let mut after: Option<Arc<str>> = None;
        loop {
            let defined = self.defined_after(after.as_deref());
            let Some(last) = defined.last() else { return Ok((topics, queues)) };
            after = Some(Arc::clone(&last.name));
            let partitions = defined.iter().flat_map(|topic| {
                (0..topic.partitions).map(|index| PartitionId::new(topic.id, index))
            });
            let partitions: Vec<PartitionId> = partitions.collect();
            let bounds = self.broker.shards().known().bounds(&partitions).await?;
            let mut bounds = bounds.into_iter();
            for topic in defined {
                let of_topic = bounds.by_ref().take(topic.partitions as usize).flatten();
                let (records, appended) = of_topic.fold((0, 0), |(records, appended), it| {
                    (records + it.end.saturating_sub(it.log_start), appended + it.end)
                });
                let mut seen = TopicSeen {
                    name: topic.name,
                    partitions: topic.partitions,
                    records,
                    appended,
                    records_in: self.since.map(|(before, over)| {
                        // For a new topic every record counts as appended since the previous look.
                        let had = before.topics.get(&topic.id).map_or(0, |it| it.appended);
                        a_second(appended, had, over)
                    }),
                    backlog: 0,
                    groups: topic.queues.len() as u32,
                };
                for (id, name, paused) in topic.queues {
                    let queue = self.queue(topic.id, topic.partitions, id, name, paused).await?;
                    seen.backlog = seen.backlog.max(queue.backlog);
                    queues.insert(id, queue);
                }
                topics.insert(topic.id, seen);
            }
            self.turn().await;
        }
    }

    async fn queue(
        &self,
        topic: TopicId,
        partitions: u32,
        id: LeaseGroupId,
        name: Arc<str>,
        paused: bool,
    ) -> Result<QueueSeen, Unavailable> {
        let indexes: Vec<u32> = (0..partitions).collect();
        let progress = self.broker.shards().known().lease_progress(id, &indexes).await?;
        let mut queue = QueueSeen {
            topic,
            name,
            paused,
            backlog: 0,
            settled: 0,
            settled_a_second: None,
            worst: None,
        };
        for (partition, progress) in indexes.into_iter().zip(progress) {
            let Some(LeaseProgress { floor, end, settled_above, .. }) = progress else { continue };
            let records = end.saturating_sub(floor).saturating_sub(settled_above);
            queue.backlog += records;
            queue.settled += floor + settled_above;
            queue.worst =
                LargestLag::or(queue.worst, LargestLag { partition, offset: floor, records });
        }
        queue.settled_a_second = self.since.and_then(|(before, over)| {
            // A new queue has no rate: its start position is arbitrary.
            let had = before.queues.get(&id)?.settled;
            Some(a_second(queue.settled, had, over))
        });
        Ok(queue)
    }

    /// Also returns whether there are more offsets than are counted.
    async fn groups(
        &mut self,
        topics: &mut HashMap<TopicId, TopicSeen>,
    ) -> Result<(HashMap<GroupKey, GroupSeen>, bool), Unavailable> {
        let broker = self.broker;
        let mut groups: HashMap<GroupKey, GroupSeen> = HashMap::default();
        let mut left = OVERVIEW_OFFSETS_MAX;
        let mut after = String::new();
        let mut cut = false;
        while !cut {
            let names =
                broker.shards().known().offset_groups_after(&after, GROUPS_PER_TURN).await?;
            let Some(last) = names.last() else { break };
            after.clone_from(last);
            for name in names {
                // One offset more than the limit shows that there are more.
                let mut offsets =
                    broker.shards().known().offsets_after(&name, None, left + 1).await?;
                if offsets.len() > left {
                    offsets.truncate(left);
                    cut = true;
                }
                left -= offsets.len();
                let ids: Vec<PartitionId> = offsets.iter().map(|(id, _)| *id).collect();
                let bounds = broker.shards().known().bounds(&ids).await?;
                let name: Arc<str> = name.into();
                for ((id, committed), bounds) in offsets.into_iter().zip(bounds) {
                    let Some(bounds) = bounds.filter(|_| topics.contains_key(&id.topic)) else {
                        continue;
                    };
                    let offset = next_unread(committed.offset, bounds.log_start);
                    let records = lag(committed.offset, bounds.log_start, bounds.end);
                    let group = groups.entry((Arc::clone(&name), id.topic)).or_default();
                    group.partitions += 1;
                    group.backlog += records;
                    group.committed += committed.offset;
                    let place = LargestLag { partition: id.index, offset, records };
                    group.worst = LargestLag::or(group.worst, place);
                }
                if cut {
                    break;
                }
            }
            self.turn().await;
        }
        for (key, group) in &mut groups {
            group.committed_a_second = self.since.and_then(|(before, over)| {
                let had = before.groups.get(key)?.committed;
                Some(a_second(group.committed, had, over))
            });
            if let Some(topic) = topics.get_mut(&key.1) {
                topic.backlog = topic.backlog.max(group.backlog);
                topic.groups += 1;
            }
        }
        Ok((groups, cut))
    }
}
