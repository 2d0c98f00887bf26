//! Leases and settles records, across restarts of the server.

use std::sync::atomic::Ordering;
use std::thread;

use client::CallError;
use client::blocking::ShareMember;
use client::share::{Settle, Settlement};
use uuid::Uuid;

use super::stage::{ASKED, CAME, SETTLED, Stage, WAITS};
use super::{FETCH_WAIT, GROUP, LOOK, QUEUE};
use crate::measure::PATIENCE;
use crate::records::now_ms;

const FETCH_RECORDS: usize = 500;

/// Consumes, and reconnects after each restart of the server.
pub(super) fn consume(stage: &Stage) {
    while !stage.stops.load(Ordering::Relaxed) {
        match consume_until_killed(stage) {
            Ok(()) => return,
            Err(ConsumeError::ServerGone) => thread::sleep(LOOK),
            Err(ConsumeError::Failed(failure)) => {
                stage.seen().failure.get_or_insert(failure);
                return;
            }
        }
    }
}

enum ConsumeError {
    /// The connection broke: the server was killed, or is not up yet.
    ServerGone,
    Failed(String),
}

impl From<CallError> for ConsumeError {
    fn from(error: CallError) -> ConsumeError {
        let error = std::io::Error::from(error);
        use std::io::ErrorKind::{InvalidData, Other, TimedOut, WouldBlock};
        match error.kind() {
            InvalidData | Other | TimedOut | WouldBlock => ConsumeError::Failed(error.to_string()),
            _ => ConsumeError::ServerGone,
        }
    }
}

fn consume_until_killed(stage: &Stage) -> Result<(), ConsumeError> {
    let queues = [QUEUE.to_owned()];
    let id = Uuid::new_v4();
    let mut member = ShareMember::open(stage.address, PATIENCE, GROUP, &queues, id)?;
    let (mut settles, mut numbers): (Vec<Settle>, Vec<u64>) = (Vec::new(), Vec::new());
    loop {
        let stops = stage.stops.load(Ordering::Relaxed);
        let mut leased = match stops {
            // No records are leased that would not be settled.
            true if settles.is_empty() => return Ok(()),
            true => member.acknowledge(&settles).map(|()| Vec::new())?,
            false => member.fetch(FETCH_RECORDS, FETCH_WAIT, &settles)?,
        };
        let now_ms = now_ms();
        for number in numbers.drain(..) {
            stage.records[number as usize].store(SETTLED, Ordering::Relaxed);
        }
        settles.clear();
        leased.sort_by_key(|record| (record.partition, record.offset));
        let mut lateness = Vec::with_capacity(leased.len());
        for record in &leased {
            let at = || {
                let (partition, offset, attempt) =
                    (record.partition, record.offset, record.attempt);
                format!("partition {partition}, offset {offset}, delivery {attempt}")
            };
            let number = record.value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let number = number.filter(|&number| number < stage.records.len() as u64);
            let Some(number) = number else {
                return Err(ConsumeError::Failed(format!("{}: a record that nobody sent", at())));
            };
            let due_ms = stage.schedule.due_ms(number);
            if now_ms < due_ms {
                let early = due_ms - now_ms;
                return Err(ConsumeError::Failed(format!(
                    "VIOLATION: record {number} came {early} ms early ({})",
                    at()
                )));
            }
            match stage.records[number as usize].swap(CAME, Ordering::Relaxed) {
                SETTLED => {
                    return Err(ConsumeError::Failed(format!(
                        "VIOLATION: record {number} came again after its settle was confirmed ({})",
                        at()
                    )));
                }
                WAITS => {
                    stage.came.fetch_add(1, Ordering::Relaxed);
                    lateness.push((due_ms, now_ms));
                }
                _ => drop(stage.came_again.fetch_add(1, Ordering::Relaxed)),
            }
            numbers.push(number);
            settles.push(record.settle(Settlement::Accept));
        }
        record_lateness(stage, &lateness);
        // These settles are sent with the next request.
        for &number in &numbers {
            stage.records[number as usize].store(ASKED, Ordering::Relaxed);
        }
    }
}

fn record_lateness(stage: &Stage, lateness: &[(i64, i64)]) {
    let ready_ms = stage.ready_ms.load(Ordering::Relaxed);
    let mut seen = stage.seen();
    for &(due_ms, now_ms) in lateness {
        match due_ms < ready_ms {
            // The server has just become ready if its ready time is not yet known.
            true => seen.late_after_restart.take((now_ms - ready_ms).max(0)),
            false => seen.late.take(now_ms - due_ms),
        }
    }
}
