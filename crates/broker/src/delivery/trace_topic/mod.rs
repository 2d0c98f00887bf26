//! What happened to records of topics that ask for it, as records of a topic of the broker's own.
//!
//! * [`written`]: a step as a record; [`writer`]: writes them; [`reader`]: finds those of one record

mod reader;
mod writer;
mod written;

use std::time::Duration;

use tasks::Task;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::broker::Broker;

use super::traced::Queued;

pub use reader::TracedSteps;

impl Broker {
    /// Writes what drivers tell, until the broker is gone.
    pub(crate) fn write_traces(&self, queued: mpsc::Receiver<Queued>) -> JoinHandle<()> {
        self.vital(Task::TraceWriting, writer::run(self.downgrade(), queued))
    }

    /// Records that were written of what happened to records of topics with `trace`, and steps of these that were not: there was no
    /// room for them, or they could not be.
    pub fn traces_counted(&self) -> (u64, u64) {
        self.trace_feed().counted()
    }

    /// Writes what happened to such records so far; false: not within that time.
    pub async fn flush_traces(&self, within: Duration) -> bool {
        let is_written = self.trace_feed().flush(within).await;
        if !is_written {
            tracing::warn!("what happened to records last is not written");
        }
        is_written
    }
}
