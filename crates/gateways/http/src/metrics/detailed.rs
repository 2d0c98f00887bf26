//! Metrics of single topics, partitions and groups, selected by name.
//!
//! Their number grows with the stored data, so `/metrics` has none of them. A request names the families and the
//! maximum number of series. A longer result is truncated, which a series of its own reports, so that it can raise an
//! alarm. Objects that the user may not see are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Result as Written;

use access::{AccessTarget, Operation};
use access_rules::acl::{Action, Resource};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use base::limits::ESTIMATE_WITHIN;
use base::{LeaseGroupId, PartitionId, TopicId};
use broker::Broker;
use broker::delivery::Counters;
use futures_util::{StreamExt, stream};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use crate::front::FrontEnd;
use crate::limits::{
    HTTP_API_QUEUES_AT_ONCE, HTTP_METRICS_SERIES_DEFAULT, HTTP_METRICS_SERIES_MAX, HTTP_OFFSETS_MAX,
};
use crate::login::RequestClient;
use crate::metrics::writer::{Label, Writer};
use crate::metrics::written;
use crate::problem::{Kind, Problem};
use crate::request_input;

/// Compiled size of a pattern.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;
/// Group names that are listed at a time.
const GROUPS_PER_LOOK: usize = 500;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DetailedQuery {
    /// Comma-separated.
    family: String,
    topic: Option<String>,
    group: Option<String>,
    #[serde(default = "series_default")]
    limit: usize,
}

fn series_default() -> usize {
    HTTP_METRICS_SERIES_DEFAULT
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Family {
    Topic,
    Partition,
    LeaseGroup,
    Group,
}

const FAMILIES: [(&str, Family); 4] = [
    ("topic", Family::Topic),
    ("partition", Family::Partition),
    ("lease_group", Family::LeaseGroup),
    ("group", Family::Group),
];

/// Selection of series. The patterns must match whole names.
struct SeriesFilter {
    families: BTreeSet<Family>,
    topic: Option<Regex>,
    group: Option<Regex>,
    limit: usize,
}

impl SeriesFilter {
    fn of(uri: &Uri) -> Result<Self, Problem> {
        let DetailedQuery { family, topic, group, limit } = request_input::query(uri)?;
        let wrong = |detail: String| Problem::new(Kind::BadRequest, detail);
        let known = FAMILIES.map(|(name, _)| name).join(", ");
        let family_of = |name: &str| {
            let found = FAMILIES.iter().find(|(known, _)| *known == name);
            let unknown = || wrong(format!("family is some of {known}, not {name:?}"));
            found.map(|(_, family)| *family).ok_or_else(unknown)
        };
        let families = family.split(',').map(family_of).collect::<Result<_, _>>()?;
        if !(1..=HTTP_METRICS_SERIES_MAX).contains(&limit) {
            let most = HTTP_METRICS_SERIES_MAX;
            let detail = format!("limit is 1 to {most}, not {limit}");
            return Err(Problem::limited(Kind::BadRequest, detail, most as u64));
        }
        let pattern = |name: &str, text: Option<String>| {
            let compiled = text.map(|text| {
                RegexBuilder::new(&format!("^(?:{text})$"))
                    .size_limit(PATTERN_COMPILED_BYTES_MAX)
                    .build()
            });
            compiled.transpose().map_err(|error| wrong(format!("{name}: {error}")))
        };
        let (topic, group) = (pattern("topic", topic)?, pattern("group", group)?);
        Ok(Self { families, topic, group, limit })
    }

    fn is_wanted(&self, family: Family) -> bool {
        self.families.contains(&family)
    }

    fn topic(&self, name: &str) -> bool {
        self.topic.as_ref().is_none_or(|pattern| pattern.is_match(name))
    }

    fn group(&self, name: &str) -> bool {
        self.group.as_ref().is_none_or(|pattern| pattern.is_match(name))
    }
}

/// `GET /metrics/detailed`: rows of the objects that the user may see.
pub(crate) async fn detailed(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let wanted = SeriesFilter::of(&uri)?;
    let broker = &front.opened()?.broker;
    // For shards without a leader, this node's copies are shown.
    let _ = broker.all_are_current(ESTIMATE_WITHIN).await;
    let mut rows = Rows { left: wanted.limit, ..Rows::default() };
    if wanted.is_wanted(Family::Topic) || wanted.is_wanted(Family::Partition) {
        topics(broker, &caller, &wanted, &mut rows).await?;
    }
    if wanted.is_wanted(Family::LeaseGroup) {
        lease_groups(broker, &caller, &wanted, &mut rows).await;
    }
    if wanted.is_wanted(Family::Group) {
        groups(broker, &caller, &wanted, &mut rows).await?;
    }
    written(rows, &headers)
}

fn unavailable(why: &broker::Unavailable) -> Problem {
    Problem::busy(why.to_string())
}

// ------------------------------------------------------------------------------------- what there is

#[derive(Debug, Default)]
struct Rows {
    /// Series that still fit, and which families were truncated.
    left: usize,
    cut: BTreeMap<&'static str, bool>,
    topics: Vec<TopicRow>,
    partitions: Vec<PartitionRow>,
    lease_groups: Vec<LeaseGroupRow>,
    groups: Vec<GroupRow>,
}

#[derive(Debug)]
struct TopicRow {
    topic: String,
    partitions: u64,
    records: u64,
    appended: u64,
    live_bytes: u64,
}

#[derive(Debug)]
struct PartitionRow {
    topic: String,
    partition: u32,
    start: u64,
    end: u64,
}

#[derive(Debug)]
struct LeaseGroupRow {
    topic: String,
    group: String,
    counters: Counters,
    lag_seconds: Option<f64>,
}

#[derive(Debug)]
struct GroupRow {
    topic: String,
    group: String,
    lag: u64,
}

impl Rows {
    /// Takes room for a row of so many series; false: the family is truncated.
    fn has_room(&mut self, family: &'static str, series: usize) -> bool {
        let fits = self.left >= series;
        if fits {
            self.left -= series;
        } else {
            self.left = 0;
        }
        *self.cut.entry(family).or_insert(false) |= !fits;
        fits
    }
}

/// Selected topics that the user may see, sorted, at most `most`.
fn named(
    broker: &Broker,
    caller: &RequestClient,
    wanted: &SeriesFilter,
    most: usize,
) -> Vec<(TopicId, String)> {
    let catalog = broker.catalog();
    let topics = catalog.topics_from(std::ops::Bound::Unbounded);
    let seen = topics.filter(|topic| {
        wanted.topic(topic.name()) && caller.sees(AccessTarget::Topic(topic.name()))
    });
    seen.take(most).map(|topic| (topic.id(), topic.name().to_string())).collect()
}

const TOPIC_SERIES: usize = 4;
const PARTITION_SERIES: usize = 2;

async fn topics(
    broker: &Broker,
    caller: &RequestClient,
    wanted: &SeriesFilter,
    rows: &mut Rows,
) -> Result<(), Problem> {
    let of_topics = wanted.is_wanted(Family::Topic);
    let of_partitions = wanted.is_wanted(Family::Partition);
    for family in [("topic", of_topics), ("partition", of_partitions)] {
        if family.1 {
            rows.cut.insert(family.0, false);
        }
    }
    // One more than fits, to detect truncation.
    for (id, topic) in named(broker, caller, wanted, rows.left + 1) {
        let partitions: Vec<PartitionId> = {
            let catalog = broker.catalog();
            let known = catalog.topic(id);
            known.map(|known| known.partition_ids().collect()).unwrap_or_default()
        };
        if of_topics && !rows.has_room("topic", TOPIC_SERIES) {
            rows.cut.entry("partition").and_modify(|cut| *cut = true);
            break;
        }
        let found =
            broker.shards().known().bounds(&partitions).await.map_err(|why| unavailable(&why))?;
        let bounds = || partitions.iter().zip(&found).filter_map(|(id, it)| Some((id, (*it)?)));
        if of_topics {
            let live = broker.shards().known().live_bytes(&partitions).await;
            let live = live.map_err(|why| unavailable(&why))?;
            rows.topics.push(TopicRow {
                topic: topic.clone(),
                partitions: partitions.len() as u64,
                records: bounds().map(|(_, it)| it.end - it.log_start.min(it.end)).sum(),
                appended: bounds().map(|(_, it)| it.end).sum(),
                live_bytes: live.into_iter().sum(),
            });
        }
        if !of_partitions {
            continue;
        }
        for (id, bounds) in bounds() {
            if !rows.has_room("partition", PARTITION_SERIES) {
                return Ok(());
            }
            let (start, end) = (bounds.log_start, bounds.end);
            let topic = topic.clone();
            rows.partitions.push(PartitionRow { topic, partition: id.index, start, end });
        }
    }
    Ok(())
}

const LEASE_GROUP_SERIES: usize = 11;

async fn lease_groups(
    broker: &Broker,
    caller: &RequestClient,
    wanted: &SeriesFilter,
    rows: &mut Rows,
) {
    let most = rows.left / LEASE_GROUP_SERIES + 1;
    let found: Vec<(LeaseGroupId, String, String)> = {
        let catalog = broker.catalog();
        let topics = catalog.topics_from(std::ops::Bound::Unbounded);
        let topics = topics.filter(|topic| wanted.topic(topic.name()));
        let groups = topics.flat_map(|topic| {
            let groups = catalog.lease_groups_of(topic.id());
            groups
                .map(move |group| (group.id(), topic.name().to_string(), group.name().to_string()))
        });
        let may = |topic: &str, group: &str| {
            caller.rights().would(Operation::DescribeGroup, AccessTarget::Group { topic, group })
        };
        let seen = groups.filter(|(_, topic, group)| wanted.group(group) && may(topic, group));
        seen.take(most).collect()
    };
    rows.cut.insert("lease_group", false);
    let now_ms = broker.clock().now_ms();
    let counted = found.into_iter().map(|(id, topic, group)| async move {
        broker.counters(id).await.map(|counters| (topic, group, counters))
    });
    let counted: Vec<_> = counted.collect();
    let mut counted = stream::iter(counted).buffered(HTTP_API_QUEUES_AT_ONCE);
    while let Some(row) = counted.next().await {
        let Some((topic, group, counters)) = row else { continue };
        if !rows.has_room("lease_group", LEASE_GROUP_SERIES) {
            return;
        }
        let age = |oldest_ms: i64| now_ms.saturating_sub(oldest_ms).max(0) as f64 / 1_000.0;
        let lag_seconds = match counters.depth {
            0 => Some(0.0),
            _ => counters.oldest_unsettled_ms.map(age),
        };
        rows.lease_groups.push(LeaseGroupRow { topic, group, counters, lag_seconds });
    }
}

const GROUP_SERIES: usize = 1;

async fn groups(
    broker: &Broker,
    caller: &RequestClient,
    wanted: &SeriesFilter,
    rows: &mut Rows,
) -> Result<(), Problem> {
    rows.cut.insert("group", false);
    let shards = broker.shards().known();
    let mut after = String::new();
    loop {
        let names = shards.offset_groups_after(&after, GROUPS_PER_LOOK).await;
        let names = names.map_err(|why| unavailable(&why))?;
        let Some(last) = names.last().cloned() else { return Ok(()) };
        let may = |name: &str| caller.allows(Action::Describe, Resource::Group, name);
        for group in names.into_iter().filter(|name| wanted.group(name) && may(name)) {
            for (topic, lag) in lag(broker, caller, wanted, &group).await? {
                if !rows.has_room("group", GROUP_SERIES) {
                    return Ok(());
                }
                rows.groups.push(GroupRow { topic, group: group.clone(), lag });
            }
        }
        after = last;
    }
}

/// Lag of a group by topic, for selected topics that the user may see.
async fn lag(
    broker: &Broker,
    caller: &RequestClient,
    wanted: &SeriesFilter,
    group: &str,
) -> Result<BTreeMap<String, u64>, Problem> {
    let shards = broker.shards().known();
    let offsets = shards.offsets_after(group, None, HTTP_OFFSETS_MAX).await;
    let offsets = offsets.map_err(|why| unavailable(&why))?;
    let seen: Vec<(PartitionId, u64, String)> = {
        let catalog = broker.catalog();
        let named = offsets.into_iter().filter_map(|(id, committed)| {
            let topic = catalog.topic(id.topic)?.name().to_string();
            Some((id, committed.offset, topic))
        });
        let is_seen = |topic: &str| wanted.topic(topic) && caller.sees(AccessTarget::Topic(topic));
        named.filter(|(_, _, topic)| is_seen(topic)).collect()
    };
    let ids: Vec<PartitionId> = seen.iter().map(|(id, _, _)| *id).collect();
    let bounds = shards.bounds(&ids).await.map_err(|why| unavailable(&why))?;
    let mut lag = BTreeMap::new();
    for ((_, offset, topic), bounds) in seen.into_iter().zip(bounds) {
        let unread = bounds.map_or(0, |it| base::lag::lag(offset, it.log_start, it.end));
        *lag.entry(topic).or_default() += unread;
    }
    Ok(lag)
}

// ----------------------------------------------------------------------------------------- as lines

impl Collector for Rows {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Written {
        let mut writer = Writer::new(encoder);
        let cut = self.cut.iter().map(|(family, cut)| (vec![("family", (*family).into())], *cut));
        let help = "1: there are more of the family than this answer has";
        writer.gauges("metrics_truncated", help, cut)?;
        self.write_topics(&mut writer)?;
        self.write_partitions(&mut writer)?;
        self.write_lease_groups(&mut writer)?;
        if self.cut.contains_key("group") {
            let of = self.groups.iter().map(|row| (both(&row.topic, &row.group), row.lag));
            let help = "Records that a group which commits offsets has not read";
            writer.gauges("group_lag_records", help, of)?;
        }
        Ok(())
    }
}

fn both(topic: &str, group: &str) -> Vec<Label> {
    vec![("topic", topic.to_owned()), ("group", group.to_owned())]
}

impl Rows {
    fn write_topics(&self, writer: &mut Writer<'_>) -> Written {
        if !self.cut.contains_key("topic") {
            return Ok(());
        }
        let of = |value: fn(&TopicRow) -> u64| {
            self.topics.iter().map(move |row| (vec![("topic", row.topic.clone())], value(row)))
        };
        writer.gauges("topic_partitions", "Partitions of a topic", of(|row| row.partitions))?;
        let help = "Offsets that a topic has, which are records where nothing was compacted";
        writer.gauges("topic_records", help, of(|row| row.records))?;
        let help = "Records that were ever appended to it";
        writer.counters("topic_appended_records", help, of(|row| row.appended))?;
        let help = "Bytes of it on this node's disk that may still be read";
        writer.gauges("topic_live_bytes", help, of(|row| row.live_bytes))
    }

    fn write_partitions(&self, writer: &mut Writer<'_>) -> Written {
        if !self.cut.contains_key("partition") {
            return Ok(());
        }
        let labels = |row: &PartitionRow| {
            vec![("topic", row.topic.clone()), ("partition", row.partition.to_string())]
        };
        let starts = self.partitions.iter().map(|row| (labels(row), row.start));
        writer.gauges("partition_start_offset", "The offset of the first record", starts)?;
        let ends = self.partitions.iter().map(|row| (labels(row), row.end));
        writer.gauges("partition_end_offset", "The offset of the next record to come", ends)
    }

    fn write_lease_groups(&self, writer: &mut Writer<'_>) -> Written {
        if !self.cut.contains_key("lease_group") {
            return Ok(());
        }
        let of = |value: fn(&Counters) -> u64| {
            let rows = self.lease_groups.iter();
            rows.map(move |row| (both(&row.topic, &row.group), value(&row.counters)))
        };
        let help = "Records that a group which settles one by one has not settled";
        writer.gauges("lease_group_depth", help, of(|it| it.depth))?;
        writer.gauges("lease_group_ready", "Those that can be delivered", of(|it| it.ready))?;
        writer.gauges("lease_group_leased", "Leased records", of(|it| it.leased))?;
        writer.gauges("lease_group_leased_bytes", "Bytes of them", of(|it| it.leased_bytes))?;
        let help = "Those that wait for their time";
        writer.gauges("lease_group_delayed", help, of(|it| it.delayed))?;
        let help = "Consumers of a group";
        writer.gauges("lease_group_consumers", help, of(|it| it.consumers.into()))?;
        let lags = self
            .lease_groups
            .iter()
            .filter_map(|row| Some((both(&row.topic, &row.group), row.lag_seconds?)));
        let help = "Age of the oldest record that is not settled; 0: all are";
        writer.gauges("lease_group_lag_seconds", help, lags)?;
        let help = "Records that were handed out since the leader started";
        writer.counters("lease_group_delivered", help, of(|it| it.delivered))?;
        let help = "Those of them that were handed out again";
        writer.counters("lease_group_redelivered", help, of(|it| it.redelivered))?;
        let help = "Records that were settled since the leader started";
        writer.counters("lease_group_settled", help, of(|it| it.settled))?;
        let help = "Records that became dead letters since the leader started";
        writer.counters("lease_group_dead_letters", help, of(|it| it.dead_letters))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_selects_families_patterns_and_a_limit() {
        let of = |query: &str| {
            SeriesFilter::of(&format!("/metrics/detailed?{query}").parse().expect("a path"))
        };
        let wanted = of("family=topic,group&topic=a.*&limit=7")
            .unwrap_or_else(|problem| panic!("{problem}"));
        assert!(wanted.is_wanted(Family::Group) && !wanted.is_wanted(Family::Partition));
        assert_eq!(wanted.limit, 7);
        // Patterns match whole names.
        assert!(wanted.topic("ab") && !wanted.topic("ba") && wanted.group("anything"));
        for wrong in [
            "",
            "family=",
            "family=x",
            "family=topic&limit=0",
            "family=topic&topic=(",
            "family=topic&x=1",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rows_over_the_limit_mark_their_family_as_truncated() {
        let mut rows = Rows { left: 5, ..Rows::default() };
        assert!(rows.has_room("topic", 4));
        assert!(!rows.has_room("topic", 4));
        assert!(!rows.has_room("group", 1), "what is cut once is cut");
        assert_eq!(rows.cut, BTreeMap::from([("topic", true), ("group", true)]));
    }
}
