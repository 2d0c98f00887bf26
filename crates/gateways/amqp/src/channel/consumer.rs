//! A consumer of a channel: its queue, and the source of its deliveries.

use std::sync::Arc;
use std::time::Duration;

use broker::delivery::ConsumerId;
use topology::Queue;

use crate::channel::stream::StreamConsumer;
use crate::codec::table::FieldTable;

#[derive(Debug)]
pub(crate) struct Consumer {
    /// `None` for direct replies.
    pub(crate) queue: Option<Arc<Queue>>,
    pub(crate) no_ack: bool,
    pub(crate) source: Source,
    /// A cancellation is in progress and will report to the queue.
    pub(crate) is_leaving: bool,
    /// Deliveries go to this consumer. With a single active consumer this holds for one consumer of the queue only.
    pub(crate) is_active: bool,
    pub(crate) wanted: ConsumeParameters,
    /// Time limit of an acknowledgement (`x-consumer-timeout`).
    pub(crate) timeout: Option<Duration>,
}

/// Arguments of `basic.consume`, kept for the management API.
#[derive(Debug, Default)]
pub(crate) struct ConsumeParameters {
    pub(crate) exclusive: bool,
    pub(crate) prefetch: u16,
    pub(crate) arguments: FieldTable,
}

impl Consumer {
    pub(crate) fn new(
        queue: Option<Arc<Queue>>,
        no_ack: bool,
        source: Source,
        wanted: ConsumeParameters,
    ) -> Self {
        let timeout = queue.as_ref().and_then(|queue| answer_within(queue));
        let is_active = queue.as_ref().is_none_or(|it| !it.settings().single_active_consumer);
        Self { queue, no_ack, source, is_leaving: false, is_active, wanted, timeout }
    }
}

/// Source of a consumer's deliveries.
#[derive(Debug)]
pub(crate) enum Source {
    Leases(ConsumerId),
    Stream(#[expect(dead_code, reason = "it reads for as long as it is there")] StreamConsumer),
    Replies,
}

/// Time within which deliveries of this queue must be acknowledged.
pub(crate) fn answer_within(queue: &Queue) -> Option<Duration> {
    let ms = queue.settings().consumer_timeout_ms?;
    Some(Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
}
