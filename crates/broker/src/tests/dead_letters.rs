//! Dead letters and redrive, to other shards.

use std::sync::Arc;

use base::headers;
use base::topics::AUDIT;
use bytes::Bytes;
use record::Header;
use shard::delivery::dead_letter::{DeadLetterRouter, DeadRecord};

use super::*;
use crate::delivery::{RedriveSelection, RedriveTo};

#[tokio::test]
async fn rejected_record_arrives_once_in_the_other_shard_and_its_message_is_removed() {
    let broker = open(&SimulatedDisk::new()).await;
    let graves = topic_in(&broker, 2, "graves", &[]).await;
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let group = group(&broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    let all = numbered("job ", 10);
    append(&broker, queue, &all).await;
    let session = broker.lease_session();
    let taken = take(&session, group, 10).await;
    for answer in session.settle(settles(&taken, Settlement::Reject)).await {
        answer.expect("settled");
    }
    wait_for("dead letters", async || values(&broker, graves).await.len() == 10).await;
    assert_eq!(values(&broker, graves).await, all);
    assert!(channel_ends(&broker) >= 10);
    wait_for_quiet(&broker).await;
    assert!(take(&session, group, 10).await.is_empty());
    broker.shutdown().await;
}

#[tokio::test]
async fn dead_letters_within_a_shard_send_no_message() {
    let broker = open(&SimulatedDisk::new()).await;
    let graves = topic_in(&broker, 1, "graves", &[]).await;
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let group = group(&broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    append(&broker, queue, &numbered("job ", 3)).await;
    let session = broker.lease_session();
    let taken = take(&session, group, 3).await;
    session.settle(settles(&taken, Settlement::Reject)).await;
    assert_eq!(values(&broker, graves).await.len(), 3);
    assert_eq!(channel_ends(&broker), 0);
    broker.shutdown().await;
}

#[tokio::test]
async fn redrive_returns_dead_letters_to_their_source_shard() {
    let broker = open(&SimulatedDisk::new()).await;
    let graves = topic_in(&broker, 3, "graves", &[]).await;
    let of_graves = group(&broker, graves.topic, &[]).await;
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let of_queue = group(&broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    let all = numbered("job ", 700);
    append(&broker, queue, &all).await;
    let session = broker.lease_session();
    let taken = take(&session, of_queue, 700).await;
    session.settle(settles(&taken, Settlement::Reject)).await;
    wait_for("dead letters", async || values(&broker, graves).await.len() == 700).await;
    let some = RedriveSelection::Records(vec![(0, 3), (0, 5)]);
    let redriven = broker.redrive(of_graves, some, RedriveTo::Source).await.expect("moved");
    assert_eq!(redriven.moved, 2);
    let redriven = broker.redrive(of_graves, RedriveSelection::All, RedriveTo::Source).await;
    assert_eq!(redriven.expect("moved").moved, 698);
    // They are there when it returns.
    let back = take(&session, of_queue, 1_000).await;
    let mut expected = all;
    let first = [expected.remove(3), expected.remove(4)];
    let expected = [&first[..], &expected].concat();
    assert_eq!(back.iter().map(text).collect::<Vec<_>>(), expected);
    wait_for_quiet(&broker).await;
    broker.shutdown().await;
}

/// Each partition's letters go to the partition of the same number, which is in another shard; and back.
#[tokio::test]
async fn topic_over_all_shards_is_dead_lettered_and_redriven_in_order() {
    const PARTITIONS: u32 = 6;
    let broker = open(&SimulatedDisk::new()).await;
    let graves = topic(&broker, "graves", PARTITIONS, &[]).await;
    let queue = topic(&broker, "queue", PARTITIONS, &[]).await;
    let of_graves = group(&broker, graves, &[]).await;
    let of_queue = group(&broker, queue, &[("dead.letter.topic", "graves")]).await;
    let indexes = 0..PARTITIONS;
    let at = |topic, index| PartitionId::new(topic, index);
    for index in indexes.clone() {
        let shards = [queue, graves].map(|topic| broker.shard_of(at(topic, index)).id());
        assert_ne!(shards[0], shards[1]);
        append(&broker, at(queue, index), &numbered(&format!("{index}-"), 20)).await;
    }
    let session = broker.lease_session();
    loop {
        let taken = take(&session, of_queue, 7).await;
        if taken.is_empty() {
            break;
        }
        session.settle(settles(&taken, Settlement::Reject)).await;
    }
    let letters = async |topic| {
        let mut all = Vec::new();
        for index in 0..PARTITIONS {
            all.push(values(&broker, at(topic, index)).await);
        }
        all
    };
    let expected: Vec<_> = indexes.map(|index| numbered(&format!("{index}-"), 20)).collect();
    wait_for("dead letters", async || letters(graves).await == expected).await;
    let redriven = broker.redrive(of_graves, RedriveSelection::All, RedriveTo::Source).await;
    assert_eq!(redriven.expect("moved").moved, 120);
    let twice: Vec<_> = expected.iter().map(|it| [&it[..], &it[..]].concat()).collect();
    assert_eq!(letters(queue).await, twice);
    wait_for_quiet(&broker).await;
    broker.shutdown().await;
}

/// A router like a fanout exchange.
#[derive(Debug)]
struct FanoutRouter(Vec<PartitionId>);

impl DeadLetterRouter for FanoutRouter {
    fn route(&self, _: &str, dead: &DeadRecord) -> Vec<(PartitionId, Bytes)> {
        let mut builder = BatchBuilder::new(BatchOptions::default());
        dead.copy_into(&mut builder, &[]).expect("has room");
        let bytes = Bytes::from(builder.finish());
        self.0.iter().map(|to| (*to, bytes.clone())).collect()
    }
}

#[tokio::test]
async fn router_may_name_partitions_of_several_shards() {
    let broker = open(&SimulatedDisk::new()).await;
    // A topic in all shards, and some in one.
    let wide = topic(&broker, "wide", 2 * SHARDS, &[]).await;
    let mut to: Vec<_> = (0..2 * SHARDS).map(|index| PartitionId::new(wide, index)).collect();
    for (number, shard) in [3, 1, 2, 3, 2].into_iter().enumerate() {
        to.push(topic_in(&broker, shard, &format!("to-{number}"), &[]).await);
    }
    broker.set_dead_letter_router("all", Arc::new(FanoutRouter(to.clone())));
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let group = group(&broker, queue.topic, &[("dead.letter.route", "all:x")]).await;
    let all = numbered("job ", 30);
    append(&broker, queue, &all).await;
    let session = broker.lease_session();
    let taken = take(&session, group, 30).await;
    session.settle(settles(&taken, Settlement::Reject)).await;
    wait_for_quiet(&broker).await;
    for to in to {
        assert_eq!(values(&broker, to).await, all, "{to}");
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn deleted_target_does_not_delay_other_dead_letters() {
    let broker = open(&SimulatedDisk::new()).await;
    let kept = topic_in(&broker, 2, "kept", &[]).await;
    let doomed = topic_in(&broker, 2, "doomed", &[]).await;
    broker.set_dead_letter_router("all", Arc::new(FanoutRouter(vec![doomed, kept])));
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let group = group(&broker, queue.topic, &[("dead.letter.route", "all:x")]).await;
    let all = numbered("job ", 400);
    append(&broker, queue, &all).await;
    let session = broker.lease_session();
    let rejecting = async {
        loop {
            let taken = take(&session, group, 10).await;
            if taken.is_empty() {
                break;
            }
            // Those after the deletion are rejected until the router knows of it.
            drop(session.settle(settles(&taken, Settlement::Reject)));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let deleting = async {
        tokio::time::sleep(Duration::from_millis(15)).await;
        broker.delete_topic(doomed.topic).await.expect("it is there");
        broker.set_dead_letter_router("all", Arc::new(FanoutRouter(vec![kept])));
    };
    tokio::join!(rejecting, deleting);
    wait_for("all letters", async || values(&broker, kept).await.len() >= all.len()).await;
    assert_eq!(values(&broker, kept).await, all);
    wait_for_quiet(&broker).await;
    broker.shutdown().await;
}

/// A message that has to be read from a slow disk delays its own channel, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_do_not_wait_for_the_reads_of_others() {
    let disk = SimulatedDisk::new();
    let broker = open(&disk).await;
    let (mut graves, mut groups) = (Vec::new(), Vec::new());
    for shard in [2, 3] {
        let name = format!("graves-{shard}");
        graves.push(topic_in(&broker, shard, &name, &[]).await);
        let queue = topic_in(&broker, 1, &format!("queue-{shard}"), &[]).await;
        groups.push(group(&broker, queue.topic, &[("dead.letter.topic", &name)]).await);
        append(&broker, queue, &numbered(&format!("{shard}-"), 10)).await;
    }
    let session = broker.lease_session();
    let to_second = take(&session, groups[0], 10).await;
    let to_third = take(&session, groups[1], 10).await;
    let shard = &broker.local_shards()[1];
    let requests = broker.peers().cut_off(ShardId(2));
    reject_each(&session, &to_second).await;
    // Evicts them from memory: the first call notes the durable ones, and the second drops them.
    shard.journal().rest(Duration::ZERO);
    shard.journal().rest(Duration::ZERO);
    disk.hang_reads(true);
    broker.peers().restore(ShardId(2), requests);
    wait_for("a read from disk", async || disk.hanging_reads() > 0).await;
    let before = values_count(&broker, graves[0]);
    reject_each(&session, &to_third).await;
    wait_for("letters of the other channel", async || values_count(&broker, graves[1]) == 10).await;
    assert_eq!(values_count(&broker, graves[0]), before);
    disk.hang_reads(false);
    wait_for("letters of both", async || values_count(&broker, graves[0]) == 10).await;
    wait_for_quiet(&broker).await;
    for (graves, shard) in graves.into_iter().zip([2, 3]) {
        assert_eq!(values(&broker, graves).await, numbered(&format!("{shard}-"), 10));
    }
    broker.shutdown().await;
}

/// Dropped records are counted in the target shard, each record once.
#[tokio::test]
async fn letters_to_a_deleted_topic_are_counted() {
    let broker = open(&SimulatedDisk::new()).await;
    let kept = topic_in(&broker, 2, "kept", &[]).await;
    let doomed = topic_in(&broker, 2, "doomed", &[]).await;
    broker.set_dead_letter_router("all", Arc::new(FanoutRouter(vec![doomed, kept])));
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let group = group(&broker, queue.topic, &[("dead.letter.route", "all:x")]).await;
    let all = numbered("job ", 7);
    append(&broker, queue, &all).await;
    let peers = broker.peers();
    let requests = peers.cut_off(ShardId(2));
    let session = broker.lease_session();
    reject_each(&session, &take(&session, group, 7).await).await;
    broker.delete_topic(doomed.topic).await.expect("it is there");
    // Both ends get a new term: messages sent again count once.
    peers.restore(ShardId(2), requests);
    for shard in [1, 2] {
        broker.local_shards()[shard].consensus.reelect().await.expect("elected");
    }
    wait_for("all letters", async || values(&broker, kept).await.len() >= all.len()).await;
    wait_for_quiet(&broker).await;
    assert_eq!(values(&broker, kept).await, all);
    let unplaced: Vec<u64> = broker.shard_statuses().iter().map(|it| it.unplaced).collect();
    assert_eq!(unplaced, [0, 0, 7, 0]);
    broker.shutdown().await;
}

/// Records that a full topic rejects go straight to the log of the other shard.
#[tokio::test]
async fn records_rejected_by_a_full_topic_are_dead_lettered_in_another_shard() {
    let broker = open(&SimulatedDisk::new()).await;
    let graves = topic_in(&broker, 3, "graves", &[]).await;
    let limits = [("limit.records", "2"), ("limit.overflow", "reject-dead-letter")];
    let queue = topic_in(&broker, 1, "queue", &limits).await;
    group(&broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    append(&broker, queue, &numbered("in ", 2)).await;
    let refused = broker.append(vec![batch(&[queue], &numbered("out ", 3))]).await;
    assert!(refused.iter().all(Result::is_err));
    assert_eq!(values(&broker, graves).await, numbered("out ", 3));
    assert_eq!(channel_ends(&broker), 0);
    broker.shutdown().await;
}

/// Limits of the target do not apply to records from another shard.
#[tokio::test]
async fn full_target_accepts_dead_letters_from_another_shard() {
    let broker = open(&SimulatedDisk::new()).await;
    let limits = [("limit.records", "1"), ("limit.overflow", "reject")];
    let graves = topic_in(&broker, 2, "graves", &limits).await;
    let queue = topic_in(&broker, 1, "queue", &[]).await;
    let group = group(&broker, queue.topic, &[("dead.letter.topic", "graves")]).await;
    append(&broker, queue, &numbered("job ", 5)).await;
    let session = broker.lease_session();
    let taken = take(&session, group, 5).await;
    session.settle(settles(&taken, Settlement::Reject)).await;
    wait_for("dead letters", async || values(&broker, graves).await.len() == 5).await;
    let full = broker.append(vec![batch(&[graves], &numbered("x", 1))]).await;
    assert!(full[0].is_err());
    broker.shutdown().await;
}

#[tokio::test]
async fn dead_letters_never_go_to_internal_topics() {
    let broker = open(&SimulatedDisk::new()).await;
    let audit = broker.internal_topic_partition(AUDIT, -1, -1).await.expect("is created");
    let limits = [("limit.records", "2"), ("limit.overflow", "reject-dead-letter")];
    let queue = topic_in(&broker, 1, "queue", &limits).await;
    let group = group(&broker, queue.topic, &[("dead.letter.topic", AUDIT)]).await;
    // Forged source topic, to which a redrive would return the record.
    let mut forged = BatchBuilder::new(BatchOptions::default());
    let source = Header { key: headers::DEATH_TOPIC.as_bytes(), value: Some(AUDIT.as_bytes()) };
    forged.push(1, None, Some(b"forged"), &[source]).expect("has room");
    let bytes = BytesMut::from(&forged.finish()[..]);
    let header = BatchHeader::parse(&bytes).expect("a batch");
    let appended = broker.append(vec![AppendBatch::new(queue, header, bytes)]).await;
    assert!(appended.iter().all(Result::is_ok));
    let redriven = broker.redrive(group, RedriveSelection::All, RedriveTo::Source).await;
    let redriven = redriven.expect("is looked at");
    assert_eq!((redriven.moved, redriven.left), (0, 1));
    // Rejected, and over the limit.
    append(&broker, queue, &numbered("job ", 1)).await;
    let refused = broker.append(vec![batch(&[queue], &numbered("out ", 3))]).await;
    assert!(refused.iter().all(Result::is_err));
    let session = broker.lease_session();
    let taken = take(&session, group, 10).await;
    session.settle(settles(&taken, Settlement::Reject)).await;
    wait_for_quiet(&broker).await;
    assert!(take(&session, group, 10).await.is_empty());
    assert_eq!(values(&broker, audit).await, [""; 0]);
    broker.shutdown().await;
}
