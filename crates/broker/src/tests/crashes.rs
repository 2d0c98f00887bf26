//! Ends of the node between the entries of the two ends of a channel.

use super::*;

struct CrashFixture {
    graves: PartitionId,
    group: LeaseGroupId,
}

const RECORDS: usize = 6;

/// Records of a queue in one shard, with dead letters in another.
async fn prepare(broker: &Broker) -> CrashFixture {
    let graves = topic_in(broker, 2, "graves", &[]).await;
    let queue = topic_in(broker, 1, "queue", &[]).await;
    let group = group(broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    append(broker, queue, &numbered("job ", RECORDS)).await;
    CrashFixture { graves, group }
}

/// Rejects one record after the other, and returns when all messages are acknowledged, or the disk is dead.
async fn reject_all(broker: &Broker, scene: &CrashFixture, disk: &SimulatedDisk) {
    let session = broker.lease_session();
    for delivery in take(&session, scene.group, RECORDS as u32).await {
        session.settle(settles(&[delivery], Settlement::Reject)).await;
    }
    while unacknowledged(broker) > 0 && !disk.is_dead() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Every record is in the queue or among the dead letters, and nowhere twice; dead ones arrive.
async fn check(broker: &Broker, scene: &CrashFixture, what: &str) {
    wait_for_quiet(broker).await;
    let dead = values(broker, scene.graves).await;
    let session = broker.lease_session();
    let alive = take(&session, scene.group, RECORDS as u32).await;
    let mut all: Vec<String> = alive.iter().map(text).chain(dead.iter().cloned()).collect();
    all.sort_unstable();
    assert_eq!(all, numbered("job ", RECORDS), "{what}: dead {dead:?}");
}

/// The power fails, or the process is killed, after each change of the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_at_any_disk_operation_neither_loses_nor_doubles_a_letter() {
    let (mut at, mut unfinished) = (0, 0);
    loop {
        let disk = SimulatedDisk::new();
        let broker = open(&disk).await;
        let scene = prepare(&broker).await;
        disk.cut_power_after(at);
        reject_all(&broker, &scene, &disk).await;
        let ended = !disk.is_dead();
        let kept = if at % 2 == 0 { disk.killed() } else { disk.power_loss(at) };
        drop(broker);
        let broker = try_open(&kept).await.unwrap_or_else(|error| panic!("cut at {at}: {error}"));
        unfinished += usize::from(unacknowledged(&broker) > 0);
        check(&broker, &scene, &format!("cut at {at}")).await;
        broker.shutdown().await;
        if ended {
            break;
        }
        at += 1;
    }
    // On a slow machine more goes into one write: at least one for each reject, and one for its letter.
    assert!(
        at >= 2 * RECORDS as u64 && unfinished > 3,
        "{unfinished} of {at} ends were within a message"
    );
}

/// Messages left unsent by a stopping node are sent by the next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_resumes_unacknowledged_messages() {
    let mut unfinished = 0;
    for delay_us in [0, 200, 500, 1_000, 2_000, 4_000, 8_000] {
        let disk = SimulatedDisk::new();
        let mut broker = open(&disk).await;
        let scene = prepare(&broker).await;
        let session = broker.lease_session();
        let taken = take(&session, scene.group, RECORDS as u32).await;
        for delivery in &taken {
            drop(session.settle(settles(std::slice::from_ref(delivery), Settlement::Reject)));
        }
        drop(session);
        tokio::time::sleep(Duration::from_micros(delay_us)).await;
        for life in 0..3 {
            broker.shutdown().await;
            broker = open(&disk).await;
            unfinished += usize::from(unacknowledged(&broker) > 0);
            if life == 1 {
                // Messages in the outbox now outlive the log that had them.
                for shard in broker.shards_with_rows() {
                    shard.save_snapshot().await.expect("saved");
                }
            }
        }
        check(&broker, &scene, &format!("after {delay_us} us")).await;
        broker.shutdown().await;
    }
    assert!(unfinished > 0, "no restart came in between");
}
