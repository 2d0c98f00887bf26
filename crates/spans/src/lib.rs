//! What happens to records of traced applications, as spans of OpenTelemetry.
//!
//! A record whose header `traceparent` (W3C Trace Context) says that its trace is sampled gets a span when it is appended, one
//! each time that it is delivered by lease, and one that lasts from there until it is settled or comes back. They go to a
//! collector by OTLP over HTTP ([`exporting`]), if the node's settings name one.
//!
//! Spans are for finding out and never in the way: nothing of a broker waits for them. The node looks at
//! [`limits::TRACE_RECORDS_LOOKED_AT_MAX`] records a second at most; what is more, what the collector does not take in time and
//! what is read too late is left out and counted ([`Counts`]).
//!
//! * [`context`]: the header; [`collecting`]: from what happens to spans; [`conventions`]: how OpenTelemetry names things
//!
//! [`limits::TRACE_RECORDS_LOOKED_AT_MAX`]: base::limits::TRACE_RECORDS_LOOKED_AT_MAX

mod budget;
pub mod collecting;
pub mod context;
mod conventions;
mod counts;
pub mod exporting;

use base::limits::{TRACE_EVENTS_WAITING_MAX, TRACE_SPANS_WAITING_MAX};
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

/// Spans that a node makes. Clones are the same.
#[derive(Clone, Debug)]
pub struct Spans {
    options: ExportOptions,
    counts: Counts,
}

impl Spans {
    /// The feed is given to the broker, and what comes by it to [`Spans::follow`].
    pub fn new(options: ExportOptions) -> (Self, HistoryFeed, HistoryEvents) {
        let (feed, events) = HistoryFeed::new(TRACE_EVENTS_WAITING_MAX);
        (Self { options, counts: Counts::default() }, feed, events)
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Makes spans of what happens and sends them, until the node stops; what is left then is sent within some seconds.
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
