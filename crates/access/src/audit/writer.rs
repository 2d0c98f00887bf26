//! Writes events as records of a topic with one partition, which is created at the first event.

use std::time::Duration;

use super::{AuditQueueItem, Event, TARGET, TOPIC};
use crate::limits::{AUDIT_EVENTS_AT_ONCE_MAX, AUDIT_KEPT_BYTES, AUDIT_KEPT_MS};
use broker::{AppendBatch, Broker};
use record::{BatchBuilder, BatchOptions};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Interval between retries of a failed write.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Writes until the audit is dropped.
pub(super) async fn run(broker: Broker, mut queued: mpsc::Receiver<AuditQueueItem>) {
    let mut some = Vec::new();
    while queued.recv_many(&mut some, AUDIT_EVENTS_AT_ONCE_MAX).await > 0 {
        let (mut events, mut flushed) = (Vec::new(), Vec::new());
        for one in some.drain(..) {
            match one {
                AuditQueueItem::Event(event) => events.push(event),
                AuditQueueItem::Flush(told) => flushed.push(told),
            }
        }
        events.iter().for_each(|event| log(event));
        // Retries until written; later events wait in the buffer.
        while let Err(error) = write(&broker, &events).await {
            tracing::warn!(target: TARGET, error, "events cannot be written, trying again");
            sleep(AGAIN_AFTER).await;
        }
        for told in flushed {
            // The caller may have stopped waiting.
            let _ = told.send(());
        }
    }
}

fn log(event: &Event) {
    let text = serde_json::to_string(event).unwrap_or_default();
    tracing::info!(target: TARGET, "{text}");
}

async fn write(broker: &Broker, events: &[Box<Event>]) -> Result<(), String> {
    if events.is_empty() {
        return Ok(());
    }
    let topic = broker.internal_topic_partition(TOPIC, AUDIT_KEPT_MS, AUDIT_KEPT_BYTES).await;
    let topic = topic.map_err(|error| error.to_string())?;
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for event in events {
        let value = serde_json::to_vec(event).map_err(|error| error.to_string())?;
        let key = Some(event.principal.as_bytes());
        let pushed = builder.push(event.time_ms, key, Some(&value), &[]);
        pushed.map_err(|error| error.to_string())?;
    }
    let batch = AppendBatch::made(topic, builder, false);
    for appended in broker.append_at_leaders(vec![batch]).await {
        appended.map_err(|error| error.to_string())?;
    }
    Ok(())
}
