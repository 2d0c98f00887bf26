//! Records that are sent, leased and settled one by one, with a short backlog.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::blocking::{Connection, ShareMember};
use client::requests::ProduceOutcome;
use client::share::Settlement;
use uuid::Uuid;

use super::variants::{GROUP, PARTITIONS, RunningServer, TOPIC};
use super::{Cost, WARM_UP};
use crate::failure::{Context, Failure, Outcome};
use crate::records::batch;

const RECORD_BYTES: usize = 1024;
const RECORDS_A_REQUEST: usize = 16;
/// Records in the queue at most. A backlog keeps the consumers the bottleneck.
const BACKLOG_MAX: u64 = 20_000;
const CONSUMERS: usize = 2;
const LEASED_AT_ONCE: usize = 500;
const FETCH_WAIT: Duration = Duration::from_millis(100);
const LOOKS_EVERY: Duration = Duration::from_millis(1);

pub(super) fn run(running: &RunningServer, time: Duration) -> Outcome<Cost> {
    let (ends, sent, settled) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut producer = running.connect()?;
    let members: Vec<ShareMember> = (0..CONSUMERS)
        .map(|_| {
            let queues = [TOPIC.to_owned()];
            let member = ShareMember::over(running.connect()?, GROUP, &queues, Uuid::new_v4());
            member.context(|| "cannot consume")
        })
        .collect::<Outcome<_>>()?;
    thread::scope(|scope| {
        let consuming: Vec<_> = members
            .into_iter()
            .map(|member| scope.spawn(|| consume(member, &settled, &ends)))
            .collect();
        let sending = scope.spawn(|| produce(&mut producer, &sent, &settled, &ends));
        let measured = measure(running, &settled, time);
        ends.store(true, Ordering::Relaxed);
        for thread in consuming.into_iter().chain([sending]) {
            thread.join().map_err(|_| Failure::new("a thread of the load panicked"))??;
        }
        measured
    })
}

fn measure(running: &RunningServer, settled: &AtomicU64, time: Duration) -> Outcome<Cost> {
    thread::sleep(WARM_UP);
    let before = settled.load(Ordering::Relaxed);
    let (used, begun) = (running.cpu_seconds()?, Instant::now());
    thread::sleep(time);
    let records = (settled.load(Ordering::Relaxed) - before) as f64;
    let elapsed = begun.elapsed().as_secs_f64();
    let used = running.cpu_seconds()? - used;
    if records == 0.0 {
        return Err(Failure::new("nothing was settled"));
    }
    Ok(Cost { rate: records / elapsed, processor: used / records * 1e6 })
}

fn produce(
    connection: &mut Connection,
    sent: &AtomicU64,
    settled: &AtomicU64,
    ends: &AtomicBool,
) -> Outcome {
    let value = Bytes::from(vec![b'x'; RECORD_BYTES]);
    let batch = batch(std::iter::repeat_n(value, RECORDS_A_REQUEST));
    while !ends.load(Ordering::Relaxed) {
        let waiting = sent.load(Ordering::Relaxed).saturating_sub(settled.load(Ordering::Relaxed));
        if waiting > BACKLOG_MAX {
            thread::sleep(LOOKS_EVERY);
            continue;
        }
        let batches = (0..PARTITIONS).map(|partition| (partition, batch.clone())).collect();
        let produced = connection.produce_each(TOPIC, batches);
        let produced = produced.context(|| "postroad does not take the load")?;
        let answers = connection.answers(produced);
        for answer in answers.context(|| "postroad does not answer the load")? {
            match answer {
                ProduceOutcome::Acknowledged { .. } => {
                    sent.fetch_add(RECORDS_A_REQUEST as u64, Ordering::Relaxed);
                }
                ProduceOutcome::Refused { code } => {
                    return Err(Failure::new(format!("a batch was refused with error {code}")));
                }
            }
        }
    }
    Ok(())
}

/// Leases and settles; each fetch settles the records of the previous one.
fn consume(mut member: ShareMember, settled: &AtomicU64, ends: &AtomicBool) -> Outcome {
    let mut settles = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let leased = member.fetch(LEASED_AT_ONCE, FETCH_WAIT, &settles);
        let leased = leased.context(|| "cannot lease")?;
        settled.fetch_add(settles.len() as u64, Ordering::Relaxed);
        settles.clear();
        settles.extend(leased.iter().map(|record| record.settle(Settlement::Accept)));
    }
    Ok(())
}
