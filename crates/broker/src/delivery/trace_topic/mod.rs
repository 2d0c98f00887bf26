//! Traces: steps of records of topics with `trace`, as records of a topic of the broker's own.
//!
//! * [`trace_record`]: a step as a record; [`writer`]: writes them; [`reader`]: finds those of one record

mod reader;
mod trace_record;
mod writer;

use std::time::Duration;

use shard::delivery::trace_queue::TraceQueueItem;
use tasks::Task;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::broker::Broker;

pub use reader::TracedSteps;

impl Broker {
    /// Writes the queued steps until the broker is gone.
    pub(crate) fn write_traces(&self, queued: mpsc::Receiver<TraceQueueItem>) -> JoinHandle<()> {
        self.vital(Task::TraceWriting, writer::run(self.downgrade(), queued))
    }

    /// Number of records written for steps of topics with `trace`, and of steps dropped because the queue was
    /// full or the write failed.
    pub fn traces_counted(&self) -> (u64, u64) {
        self.trace_feed().counted()
    }

    /// Writes all steps queued so far; false after a timeout.
    pub async fn flush_traces(&self, within: Duration) -> bool {
        let is_written = self.trace_feed().flush(within).await;
        if !is_written {
            tracing::warn!("what happened to records last is not written");
        }
        is_written
    }
}
