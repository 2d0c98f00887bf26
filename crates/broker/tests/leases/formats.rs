//! A data directory of an earlier version is opened, with all of its data.
//!
//! `cargo test -p broker --test leases write_a_directory -- --ignored` writes the directory of this version to
//! `tests/fixtures/new.data`: run it before a format changes, and keep its output under the version's name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{PartitionId, headers};
use broker::{Broker, BrokerOptions, Settlement};
use world::{Disk, ManualClock, SimulatedDisk, World};

use crate::harness::*;

const ROWS: &str = "/data/shard-0";
const HOUR_MS: i64 = 3_600_000;

fn v1() -> SimulatedDisk {
    SimulatedDisk::unpack(include_bytes!("../fixtures/v1.data"), Path::new("/data"))
}

async fn open_small(disk: &SimulatedDisk) -> Node {
    try_open(disk).await.expect("opens")
}

async fn try_open(disk: &SimulatedDisk) -> Result<Node, broker::OpenError> {
    let clock = Arc::new(ManualClock::new(START_MS));
    let options = BrokerOptions {
        journal: journal::Options {
            segment_bytes: 64 << 10,
            disk_reserve_bytes: 0,
            ..journal::Options::default()
        },
        housekeeping_interval: Duration::from_millis(10),
        ..BrokerOptions::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let world = World::on(disk).with_clock(Arc::clone(&clock) as _);
    let broker = Broker::open(world, Path::new("/data"), options).await?;
    Ok(Node { broker, clock })
}

/// A value that is long in a segment but not in the repository, which omits zeros.
fn long(name: &str) -> String {
    format!("{name}{}", "\0".repeat(2_000))
}

fn name(value: &str) -> &str {
    value.trim_end_matches('\0')
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_directory_of_version_1_opens_with_its_records_and_settles() {
    let disk = v1();
    let rewritten = |name: &String| name.ends_with(".g2.seg");
    assert!(disk.list(Path::new(ROWS)).unwrap().iter().any(rewritten));
    for life in 0..2 {
        let node = open_small(&disk).await;
        let topic = |name: &str| node.broker.catalog().topic_id(name).expect("a topic");
        let (log, jobs, graves) = (topic("log"), topic("jobs"), topic("graves"));
        let group =
            |topic| node.broker.catalog().lease_group_named(topic, "main").expect("a group").id();
        let (of_jobs, of_graves) = (group(jobs), group(graves));

        let bounds = node.broker.bounds(PartitionId::new(log, 0)).expect("the log");
        assert_eq!((bounds.log_start, bounds.end), (120, 150));
        let (name_of, config) = (format!("life {life}"), Default::default());
        let made = node.broker.create_lease_group(log, name_of, vec![120], config).await;
        let kept = made.expect("it is new");
        let session = node.broker.lease_session();
        let read = take_all(&session, kept).await;
        let expected: Vec<String> = (120..150).map(|number| format!("log {number}")).collect();
        assert_eq!(texts(&read).iter().map(|it| name(it)).collect::<Vec<_>>(), expected);

        // One of ten jobs was settled, one rejected, one is delayed, one was delivered once before.
        let waiting = take_all(&session, of_jobs).await;
        let values = texts(&waiting);
        let values: Vec<&str> = values.iter().map(|it| name(it)).collect();
        assert_eq!(values, ["job 2", "job 3", "job 4", "job 5", "job 6", "job 7", "job 8"]);
        // Each check here is another attempt.
        let attempt = waiting[0].attempt;
        assert!(attempt == 2 || (life > 0 && attempt > 2), "{attempt}");
        let dead = take_all(&session, of_graves).await;
        assert_eq!(name(&text(&dead[0])), "job 1");
        assert_eq!(reason(&dead[0]), headers::DEATH_REASON_REJECTED);
        // Records that had expired on arrival are dead-lettered sooner or later.
        let expired = |it| reason(it) == headers::DEATH_REASON_EXPIRED && text(it) == "fill";
        assert!(dead[1..].iter().all(expired), "{:?}", texts(&dead));
        drop(session);
        node.clock.advance_ms(2 * HOUR_MS);
        let session = node.broker.lease_session();
        let mut due = Vec::new();
        wait_for(
            async || {
                due.extend(take_all(&session, of_jobs).await);
                texts(&due).iter().any(|it| name(it) == "job 9")
            },
            || "the delayed record".to_owned(),
        )
        .await;
        drop(session);
        node.broker.shutdown().await;
    }
}

/// The power fails, or the process is killed, after each change of the disk by the first start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_start_that_separates_catalog_and_rows_survives_a_crash_anywhere() {
    let (mut at, mut cut) = (0, 0);
    loop {
        let disk = v1();
        disk.cut_power_after(at);
        let first = try_open(&disk).await;
        let ended = !disk.is_dead();
        let kept = if at % 2 == 0 { disk.killed() } else { disk.power_loss(at) };
        drop(first);
        let node = try_open(&kept).await.unwrap_or_else(|error| panic!("cut at {at}: {error}"));
        {
            let catalog = node.broker.catalog();
            let names: Vec<String> = catalog.topics().map(|it| it.name().to_string()).collect();
            assert_eq!(names, ["graves", "jobs", "log"], "cut at {at}");
            assert_eq!(catalog.lease_groups().count(), 2, "cut at {at}");
        }
        let log = node.broker.catalog().topic_id("log").expect("a topic");
        let bounds = node.broker.bounds(PartitionId::new(log, 0)).expect("the log");
        assert_eq!((bounds.log_start, bounds.end), (120, 150), "cut at {at}");
        let jobs = node.broker.catalog().topic_id("jobs").expect("a topic");
        let group = node.broker.catalog().lease_group_named(jobs, "main").expect("a group").id();
        let session = node.broker.lease_session();
        let waiting = take_all(&session, group).await;
        assert_eq!(waiting.len(), 7, "cut at {at}");
        drop(session);
        node.broker.shutdown().await;
        if ended {
            break;
        }
        cut += 1;
        at += 1;
    }
    assert!(cut > 30, "a start changes the disk more often than {cut} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes what a later version must read"]
async fn write_a_directory() {
    let disk = SimulatedDisk::new();
    let node = open_small(&disk).await;
    let log = node.topic("log", 1, &[]).await;
    let graves = node.topic("graves", 1, &[]).await;
    node.group(graves, &[]).await;
    let jobs = node.topic("jobs", 1, &[]).await;
    let group = node.group(jobs, &[("dead.letter.topic", "graves")]).await;
    for number in 0..150 {
        node.append(log, &[new(long(&format!("log {number}")))]).await;
        if number % 16 == 0 {
            let job = number / 16;
            let mut record = new(long(&format!("job {job}")));
            if job == 9 {
                record = record.header(headers::DELIVER_AT, START_MS + HOUR_MS);
            }
            node.append(jobs, &[record]).await;
        }
    }
    let session = node.broker.lease_session();
    let taken = take(&session, group, 3).await;
    settle(&session, &taken[..1], Settlement::Accept).await;
    settle(&session, &taken[1..2], Settlement::Reject).await;
    let later = Settlement::Release { delay_ms: Some(0), count: true };
    settle(&session, &taken[2..], later).await;
    drop(session);
    let starts = vec![(PartitionId::new(log, 0), 120)];
    node.broker.shards().advance_starts(starts).await.expect("deleted");
    let rewritten = async || {
        let names = disk.list(Path::new(ROWS)).unwrap();
        // Snapshots are triggered by the bytes of the log.
        node.append(jobs, &[new("fill").header(headers::EXPIRES_AT, START_MS)]).await;
        names.iter().any(|name| name.ends_with(".g2.seg"))
    };
    wait_for(rewritten, || "a rewritten segment".to_owned()).await;
    node.broker.shutdown().await;
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/new.data");
    std::fs::write(to, disk.pack()).unwrap();
}
