//! An outbox is full because the other shard accepts nothing: requests that need it wait, and all others continue.

use base::limits::OUTBOX_BYTES_MAX;
use futures_util::future::join_all;
use shard::delivery::error::TransferError;
use shard::delivery::inspect::RecordState;
use shard::error::AppendError;
use shard::limits::{OUTBOX_HELD_BYTES_MAX, OUTBOX_HOLD};
use tokio::time::{Instant, timeout};

use super::*;
use crate::delivery::{RedriveSelection, RedriveTo};

const LARGE: usize = 700_000;
/// Number of large records; more than an outbox holds.
const JOBS: usize = 40;
/// Time limit for requests that do not wait for an outbox, on a busy machine.
const SOON: Duration = Duration::from_secs(3);

fn large(prefix: &str, count: usize) -> Vec<String> {
    numbered(prefix, count).into_iter().map(|it| format!("{it}{}", " ".repeat(LARGE))).collect()
}

fn names(values: &[String]) -> Vec<&str> {
    values.iter().map(|value| value.trim_end()).collect()
}

/// A queue in shard 1 with large records, and dead letters in shard 2.
struct FullOutboxFixture {
    graves: PartitionId,
    group: LeaseGroupId,
    jobs: Vec<String>,
}

async fn prepare(broker: &Broker) -> FullOutboxFixture {
    let graves = topic_in(broker, 2, "graves", &[]).await;
    let queue = topic_in(broker, 1, "queue", &[]).await;
    let group = group(broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    let jobs = large("job ", JOBS);
    for job in &jobs {
        append(broker, queue, std::slice::from_ref(job)).await;
    }
    FullOutboxFixture { graves, group, jobs }
}

async fn take_all(session: &LeaseSession, group: LeaseGroupId, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(take(session, group, (count - taken.len()) as u32).await);
    }
    taken
}

fn outbox_bytes(broker: &Broker) -> u64 {
    let rows = broker.shards_with_rows()[0].shard.rows();
    rows.channels().outbox(ShardId(2)).map_or(0, |outbox| outbox.bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejects_wait_for_outbox_room_and_other_requests_continue() {
    let broker = open(&SimulatedDisk::new()).await;
    let scene = prepare(&broker).await;
    let beside = topic_in(&broker, 3, "beside", &[]).await;
    let other = topic_in(&broker, 1, "other", &[]).await;
    let of_other = group(&broker, other.topic, &[("dead.letter.topic", "beside")]).await;
    let session = broker.lease_session();
    let taken = take_all(&session, scene.group, JOBS).await;
    let (rejected, kept) = taken.split_at(JOBS - 2);
    let peers = broker.peers();
    let requests = peers.cut_off(ShardId(2));
    // A reject with room in the outbox completes.
    timeout(SOON, reject_each(&session, &rejected[..1])).await.expect("it has room");
    let each = rejected[1..].chunks(1).map(|one| session.settle(settles(one, Settlement::Reject)));
    let mut waiting: Vec<_> = each.collect();
    let begun = Instant::now();
    let mut rounds = 0;
    // Until they were rejected for lack of room, and retried.
    while begun.elapsed() < OUTBOX_HOLD + Duration::from_millis(1_500) {
        let value = vec![format!("other {rounds}")];
        timeout(SOON, append(&broker, other, &value)).await.expect("producers go on");
        let taken = take_all(&session, of_other, 1).await;
        let reject = session.settle(settles(&taken, Settlement::Reject));
        let settled = timeout(SOON, reject).await.expect("letters to other shards go on");
        assert_eq!(settled, [Ok(())]);
        assert!(outbox_bytes(&broker) <= OUTBOX_BYTES_MAX);
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(outbox_bytes(&broker) > OUTBOX_BYTES_MAX / 2);
    let accept = session.settle(settles(&kept[..1], Settlement::Accept));
    let settled = timeout(SOON, accept).await.expect("other settles of the group go on");
    assert_eq!(settled, [Ok(())]);
    let last = waiting.last_mut().expect("it waits");
    assert!(timeout(Duration::ZERO, last).await.is_err(), "it is answered");
    // Neither lost nor delivered.
    assert!(take(&session, scene.group, 10).await.is_empty());
    let peeked = broker.peek(scene.group, Default::default()).await.expect("there");
    let dying = peeked.iter().filter(|it| it.state == RecordState::DeadLettering).count();
    assert!(dying > 10 && dying < JOBS - 10, "{dying}");

    peers.restore(ShardId(2), requests);
    for answer in join_all(waiting).await {
        assert_eq!(answer, [Ok(())]);
    }
    wait_for_quiet(&broker).await;
    assert_eq!(names(&values(&broker, scene.graves).await), names(&scene.jobs[..JOBS - 2]));
    assert_eq!(values(&broker, beside).await, numbered("other ", rounds));
    let settled = session.settle(settles(&kept[1..], Settlement::Accept)).await;
    assert_eq!(settled, [Ok(())]);
    broker.shutdown().await;
}

/// Waiting units are in memory: beyond the bound a unit is rejected at once, and the others after their time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_waiting_for_an_outbox_are_bounded() {
    let broker = open(&SimulatedDisk::new()).await;
    let to = topic_in(&broker, 2, "to", &[]).await;
    let from = topic_in(&broker, 1, "from", &[]).await;
    let session = broker.lease_session();
    let peers = broker.peers();
    let requests = peers.cut_off(ShardId(2));
    let in_outbox = OUTBOX_BYTES_MAX as usize / LARGE;
    let held = OUTBOX_HELD_BYTES_MAX / LARGE;
    let count = in_outbox + held + 20;
    let begun = Instant::now();
    let values = large("", count);
    let sending = join_all(values.iter().map(async |value| {
        let small = batch(&[from], &numbered("own ", 1));
        let batches = vec![small, batch(&[to], std::slice::from_ref(value))];
        let sent = session.transfer(Vec::new(), batches).await;
        (sent.map(drop), begun.elapsed())
    }));
    let restoring = async {
        tokio::time::sleep(OUTBOX_HOLD + SOON).await;
        peers.restore(ShardId(2), requests);
    };
    let (sent, ()) = tokio::join!(sending, restoring);
    let full = |it: &Result<(), TransferError>| {
        let source = AppendError::OutboxFull { to: ShardId(2) };
        matches!(it, Err(TransferError::Append { source: why, .. }) if *why == source)
    };
    let arrived = sent.iter().filter(|(it, _)| it.is_ok()).count();
    let at_once = sent.iter().filter(|(it, after)| full(it) && *after < OUTBOX_HOLD).count();
    let later = sent.iter().filter(|(it, after)| full(it) && *after >= OUTBOX_HOLD).count();
    assert_eq!(arrived + at_once + later, count);
    assert!(arrived.abs_diff(in_outbox) < 3, "{arrived} arrived");
    assert!(later.abs_diff(held) < 3, "{later} waited");
    assert_eq!(broker.bounds(to).expect("there").end, arrived as u64);
    let own = arrived as u64;
    assert_eq!(broker.bounds(from).expect("there").end, own, "all or nothing");
    broker.shutdown().await;
}

/// Terms end while rejects, a transfer and a redrive wait for room: each is done once, in a later term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_waiting_for_room_continue_in_the_next_term() {
    let broker = open(&SimulatedDisk::new()).await;
    let scene = prepare(&broker).await;
    let to = topic_in(&broker, 2, "to", &[]).await;
    let old = topic_in(&broker, 1, "old", &[]).await;
    let of_old = group(&broker, old.topic, &[]).await;
    append(&broker, old, &numbered("old ", 3)).await;
    let session = broker.lease_session();
    let taken = take_all(&session, scene.group, JOBS).await;
    let (rejected, moved) = taken.split_at(JOBS - 1);
    let peers = broker.peers();
    let requests = peers.cut_off(ShardId(2));
    let each = rejected.chunks(1).map(|one| session.settle(settles(one, Settlement::Reject)));
    let mut rejecting = join_all(each);
    wait_for("a full outbox", async || outbox_bytes(&broker) + 3 * LARGE as u64 > OUTBOX_BYTES_MAX)
        .await;
    // After the letter that waits.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let batches = vec![batch(&[to], &numbered("moved ", 1))];
    let transfer = session.transfer(settles(moved, Settlement::Accept), batches);
    let redrive = broker.redrive(of_old, RedriveSelection::All, RedriveTo::Topic(to.topic));
    let (mut transfer, mut redrive) = (Box::pin(transfer), Box::pin(redrive));
    assert!(timeout(Duration::from_millis(50), &mut transfer).await.is_err());
    assert!(timeout(Duration::from_millis(50), &mut redrive).await.is_err());

    for _ in 0..5 {
        let electing = broker.local_shards()[1].consensus.reelect();
        electing.await.expect("elected");
        let pause = Duration::from_millis(150);
        assert!(timeout(pause, &mut transfer).await.is_err(), "it waits");
        assert!(timeout(Duration::ZERO, &mut redrive).await.is_err(), "it waits");
        assert!(timeout(Duration::ZERO, &mut rejecting).await.is_err(), "they wait");
        // Neither rejected nor transferred records are delivered meanwhile.
        assert!(take(&session, scene.group, 10).await.is_empty());
        // Other requests do not wait.
        timeout(SOON, append(&broker, old, &numbered("old", 1))).await.expect("they go on");
    }
    peers.restore(ShardId(2), requests);
    let moved = transfer.await.expect("done");
    assert_eq!(moved.len(), 1);
    assert_eq!(redrive.await.expect("done").moved, 3);
    for answer in rejecting.await {
        assert_eq!(answer, [Ok(())]);
    }
    wait_for_quiet(&broker).await;
    assert_eq!(names(&values(&broker, scene.graves).await), names(&scene.jobs[..JOBS - 1]));
    let mut at_last = values(&broker, to).await;
    at_last.sort_unstable();
    assert_eq!(at_last, ["moved 0", "old 0", "old 1", "old 2"]);
    assert!(take(&session, scene.group, 10).await.is_empty());
    broker.shutdown().await;
}
