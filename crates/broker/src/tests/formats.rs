//! A data directory with several shards and unacknowledged messages, written by a former version: everything in it is
//! found, and the messages arrive.
//!
//! `cargo test -p broker --lib write_a_directory_with_channels -- --ignored` writes the directory of this version to
//! `tests/fixtures/new-channels.data`: run it before a format changes, and keep the file under the version's name.

use machine::{Channels, Role, SentMessage};
use shard::cpu::CpuPool;
use shard::delivery::trace_queue::TraceFeed;
use shard::timeline::Timeline;
use shard::watch::Watchers;
use shard_peers::Peers;
use tasks::Failure;
use world::Disk;

use super::*;
use crate::opening::local_shard::{OpeningContext, open_replica};

/// Number of records in the queue, and of rejected ones: while shard 2 was reachable, then until the snapshot, then
/// until the end.
const JOBS: usize = 12;
const REJECTED: [usize; 3] = [4, 3, 3];

fn v2() -> SimulatedDisk {
    let packed = include_bytes!("../../tests/fixtures/v2-channels.data");
    SimulatedDisk::unpack(packed, Path::new("/data"))
}

/// Returns the channels of a shard as they are on the disk, without pushing messages.
async fn channels_on(disk: &SimulatedDisk, shard: u32) -> Channels {
    let world = World::on(Arc::new(disk.clone()));
    let (failure, dir, options) = (Failure::new(), Path::new("/data"), options());
    let (cpu, watchers) = (CpuPool::new(world.workers.clone()), Arc::<Watchers>::default());
    let (timeline, peers) =
        (Arc::new(Timeline::new(Arc::clone(&world.clock))), Arc::<Peers>::default());
    let context = OpeningContext {
        world: &world,
        dir,
        options: &options,
        failure: &failure,
        timeline: &timeline,
        cpu: &cpu,
        watchers: &watchers,
        peers: &peers,
        level: &Arc::default(),
        traces: &TraceFeed::new().0,
    };
    let shard = ShardId(shard);
    let dir = LocalShard::dir(dir, shard);
    let opened = open_replica(&context, &dir, Role::Rows(shard), None).await;
    let (shard, consensus) = opened.expect("it is recovered");
    consensus.leadership().await.expect("it leads");
    let channels = shard.rows().channels().clone();
    failure.expect_ends();
    consensus.shutdown().await;
    shard.journal.close();
    channels
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_of_version_2_keeps_its_message_numbers() {
    let disk = v2();
    let snapshot = |name: &String| name.contains("snap");
    assert!(disk.list(Path::new("/data/shard-1")).unwrap().iter().any(snapshot));
    let [first, second, third] = [1, 2, 3].map(|shard| channels_on(&disk, shard));
    let (first, second, third) = (first.await, second.await, third.await);
    let to_second = first.outbox(ShardId(2)).expect("an outbox");
    // Each is one record; the last one goes to two partitions.
    let numbers: Vec<u64> = to_second.messages_from(0).map(|(number, _)| number).collect();
    assert_eq!(numbers, [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!((to_second.acknowledged(), to_second.end()), (4, 11));
    let targets = |(_, message): (_, &Arc<SentMessage>)| message.batches[0].targets.len();
    let targets: Vec<usize> = to_second.messages_from(0).map(targets).collect();
    assert_eq!(targets, [1, 1, 1, 1, 1, 1, 2]);
    assert_eq!((second.expected(ShardId(1)), first.expected(ShardId(2))), (4, 2));
    let to_first = second.outbox(ShardId(1)).expect("an outbox");
    assert_eq!((to_first.len(), to_first.acknowledged(), to_first.end()), (0, 2, 2));
    assert!(third.are_unused());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unacknowledged_messages_of_a_version_2_directory_arrive_once() {
    let disk = v2();
    let jobs = numbered("job ", JOBS);
    let dead: usize = REJECTED.iter().sum();
    for life in 0..=JOBS - dead {
        let broker = open(&disk).await;
        let id = |name: &str| broker.catalog().topic_id(name).expect("a topic");
        let first_of = |name: &str| PartitionId::new(id(name), 0);
        wait_for_quiet(&broker).await;
        let both = &["both".to_owned()][..];
        let letters = [&jobs[..dead], both, &jobs[dead..dead + life]].concat();
        assert_eq!(values(&broker, first_of("graves")).await, letters, "life {life}");
        assert_eq!(values(&broker, first_of("beside")).await, both, "life {life}");
        assert_eq!(values(&broker, first_of("back")).await, numbered("other ", 2), "life {life}");
        // The numbers continue.
        let taken = broker.shards_with_rows()[1].shard.rows().channels().expected(ShardId(1));
        assert_eq!(taken, letters.len() as u64);
        let queue = id("queue");
        let group = broker.catalog().lease_group_named(queue, "main").expect("a group").id();
        let session = broker.lease_session();
        let alive = take(&session, group, 100).await;
        let waiting = [&jobs[dead + life..], both].concat();
        assert_eq!(alive.iter().map(text).collect::<Vec<_>>(), waiting);
        reject_each(&session, &alive[..usize::from(dead + life < JOBS)]).await;
        drop(session);
        broker.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes what a later version must read"]
async fn write_a_directory_with_channels() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let graves = topic_in(&broker, 2, "graves", &[]).await;
    let beside = topic_in(&broker, 2, "beside", &[]).await;
    let back = topic_in(&broker, 1, "back", &[]).await;
    assert_eq!(broker.shard_of(back).id(), ShardId(1));
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let of_queue = group(&broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    let other = topic_in(&broker, 2, "other", &[]).await;
    let of_other = group(&broker, other.topic, &[("dead.letter.topic", "back")]).await;
    append(&broker, queue, &numbered("job ", JOBS)).await;
    append(&broker, other, &numbered("other ", 2)).await;
    let session = broker.lease_session();
    reject_each(&session, &take(&session, of_other, 2).await).await;
    reject_each(&session, &take(&session, of_queue, REJECTED[0] as u32).await).await;
    wait_for_quiet(&broker).await;
    broker.peers().cut_off(ShardId(2));
    reject_each(&session, &take(&session, of_queue, REJECTED[1] as u32).await).await;
    for shard in broker.local_shards() {
        shard.save_snapshot().await.expect("saved");
    }
    reject_each(&session, &take(&session, of_queue, REJECTED[2] as u32).await).await;
    let both = ["both".to_owned()];
    let batches = vec![batch(&[queue], &both), batch(&[graves, beside], &both)];
    let sending = session.transfer(Vec::new(), batches);
    // The transfer waits until the records have arrived.
    assert!(tokio::time::timeout(Duration::from_millis(200), sending).await.is_err());
    drop(session);
    broker.shutdown().await;
    let to = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/new-channels.data");
    std::fs::write(to, disk.pack()).unwrap();
}
