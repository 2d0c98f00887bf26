//! Scheduled records: lists them, and cancels them before they are due.

use base::limits::OPERATION_RECORDS_MAX;
use record::ReservedHeaders;

use crate::errors::Fault;
use crate::gateway::Gateway;

use super::browse::{PageBudget, Source, VisitDecision, stored, unreadable};
use super::queues::{find, not_removed, remove_from, removing};
use ::operations::document::{
    Cancel, QueueName, RecordPosition, RemovedRecords, ScheduledPage, ScheduledRecord,
};
use ::operations::payload::Payload;

/// Records per read: they hold their batches until they were visited.
const CHUNK_RECORDS: usize = 64;

pub(super) async fn list(
    gateway: &Gateway,
    queue: &QueueName,
    mut after: Option<RecordPosition>,
    records_max: u32,
) -> Result<ScheduledPage, Fault> {
    let (group, _) = find(gateway, queue)?;
    let records_max = (records_max as usize).clamp(1, OPERATION_RECORDS_MAX);
    let (mut records, mut room) = (Vec::new(), PageBudget::default());
    loop {
        let from = after.map(|place| (place.partition, place.offset));
        let found = gateway.broker.list_delayed(group, from, CHUNK_RECORDS).await;
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

pub(super) async fn cancel(
    gateway: &Gateway,
    queue: &QueueName,
    what: &Cancel,
) -> Result<RemovedRecords, Fault> {
    let (group, source) = find(gateway, queue)?;
    match what {
        Cancel::Id(id) => {
            let cancelled = gateway.broker.cancel_delayed(group, id.as_bytes()).await;
            let removed = cancelled.map_err(|error| removing(queue, error))?;
            Ok(RemovedRecords { removed, refused: Vec::new() })
        }
        Cancel::Records(places) => {
            let (mut scheduled, mut refused) = (Vec::new(), Vec::new());
            for &place in places {
                if is_scheduled(gateway, &source, place).await? {
                    scheduled.push(place);
                } else {
                    let RecordPosition { partition, offset } = place;
                    let reason = format!(
                        "record {offset} of partition {partition} is not scheduled: it is due, settled, or was never there"
                    );
                    refused.push(not_removed(place, reason));
                }
            }
            let mut removed = remove_from(gateway, queue, group, &scheduled).await?;
            removed.refused.extend(refused);
            Ok(removed)
        }
    }
}

async fn is_scheduled(
    gateway: &Gateway,
    source: &Source,
    place: RecordPosition,
) -> Result<bool, Fault> {
    let now_ms = gateway.broker.clock().now_ms();
    let mut found = false;
    let visit = |peeked: broker::delivery::PeekedRecord| {
        let due = ReservedHeaders::read(&peeked.record.view().headers).deliver_at_ms;
        found = peeked.offset == place.offset && due.is_some_and(|due| due > now_ms);
        VisitDecision::Stop
    };
    source.visit(&gateway.broker, Some(place.partition), Some(place), 1, visit).await?;
    Ok(found)
}
