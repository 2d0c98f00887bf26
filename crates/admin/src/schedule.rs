//! Scheduled records: lists them, and cancels them before they are due.

use base::limits::OPERATION_RECORDS_MAX;
use broker::Broker;
use broker::delivery::PeekedRecord;
use operations::document::{
    Cancel, QueueName, RecordPosition, RemovedRecords, ScheduledPage, ScheduledRecord,
};
use operations::payload::Payload;
use record::ReservedHeaders;

use crate::AdminError;
use crate::browse::{PageBudget, Source, VisitDecision, stored, unreadable};
use crate::queues::{find, not_removed, remove_from, removing};

/// Records per read: they hold their batches until they were visited.
const CHUNK_RECORDS: usize = 64;

pub(crate) async fn list(
    broker: &Broker,
    queue: &QueueName,
    mut after: Option<RecordPosition>,
    records_max: u32,
) -> Result<ScheduledPage, AdminError> {
    let (group, _) = find(broker, queue)?;
    let records_max = (records_max as usize).clamp(1, OPERATION_RECORDS_MAX);
    let (mut records, mut room) = (Vec::new(), PageBudget::default());
    loop {
        let from = after.map(|place| (place.partition, place.offset));
        let found = broker.list_delayed(group, from, CHUNK_RECORDS).await;
        let found = found.map_err(unreadable)?;
        if found.is_empty() {
            return Ok(ScheduledPage { records, next: None });
        }
        for delayed in found {
            if !room.takes(&delayed.record, records_max) {
                return Ok(ScheduledPage { records, next: after });
            }
            after = Some(RecordPosition { partition: delayed.partition, offset: delayed.offset });
            records.push(ScheduledRecord {
                due_ms: delayed.due_ms,
                id: delayed.id.map(|id| Payload::copied(&id)),
                record: stored(delayed.partition, &delayed.record.view()),
            });
        }
    }
}

pub(crate) async fn cancel(
    broker: &Broker,
    queue: &QueueName,
    what: &Cancel,
) -> Result<RemovedRecords, AdminError> {
    let (group, source) = find(broker, queue)?;
    match what {
        Cancel::Id(id) => {
            let cancelled = broker.cancel_delayed(group, id.as_bytes()).await;
            let removed = cancelled.map_err(|error| removing(queue, error))?;
            Ok(RemovedRecords { removed, refused: Vec::new() })
        }
        Cancel::Records(places) => {
            let (mut scheduled, mut refused) = (Vec::new(), Vec::new());
            for &place in places {
                if is_scheduled(broker, &source, place).await? {
                    scheduled.push(place);
                } else {
                    let RecordPosition { partition, offset } = place;
                    let reason = format!(
                        "record {offset} of partition {partition} is not scheduled: it is due, settled, or was never there"
                    );
                    refused.push(not_removed(place, reason));
                }
            }
            let mut removed = remove_from(broker, queue, group, &scheduled).await?;
            removed.refused.extend(refused);
            Ok(removed)
        }
    }
}

async fn is_scheduled(
    broker: &Broker,
    source: &Source,
    place: RecordPosition,
) -> Result<bool, AdminError> {
    let now_ms = broker.clock().now_ms();
    let mut found = false;
    let visit = |peeked: PeekedRecord| {
        let due = ReservedHeaders::read(&peeked.record.view().headers).deliver_at_ms;
        found = peeked.offset == place.offset && due.is_some_and(|due| due > now_ms);
        VisitDecision::Stop
    };
    source.visit(broker, Some(place.partition), Some(place), 1, visit).await?;
    Ok(found)
}
