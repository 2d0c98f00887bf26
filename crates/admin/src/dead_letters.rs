//! Dead letters: count, show, redrive, delete. They wait in the main lease group of a topic; in a topic
//! without one, all its records are searched. A record is a dead letter if its headers have a death, whatever
//! topic it is in: the ordinary records of a topic are neither counted nor changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use access::{AccessTarget, Operation, Rights};
use base::limits::OPERATION_RECORDS_MAX;
use base::{LeaseGroupId, MAIN_LEASE_GROUP, PartitionId, headers};
use broker::delivery::{PeekedRecord, RedriveError, RedriveSelection, RedriveTo};
use broker::{Broker, CatalogView, YieldBudget};
use consumer_groups::dead_letters::{self as share, Route};
use operations::document::{
    DeadLetter, DeadLetterCount, DeadLetterCounts, DeadLetterFilter, DeadLetterPage,
    DeadLetterTopics, DeadLettersMoved, Death, RecordPosition, Span,
};
use record::HeadersView;

use crate::AdminError;
use crate::browse::{PageBudget, Source, VisitDecision, first_record, stored};
use crate::limits::OPERATION_PAGE_SCAN_MAX;
use crate::queues::{ensure_main, no_topic, remove_from};

/// Dead letters that one request redrives or deletes.
const MOVED_MAX: usize = 1_000;

/// The death of a dead letter, from the broker's headers, or from those of a share group's letter without a
/// copy (KIP-1191).
pub(crate) fn death(headers: &HeadersView<'_>) -> Death {
    let text = |name: &str| {
        let value = std::str::from_utf8(headers.last(name.as_bytes())??).ok()?;
        Some(value.to_owned())
    };
    let either = |own: &str, share: &str| text(own).or_else(|| text(share));
    let number = |text: Option<String>| text?.parse::<i64>().ok();
    let count = |text: Option<String>| text?.parse::<u64>().ok();
    let reason = text(headers::DEATH_REASON).or_else(|| {
        let message = text(share::MESSAGE)?;
        Some(share::reason(&message).map_or(message, |reason| reason.name().to_owned()))
    });
    let partition = either(headers::DEATH_PARTITION, share::PARTITION);
    Death {
        reason,
        attempts: count(either(headers::DEATH_COUNT, share::DELIVERIES)),
        topic: either(headers::DEATH_TOPIC, share::TOPIC),
        partition: partition.and_then(|partition| partition.parse().ok()),
        offset: count(either(headers::DEATH_OFFSET, share::OFFSET)),
        group: either(headers::DEATH_GROUP, share::GROUP),
        time_ms: number(text(headers::DEATH_TIME)),
    }
}

/// Returns whether the headers of a record mark it as a dead letter.
pub(crate) fn is_known(death: &Death) -> bool {
    death.reason.is_some() || death.topic.is_some()
}

fn matches(death: &Death, only: &DeadLetterFilter) -> bool {
    let is = |wanted: &Option<String>, found: &Option<String>| {
        wanted.as_ref().is_none_or(|wanted| found.as_ref() == Some(wanted))
    };
    is_known(death) && is(&only.source, &death.topic) && is(&only.reason, &death.reason)
}

/// Returns the records among which a topic's dead letters are.
fn source(broker: &Broker, topic: &str) -> Result<Source, AdminError> {
    let catalog = broker.catalog();
    let topic = catalog.topic_named(topic).ok_or_else(|| no_topic(topic))?;
    let group = catalog.lease_group_named(topic.id(), MAIN_LEASE_GROUP);
    let (id, partitions) = (topic.id(), topic.partition_count());
    Ok(Source { topic: id, partitions, group: group.map(|group| group.id()) })
}

/// Topics that groups name for their dead letters, and those marked for letters of any group. If a gateway's
/// router chooses the topic, also each queue whose oldest record is a dead letter.
pub(crate) async fn topics(
    broker: &Broker,
    caller: &Rights,
) -> Result<DeadLetterTopics, AdminError> {
    let (mut topics, maybe) = candidates(&broker.catalog());
    let mut pace = YieldBudget::new(broker.turns(), FLOORS_AT_ONCE as u32);
    for some in maybe.chunks(FLOORS_AT_ONCE) {
        pace.step(some.len() as u32).await;
        let places: Vec<_> = some.iter().map(|it| (it.group, it.partition.index)).collect();
        let floors = broker.shards().lease_floors(&places).await?;
        for (candidate, floor) in some.iter().zip(floors) {
            // A topic that was deleted meanwhile has none.
            let Some(floor) = floor.filter(|_| !topics.contains(&*candidate.topic)) else {
                continue;
            };
            if let Ok(Some(record)) = first_record(broker, candidate.partition, floor).await
                && is_known(&death(&record.view().headers))
            {
                topics.insert(candidate.topic.to_string());
            }
        }
    }
    topics.retain(|topic| caller.would(Operation::Describe, AccessTarget::Topic(topic)));
    Ok(DeadLetterTopics { topics: topics.into_iter().collect() })
}

/// Partitions of queues per query: it delays appends meanwhile.
const FLOORS_AT_ONCE: usize = 500;

/// A partition whose oldest record may be a dead letter.
struct Candidate {
    topic: Arc<str>,
    partition: PartitionId,
    group: LeaseGroupId,
}

/// Returns topics that certainly receive dead letters, and partitions of those that may.
fn candidates(catalog: &CatalogView<'_>) -> (BTreeSet<String>, Vec<Candidate>) {
    let mut named: BTreeSet<String> = BTreeSet::new();
    let mut is_routed = false;
    for group in catalog.lease_groups() {
        let config = group.config();
        named.extend(config.dead_letter_topic.as_deref().map(str::to_owned));
        match config.dead_letter_route.as_deref().map(Route::parse) {
            Some(Some(route)) => named.extend([route.topic.to_owned()]),
            Some(None) => is_routed = true,
            None => {}
        }
    }
    named.retain(|topic| catalog.topic_named(topic).is_some());
    let taking = catalog.topics().filter(|topic| topic.config().dead_letters_of_groups);
    named.extend(taking.map(|topic| topic.name().to_string()));
    let mut maybe = Vec::new();
    for topic in catalog.topics().filter(|it| is_routed && !named.contains(&**it.name())) {
        let Some(group) = catalog.lease_group_named(topic.id(), MAIN_LEASE_GROUP) else { continue };
        maybe.extend(topic.partition_ids().map(|partition| Candidate {
            topic: Arc::clone(topic.name()),
            partition,
            group: group.id(),
        }));
    }
    (named, maybe)
}

pub(crate) async fn count(
    broker: &Broker,
    topic: &str,
    from: Option<RecordPosition>,
) -> Result<DeadLetterCounts, AdminError> {
    let source = source(broker, topic)?;
    let mut counts: BTreeMap<_, DeadLetterCount> = BTreeMap::new();
    let visit = |peeked: PeekedRecord| {
        let death = death(&peeked.record.view().headers);
        if !is_known(&death) {
            return VisitDecision::More;
        }
        let Death { topic, group, reason, time_ms, .. } = death;
        let key = (topic.clone(), group.clone(), reason.clone());
        let count = counts.entry(key).or_insert(DeadLetterCount {
            source: topic,
            group,
            reason,
            records: 0,
            first_ms: None,
            last_ms: None,
        });
        count.records += 1;
        count.first_ms = [count.first_ms, time_ms].into_iter().flatten().min();
        count.last_ms = count.last_ms.max(time_ms);
        VisitDecision::More
    };
    let next = source.visit(broker, None, from, OPERATION_PAGE_SCAN_MAX, visit).await?;
    Ok(DeadLetterCounts { counts: counts.into_values().collect(), next })
}

pub(crate) async fn show(
    broker: &Broker,
    topic: &str,
    only: &DeadLetterFilter,
    from: Option<RecordPosition>,
    records_max: u32,
) -> Result<DeadLetterPage, AdminError> {
    let source = source(broker, topic)?;
    let records_max = (records_max as usize).min(OPERATION_RECORDS_MAX);
    let (mut records, mut room) = (Vec::new(), PageBudget::default());
    let mut visit = |peeked: PeekedRecord| {
        let view = peeked.record.view();
        let death = death(&view.headers);
        if !matches(&death, only) {
            return VisitDecision::More;
        }
        if !room.takes(&peeked.record, records_max) {
            return VisitDecision::Stop;
        }
        records.push(DeadLetter { death, record: stored(peeked.partition, &view) });
        VisitDecision::More
    };
    let Some(places) = &only.records else {
        let next = source.visit(broker, None, from, OPERATION_PAGE_SCAN_MAX, visit).await?;
        return Ok(DeadLetterPage { records, next });
    };
    for place in sorted(places).into_iter().filter(|place| Some(*place) >= from) {
        let is_it = |peeked: PeekedRecord| match peeked.offset == place.offset {
            true => visit(peeked),
            false => VisitDecision::More,
        };
        let stopped = source.visit(broker, Some(place.partition), Some(place), 1, is_it).await?;
        if stopped == Some(place) {
            return Ok(DeadLetterPage { records, next: Some(place) });
        }
    }
    Ok(DeadLetterPage { records, next: None })
}

fn sorted(places: &[RecordPosition]) -> Vec<RecordPosition> {
    let mut places = places.to_vec();
    places.sort_unstable();
    places.dedup();
    places
}

/// The places of dead letters that one request moves, and where the next one continues.
struct SelectedLetters {
    places: Vec<RecordPosition>,
    /// Requested records that are gone, or no dead letters that the filter selects.
    unselected: u64,
    next: Option<RecordPosition>,
    until: Vec<u64>,
}

impl SelectedLetters {
    fn moved(self, records: u64, left: u64) -> DeadLettersMoved {
        let left = left + self.unselected;
        DeadLettersMoved { records, left, next: self.next, until: self.until }
    }
}

async fn choose(
    broker: &Broker,
    source: &Source,
    only: &DeadLetterFilter,
    span: &Span,
) -> Result<SelectedLetters, AdminError> {
    let until = match &span.until {
        Some(until) => until.clone(),
        None => {
            let ids = (0..source.partitions).map(|index| PartitionId::new(source.topic, index));
            let ids: Vec<PartitionId> = ids.collect();
            let bounds = broker.shards().bounds(&ids).await?.into_iter();
            bounds.map(|bounds| bounds.map_or(0, |bounds| bounds.stable)).collect()
        }
    };
    let records_max = (span.records_max as usize).clamp(1, MOVED_MAX);
    if let Some(places) = &only.records {
        let mut places = sorted(places);
        places.retain(|place| Some(*place) >= span.from);
        let next = places.get(records_max).copied();
        places.truncate(records_max);
        let requested = places.len();
        let mut letters = Vec::with_capacity(requested);
        for place in places {
            let visit = |peeked: PeekedRecord| {
                if peeked.offset == place.offset
                    && matches(&death(&peeked.record.view().headers), only)
                {
                    letters.push(place);
                }
                VisitDecision::More
            };
            source.visit(broker, Some(place.partition), Some(place), 1, visit).await?;
        }
        let unselected = (requested - letters.len()) as u64;
        return Ok(SelectedLetters { places: letters, unselected, next, until });
    }
    let mut places = Vec::new();
    let visit = |peeked: PeekedRecord| {
        let (partition, offset) = (peeked.partition, peeked.offset);
        let came_later = until.get(partition as usize).is_none_or(|end| offset >= *end);
        if came_later || !matches(&death(&peeked.record.view().headers), only) {
            return VisitDecision::More;
        }
        if places.len() == records_max {
            return VisitDecision::Stop;
        }
        places.push(RecordPosition { partition, offset });
        VisitDecision::More
    };
    let scan = OPERATION_PAGE_SCAN_MAX;
    let next = source.visit(broker, None, span.from, scan, visit).await?;
    Ok(SelectedLetters { places, unselected: 0, next, until })
}

pub(crate) async fn redrive(
    broker: &Broker,
    caller: &Rights,
    topic: &str,
    only: &DeadLetterFilter,
    to: Option<&str>,
    span: &Span,
) -> Result<DeadLettersMoved, AdminError> {
    let target = match to {
        None => RedriveTo::Source,
        Some(to) if to == topic => {
            return Err(AdminError::Invalid(format!(
                "the dead letters are in topic {topic} already; name another"
            )));
        }
        Some(to) => {
            let found = broker.catalog().topic_id(to);
            RedriveTo::Topic(found.ok_or_else(|| no_topic(to))?)
        }
    };
    let selected = choose(broker, &source(broker, topic)?, only, span).await?;
    if selected.places.is_empty() {
        // A topic without dead letters does not become a queue.
        return Ok(selected.moved(0, 0));
    }
    let (_, group, _) = ensure_main(broker, caller, topic).await?;
    let places = selected.places.iter().map(|place| (place.partition, place.offset)).collect();
    let moved = broker.redrive(group, RedriveSelection::Records(places), target).await;
    let moved = moved.map_err(|error| match error {
        RedriveError::UnknownGroup(_) => no_topic(topic),
        RedriveError::Append(error) => error.into(),
        RedriveError::Read(error) => error.into(),
        RedriveError::Unavailable(why) => why.into(),
    })?;
    Ok(selected.moved(moved.moved, moved.left))
}

pub(crate) async fn delete(
    broker: &Broker,
    caller: &Rights,
    topic: &str,
    only: &DeadLetterFilter,
    span: &Span,
) -> Result<DeadLettersMoved, AdminError> {
    let selected = choose(broker, &source(broker, topic)?, only, span).await?;
    if selected.places.is_empty() {
        return Ok(selected.moved(0, 0));
    }
    let (queue, group, _) = ensure_main(broker, caller, topic).await?;
    let removed = remove_from(broker, &queue, group, &selected.places).await?;
    Ok(selected.moved(removed.removed, removed.refused.len() as u64))
}
