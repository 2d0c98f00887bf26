//! Leases, checks and settles records.

use std::sync::atomic::Ordering;
use std::time::Duration;

use client::CallError;
use client::blocking::ShareMember;
use client::share::{LeasedRecord, Settlement};
use uuid::Uuid;

use super::value::parse;
use super::{ConsumerResult, GROUP, QUEUE, Stage};
use crate::measure::PATIENCE;

const FETCH_RECORDS: usize = 10;
const FETCH_WAIT: Duration = Duration::from_millis(250);

pub(super) fn consume(stage: &Stage) {
    if let Err(failure) = consume_until_stopped(stage) {
        stage.seen().failure.get_or_insert(failure);
    }
}

fn consume_until_stopped(stage: &Stage) -> Result<(), String> {
    let told = |error: CallError| format!("a consumer: {error}");
    let queues = [QUEUE.to_owned()];
    let id = Uuid::new_v4();
    let member = ShareMember::open(stage.address, PATIENCE, GROUP, &queues, id);
    let mut member = member.map_err(told)?;
    let mut settles = Vec::new();
    while !stage.stops.load(Ordering::Relaxed) {
        let mut leased = member.fetch(FETCH_RECORDS, FETCH_WAIT, &settles).map_err(told)?;
        settles.clear();
        leased.sort_by_key(|record| (record.partition, record.offset));
        let now = stage.origin.elapsed();
        let mut seen = stage.seen();
        for record in &leased {
            let settlement = check_record(stage, &mut seen, record, now)?;
            settles.push(record.settle(settlement));
        }
        // All records of a fetch count as held until all have been checked.
        for (record, settle) in leased.iter().zip(&settles) {
            let Some((place, _)) = parse(&record.value) else { continue };
            match settle.settlement {
                Settlement::Accept => seen.lanes.accept(place),
                _ => seen.lanes.release(place),
            }
        }
    }
    if !settles.is_empty() {
        member.acknowledge(&settles).map_err(told)?;
    }
    Ok(())
}

fn check_record(
    stage: &Stage,
    seen: &mut ConsumerResult,
    record: &LeasedRecord,
    now: Duration,
) -> Result<Settlement, String> {
    let LeasedRecord { partition, offset, attempt, .. } = *record;
    let place = || format!("partition {partition}, offset {offset}, delivery {attempt}");
    let named = record.key.as_deref().and_then(|key| std::str::from_utf8(key).ok()?.parse().ok());
    let parsed = parse(&record.value).filter(|(at, _)| named == Some(at.key));
    let (at, sent) = parsed.ok_or_else(|| format!("{}: not a record of ours", place()))?;
    let delivered = seen.lanes.deliver(at);
    delivered.map_err(|violation| format!("VIOLATION: {violation} ({})", place()))?;
    if stage.poison == Some(at.key) {
        let heals = stage.heals.load(Ordering::Relaxed);
        return Ok(if heals { Settlement::Accept } else { Settlement::Release });
    }
    if let Some(sent) = sent
        && attempt == 1
    {
        seen.latencies.push(now.saturating_sub(sent));
    }
    Ok(Settlement::Accept)
}
