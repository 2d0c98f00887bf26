//! Segments are rewritten while they hold bodies of messages in flight.

use machine::Command;

use super::*;

const LETTERS: usize = 4;
const SEGMENT: u64 = 64 << 10;

/// The reason why most of a segment is dead.
#[derive(Clone, Copy, Debug)]
enum Cause {
    /// The other records in it are deleted.
    Deletion,
    /// Later records have their keys.
    Compaction,
}

struct RewriteFixture {
    graves: PartitionId,
    group: LeaseGroupId,
    filler: PartitionId,
    /// Makes shard 2 reachable again.
    requests: shard_peers::Reach,
}

async fn open_small(disk: &SimulatedDisk) -> Result<Broker, OpenError> {
    let mut options = options();
    options.journal.segment_bytes = SEGMENT;
    let world = World::on(Arc::new(disk.clone()));
    Broker::open(world, Path::new("/data"), options).await
}

/// Creates messages of shard 1 that shard 2 has not received, each amid filler records of more than half a segment.
async fn prepare(broker: &Broker) -> RewriteFixture {
    let graves = topic_in(broker, 2, "graves", &[]).await;
    let filler = topic_in(broker, 1, "filler", &[]).await;
    let queue = topic_in(broker, 1, "queue", &[]).await;
    let group = group(broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    append(broker, queue, &numbered("job ", LETTERS)).await;
    let requests = broker.peers().cut_off(ShardId(2));
    let session = broker.lease_session();
    for delivery in take(&session, group, LETTERS as u32).await {
        append(broker, filler, &["x".repeat(SEGMENT as usize * 2 / 3)]).await;
        reject_each(&session, &[delivery]).await;
    }
    RewriteFixture { graves, group, filler, requests }
}

/// Generation of each segment with bodies of messages to shard 2.
fn generations(broker: &Broker) -> Vec<u32> {
    let journal = broker.local_shards()[1].journal();
    let stream = PartitionId::channel_to(ShardId(2)).stream();
    let holders = journal.batches(stream, 0).expect("an index");
    let is_holder = |id: u32| holders.iter().any(|batch| batch.segment == id);
    journal.segments().iter().filter(|it| is_holder(it.id)).map(|it| it.generation).collect()
}

/// Whether shard 2 has received all messages.
fn has_arrived(broker: &Broker) -> bool {
    let shards = broker.shards_with_rows();
    let sent = shards[0].shard.rows().channels().outbox(ShardId(2)).map_or(0, |it| it.end());
    shards[1].shard.rows().channels().expected(ShardId(1)) == sent
}

/// Has the segments rewritten, and then delivers the messages. Returns when they are received, or the disk is dead.
async fn rewrite_and_send(
    broker: &Broker,
    scene: &RewriteFixture,
    cause: Cause,
    disk: &SimulatedDisk,
) {
    let shard = &broker.local_shards()[1];
    shard.journal().roll();
    let _ = match cause {
        Cause::Deletion => {
            let end = broker.bounds(scene.filler).map_or(0, |bounds| bounds.end);
            broker.shards().advance_starts(vec![(scene.filler, end)]).await.map(drop)
        }
        Cause::Compaction => {
            let config = [("cleanup.policy", "compact"), ("segment.ms", "1")];
            let (topic, config) = (scene.filler.topic, values_of(&config));
            broker.execute(Command::SetTopicConfig { topic, config }).await.map(drop)
        }
    };
    let _ = broker.append(vec![batch(&[scene.filler], &numbered("last ", 1))]).await;
    let _ = shard.save_snapshot().await;
    wait_for("rewritten segments", async || {
        disk.is_dead() || generations(broker).iter().all(|generation| *generation > 1)
    })
    .await;
    broker.peers().restore(ShardId(2), scene.requests.clone());
    while !has_arrived(broker) && !disk.is_dead() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn check(broker: &Broker, scene: &RewriteFixture, what: &str) {
    wait_for("all letters", async || has_arrived(broker)).await;
    assert_eq!(values(broker, scene.graves).await, numbered("job ", LETTERS), "{what}");
    let session = broker.lease_session();
    assert!(take(&session, scene.group, 10).await.is_empty(), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_of_messages_in_flight_survive_rewrites_of_their_segments() {
    for cause in [Cause::Deletion, Cause::Compaction] {
        let disk = SimulatedDisk::new();
        let broker = open_small(&disk).await.expect("opens");
        let scene = prepare(&broker).await;
        let before = generations(&broker);
        assert!(before.len() > 2 && before.contains(&1), "{before:?}");
        rewrite_and_send(&broker, &scene, cause, &disk).await;
        check(&broker, &scene, &format!("{cause:?}")).await;
        wait_for_quiet(&broker).await;
        broker.shutdown().await;
    }
}

/// Crashes at every third operation of the disk, or at each with `THOROUGH=1`, as `cargo xtask ci --full` does.
async fn crash_at_disk_operations(cause: Cause) {
    let step = if std::env::var_os("THOROUGH").is_some() { 1 } else { 3 };
    let (mut at, mut tries, mut unfinished, mut rewritten) = (0, 0, 0, 0);
    loop {
        let disk = SimulatedDisk::new();
        let broker = open_small(&disk).await.expect("opens");
        let scene = prepare(&broker).await;
        disk.cut_power_after(at);
        rewrite_and_send(&broker, &scene, cause, &disk).await;
        let ended = !disk.is_dead();
        rewritten += usize::from(generations(&broker).iter().any(|generation| *generation > 1));
        let kept = if at % 2 == 0 { disk.killed() } else { disk.power_loss(at) };
        drop(broker);
        let what = format!("{cause:?}, cut at {at}");
        let broker = open_small(&kept).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        unfinished += usize::from(unacknowledged(&broker) > 0);
        check(&broker, &scene, &what).await;
        broker.shutdown().await;
        tries += 1;
        if ended {
            break;
        }
        at += step;
    }

    assert!(at > 40, "only {at} changes of the disk");
    let enough = |found: usize, of_all: usize| found > of_all / step as usize;
    assert!(
        enough(unfinished, 20) && enough(rewritten, 10),
        "{unfinished} and {rewritten} of {tries} ends"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_in_a_rewrite_after_deletions_neither_loses_nor_doubles_a_message() {
    crash_at_disk_operations(Cause::Deletion).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_in_a_rewrite_by_compaction_neither_loses_nor_doubles_a_message() {
    crash_at_disk_operations(Cause::Compaction).await;
}
