//! Turns events of records into spans.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::limits::{
    TRACE_LEASES_REMEMBERED_MAX, TRACE_RECORDS_LOOKED_AT_MAX, TRACE_RECORDS_OF_EVENT_MAX,
};
use base::{HashMap, LeaseGroupId, Offset, PartitionId};
use broker::delivery::{FeedEvent, FeedEventKind, HistoryEvents, SessionId, Step, StepKind};
use broker::{Broker, WeakBroker};
use tokio::sync::{mpsc, watch};
use world::{Clock, Entropy, Instant, World};

use crate::budget::Budget;
use crate::context::Context;
use crate::conventions::{self, Operation, number, text};
use crate::counts::Counts;
use crate::otlp::{KeyValue, Link, Span, SpanKind};

/// Name prefix of internal topics. Their records belong to no trace.
const INTERNAL: &str = "_postroad.";

/// The parent context is known to be remote (two bits of `SpanFlags`) and is sampled.
const FLAGS_OF_PARENT: u32 = 0x301;
const FLAGS_SAMPLED: u32 = 1;

/// Reads the records of each event, and makes spans for those in a sampled trace.
pub(crate) struct Collector {
    broker: WeakBroker,
    spans: mpsc::Sender<Span>,
    counts: Counts,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    budget: Budget,
    leases: Leases,
}

/// A record in a group.
type GroupRecord = (LeaseGroupId, u32, Offset);

/// Active leases of traced records.
#[derive(Debug, Default)]
struct Leases {
    held: HashMap<GroupRecord, Lease>,
    /// In the order of their start; some have ended.
    order: VecDeque<GroupRecord>,
}

#[derive(Clone, Debug)]
struct Lease {
    context: Context,
    since_ms: i64,
}

impl Leases {
    /// Above the limit the oldest lease is forgotten: its end makes no span.
    fn begin(&mut self, place: GroupRecord, lease: Lease) {
        if self.order.len() >= 2 * TRACE_LEASES_REMEMBERED_MAX {
            self.order.retain(|place| self.held.contains_key(place));
        }
        while self.held.len() >= TRACE_LEASES_REMEMBERED_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.held.remove(&oldest);
        }
        if self.held.insert(place, lease).is_none() {
            self.order.push_back(place);
        }
    }

    fn end(&mut self, place: &GroupRecord) -> Option<Lease> {
        self.held.remove(place)
    }
}

/// Topic and group of an event.
struct Topic {
    name: Arc<str>,
    /// `None`: not an event of a lease group.
    group: Option<Arc<str>>,
}

impl Collector {
    pub(crate) fn new(
        broker: WeakBroker,
        spans: mpsc::Sender<Span>,
        counts: Counts,
        world: &World,
    ) -> Self {
        let budget = Budget::new(TRACE_RECORDS_LOOKED_AT_MAX, Instant::now());
        let (clock, entropy) = (Arc::clone(&world.clock), Arc::clone(&world.entropy));
        Self { broker, spans, counts, clock, entropy, budget, leases: Leases::default() }
    }

    /// Ends with the broker, or when the node stops.
    pub(crate) async fn run(
        mut self,
        mut events: HistoryEvents,
        mut stopping: watch::Receiver<bool>,
    ) {
        loop {
            let happened = tokio::select! {
                biased;
                happened = events.next() => happened,
                _ = stopping.wait_for(|stopping| *stopping) => return,
            };
            let Some((happened, broker)) = happened.zip(self.broker.upgrade()) else { return };
            self.take(&broker, happened).await;
            self.counts.set_missed(events.missed());
        }
    }

    async fn take(&mut self, broker: &Broker, FeedEvent { at_ms, what }: FeedEvent) {
        match what {
            FeedEventKind::Appended { partition, first, count } => {
                let Some(topic) = topic_of(broker, partition) else { return };
                let now_ms = self.clock.now_ms();
                for (offset, context) in self.contexts(broker, partition, first, count).await {
                    let operation = Operation::Append;
                    let span =
                        SpanData { operation, from_ms: at_ms, to_ms: now_ms, more: Vec::new() };
                    self.make(span, &topic, partition.index, offset, &context);
                }
            }
            FeedEventKind::Stepped { group, step } => self.step(broker, at_ms, group, step).await,
        }
    }

    async fn step(&mut self, broker: &Broker, at_ms: i64, group: LeaseGroupId, step: Step) {
        let Step { what, partition: index, first, count, session, attempt } = step;
        let Some((partition, topic)) = topic_of_group(broker, group, index) else { return };
        if matches!(what, StepKind::Leased | StepKind::HandedOut) {
            let contexts = self.contexts(broker, partition, first, count).await;
            for (offset, context) in contexts {
                let mut more = vec![number("postroad.attempt", attempt.into())];
                more.extend(protocol_of(broker, session));
                let operation = Operation::Deliver;
                let span = SpanData { operation, from_ms: at_ms, to_ms: at_ms, more };
                self.make(span, &topic, index, offset, &context);
                if what == StepKind::Leased {
                    self.leases.begin((group, index, offset), Lease { context, since_ms: at_ms });
                }
            }
            return;
        }
        let Some(outcome) = conventions::outcome(what) else { return };
        for offset in first..first.saturating_add(count.into()) {
            if self.leases.held.is_empty() {
                return;
            }
            let Some(Lease { context, since_ms }) = self.leases.end(&(group, index, offset)) else {
                continue;
            };
            let mut more = vec![text("postroad.outcome", outcome)];
            more.extend(protocol_of(broker, session));
            let span =
                SpanData { operation: Operation::Settle, from_ms: since_ms, to_ms: at_ms, more };
            self.make(span, &topic, index, offset, &context);
        }
    }

    /// Contexts of those records that belong to a sampled trace.
    async fn contexts(
        &mut self,
        broker: &Broker,
        partition: PartitionId,
        first: Offset,
        count: u32,
    ) -> Vec<(Offset, Context)> {
        let wanted = count.min(TRACE_RECORDS_OF_EVENT_MAX);
        let taken = self.budget.take(wanted, Instant::now());
        self.counts.pass_over((count - taken).into());
        if taken == 0 {
            return Vec::new();
        }
        match broker.stored_records(partition, first, taken).await {
            Ok(records) => {
                let context = |record: &record::SharedRecord| {
                    let view = record.view();
                    Some((view.offset, Context::of(&view)?))
                };
                records.iter().filter_map(context).collect()
            }
            // The record is deleted, or no longer readable: it makes no span.
            Err(error) => {
                tracing::debug!(%error, "records of a trace cannot be read");
                Vec::new()
            }
        }
    }

    fn make(
        &self,
        made: SpanData,
        topic: &Topic,
        partition: u32,
        offset: Offset,
        parent: &Context,
    ) {
        let SpanData { operation, from_ms, to_ms, more } = made;
        let mut attributes =
            conventions::record_attributes(operation, &topic.name, partition, offset);
        if let Some(group) = &topic.group {
            attributes.push(text("messaging.consumer.group.name", &**group));
        }
        attributes.extend(more);
        let mut span = Span {
            span_id: self.random::<8>(),
            name: format!("{} {}", operation.name(), topic.name),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: nanoseconds(from_ms),
            // A clock that was set back must not make a span end before its start.
            end_time_unix_nano: nanoseconds(to_ms.max(from_ms)),
            attributes,
            ..Span::default()
        };
        match operation {
            Operation::Append => {
                span.trace_id = parent.trace.to_vec();
                span.parent_span_id = parent.span.to_vec();
                span.trace_state = parent.state.to_string();
                span.flags = FLAGS_OF_PARENT;
            }
            // Days may lie between, and a record may be delivered often: the span starts its own trace, linked to the
            // parent.
            Operation::Deliver | Operation::Settle => {
                span.trace_id = self.random::<16>();
                span.flags = FLAGS_SAMPLED;
                span.links = vec![Link {
                    trace_id: parent.trace.to_vec(),
                    span_id: parent.span.to_vec(),
                    trace_state: parent.state.to_string(),
                    flags: FLAGS_OF_PARENT,
                }];
            }
        }
        if self.spans.try_send(span).is_err() {
            self.counts.drop_spans(1);
        }
    }

    fn random<const N: usize>(&self) -> Vec<u8> {
        let mut bytes = [0; N];
        while bytes == [0; N] {
            self.entropy.fill(&mut bytes);
        }
        bytes.to_vec()
    }
}

/// Operation and time of a span.
struct SpanData {
    operation: Operation,
    from_ms: i64,
    to_ms: i64,
    more: Vec<KeyValue>,
}

fn nanoseconds(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000)
}

fn topic_of(broker: &Broker, partition: PartitionId) -> Option<Topic> {
    let catalog = broker.catalog();
    let name = Arc::clone(catalog.topic(partition.topic)?.name());
    let topic = Topic { name, group: None };
    (!topic.name.starts_with(INTERNAL)).then_some(topic)
}

fn topic_of_group(
    broker: &Broker,
    group: LeaseGroupId,
    partition: u32,
) -> Option<(PartitionId, Topic)> {
    let (partition, name) = {
        let catalog = broker.catalog();
        let group = catalog.lease_group(group)?;
        (PartitionId::new(group.topic(), partition), Arc::clone(group.name()))
    };
    let topic = topic_of(broker, partition)?;
    Some((partition, Topic { group: Some(name), ..topic }))
}

/// `None` for sessions of other nodes, which this node does not know.
fn protocol_of(broker: &Broker, session: SessionId) -> Option<KeyValue> {
    let user = broker.session_user(session)?;
    Some(text("network.protocol.name", &*user.protocol))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(since_ms: i64) -> Lease {
        let context = Context { trace: [1; 16], span: [2; 8], state: Box::default() };
        Lease { context, since_ms }
    }

    #[test]
    fn oldest_lease_is_forgotten_at_the_limit() {
        let mut leases = Leases::default();
        let place = |offset| (LeaseGroupId(1), 0, offset);
        for offset in 0..TRACE_LEASES_REMEMBERED_MAX as u64 + 1 {
            leases.begin(place(offset), lease(offset as i64));
        }
        assert_eq!(leases.held.len(), TRACE_LEASES_REMEMBERED_MAX);
        assert!(leases.end(&place(0)).is_none());
        assert_eq!(leases.end(&place(1)).expect("held").since_ms, 1);
        assert!(leases.end(&place(1)).is_none(), "it has ended");
    }

    #[test]
    fn ended_leases_take_no_memory() {
        let mut leases = Leases::default();
        for offset in 0..10 * TRACE_LEASES_REMEMBERED_MAX as u64 {
            leases.begin((LeaseGroupId(1), 0, offset), lease(0));
            leases.end(&(LeaseGroupId(1), 0, offset));
        }
        assert!(leases.held.is_empty());
        assert!(leases.order.len() <= 2 * TRACE_LEASES_REMEMBERED_MAX);
    }

    #[test]
    fn dates_before_1970_are_1970() {
        assert_eq!(nanoseconds(-5), 0);
        assert_eq!(nanoseconds(1_700_000_000_123), 1_700_000_000_123_000_000);
    }
}
