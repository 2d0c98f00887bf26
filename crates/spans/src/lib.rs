//! Records of traced applications as OpenTelemetry spans.
//!
//! A record whose header `traceparent` (W3C Trace Context) marks its trace as sampled gets these spans: one for the
//! append, one for each delivery by lease, and one from the delivery until the record is settled or comes back. They go
//! to a collector by OTLP over HTTP ([`exporting`]), if the node's settings name one.
//!
//! Spans never delay the broker. The node reads at most [`limits::TRACE_RECORDS_LOOKED_AT_MAX`] records a second for
//! them. Records over that limit, spans that the collector does not take in time and records that are read too late are
//! left out and counted ([`Counts`]).
//!
//! * [`context`]: the header; [`collecting`]: turns events into spans; [`conventions`]: OpenTelemetry's names
//!
//! [`limits::TRACE_RECORDS_LOOKED_AT_MAX`]: crate::limits::TRACE_RECORDS_LOOKED_AT_MAX

mod budget;
pub mod collecting;
pub mod context;
mod conventions;
mod counts;
pub mod exporting;
mod limits;
mod otlp;

use crate::limits::{TRACE_EVENTS_WAITING_MAX, TRACE_SPANS_WAITING_MAX};
use broker::Broker;
use broker::delivery::{HistoryEvents, HistoryFeed};
use tasks::Task;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use world::World;

pub use counts::Counts;
pub use exporting::{ExportOptions, HeaderError};

use crate::collecting::Collector;
use crate::exporting::Exporter;

/// Spans that a node makes. Clones share them.
#[derive(Clone, Debug)]
pub struct Spans {
    options: ExportOptions,
    counts: Counts,
}

impl Spans {
    /// Returns the feed for the broker, and its events for [`Spans::follow`].
    pub fn new(options: ExportOptions) -> (Self, HistoryFeed, HistoryEvents) {
        let (feed, events) = HistoryFeed::new(TRACE_EVENTS_WAITING_MAX);
        (Self { options, counts: Counts::default() }, feed, events)
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Makes spans of events and sends them until the node stops. Remaining spans are then sent within some seconds.
    pub fn follow(
        &self,
        broker: &Broker,
        events: HistoryEvents,
        world: &World,
        stopping: watch::Receiver<bool>,
    ) -> [JoinHandle<()>; 2] {
        let (spans, made) = mpsc::channel(TRACE_SPANS_WAITING_MAX);
        let collector = Collector::new(broker.downgrade(), spans, self.counts.clone(), world);
        let instance = conventions::resource(broker.node(), &broker.cluster_id());
        let (options, counts) = (self.options.clone(), self.counts.clone());
        let exporter = Exporter::new(options, instance, counts, world, stopping.clone());
        [
            broker.vital(Task::TraceCollecting, collector.run(events, stopping)),
            broker.vital(Task::TraceExporting, exporter.run(made)),
        ]
    }
}
