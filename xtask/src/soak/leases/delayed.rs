//! Delayed records in addition to the load, none of them due while it runs, with a consumer that waits for them.
//! Each leader therefore has all of them in its schedule.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::blocking::ShareMember;
use client::records::NewRecord;
use uuid::Uuid;

use super::workers::PATIENCE;
use crate::failure::{Context, Failure, Outcome};
use crate::measure::load::Load;
use crate::random::Random;
use crate::records::now_ms;
use crate::server::Postroad;

const QUEUE: &str = "elections-delayed";
const GROUP: &str = "main";
const PARTITIONS: u32 = 8;
const BATCH: usize = 100;
const DELIVER_AT: &str = "postroad.deliver-at";
/// Far beyond the end of every run.
const DUE_AFTER: Duration = Duration::from_secs(24 * 3600);
const SPREAD: Duration = Duration::from_secs(3600);
const FETCH_WAIT: Duration = Duration::from_millis(200);
/// Minimum rate at which a node reads the records, after their first consumer has come.
const READ_PER_SECOND_MIN: u64 = 20_000;

/// Stores delayed records.
pub(super) fn store(
    postroad: &Postroad,
    kafka: SocketAddr,
    records: u64,
    random: &mut Random,
) -> Outcome {
    let partitions = PARTITIONS.to_string();
    postroad.run_command(&[
        "queue",
        "declare",
        QUEUE,
        "--group",
        GROUP,
        "--lease",
        "1m",
        "--partitions",
        &partitions,
    ])?;
    let begun = Instant::now();
    let mut load = Load::new(kafka, QUEUE, PARTITIONS)?;
    let first_ms = now_ms() + DUE_AFTER.as_millis() as i64;
    load.fill(records, BATCH, || {
        let due_ms = first_ms + random.between(0, SPREAD.as_millis() as u64) as i64;
        NewRecord {
            key: None,
            value: Bytes::from_static(&[b'.'; 64]),
            headers: vec![(DELIVER_AT, due_ms.to_string())],
        }
    })?;
    eprintln!("  {records} delayed records stored in {:.0?}", begun.elapsed());
    Ok(())
}

/// Waits for the delayed records, in vain, until `stop` is set.
pub(super) fn consume(kafka: SocketAddr, stop: &AtomicBool) -> Outcome {
    let queues = [QUEUE.to_owned()];
    let opened = ShareMember::open(kafka, PATIENCE, GROUP, &queues, Uuid::new_v4());
    let mut member = opened.context(|| "cannot wait for delayed records")?;
    while !stop.load(Ordering::Relaxed) {
        let leased = member.fetch(1, FETCH_WAIT, &[]).context(|| "waiting for delayed records")?;
        if !leased.is_empty() {
            return Err(Failure::new("a delayed record came hours before it is due"));
        }
    }
    Ok(())
}

/// Waits until the server counts all of them as delayed. It does so only once their consumer has made it read them.
pub(super) fn wait_until_read(postroad: &Postroad, records: u64) -> Outcome {
    let begun = Instant::now();
    let most = Duration::from_secs(30 + records / READ_PER_SECOND_MIN);
    loop {
        let delayed = count(postroad)?;
        if delayed == records {
            eprintln!("  all delayed records read in {:.0?}", begun.elapsed());
            return Ok(());
        }
        if begun.elapsed() > most {
            return Err(Failure::new(format!(
                "of {records} delayed records the server counts {delayed}, after {most:?}"
            )));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The server's count of delayed records.
fn count(postroad: &Postroad) -> Outcome<u64> {
    let list = postroad.run_json_command(&["queue", "list", QUEUE])?;
    let delayed = list.get(0).and_then(|queue| queue.get("delayed")?.as_u64());
    delayed.ok_or_else(|| Failure::new(format!("queue list has no count: {list}")))
}
