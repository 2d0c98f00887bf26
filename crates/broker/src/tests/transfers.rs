//! Transfers that append in other shards.

use base::limits::{OUTBOX_BYTES_MAX, OUTBOX_MESSAGES_MAX};
use futures_util::future::join_all;
use shard::delivery::error::TransferError;
use shard::error::AppendError;

use super::*;
use crate::delivery::SettleTarget;

/// A queue in each shard, with leased records.
struct Queues {
    partitions: Vec<PartitionId>,
    groups: Vec<LeaseGroupId>,
    session: LeaseSession,
}

async fn queues(broker: &Broker) -> Queues {
    let (mut partitions, mut groups) = (Vec::new(), Vec::new());
    for shard in 1..=SHARDS {
        let queue = topic_in(broker, shard, &format!("queue-{shard}"), &[]).await;
        groups.push(group(broker, queue.topic, &[]).await);
        append(broker, queue, &numbered("job ", 4)).await;
        partitions.push(queue);
    }
    Queues { partitions, groups, session: broker.lease_session() }
}

async fn depth(broker: &Broker, partition: PartitionId, group: LeaseGroupId) -> u64 {
    let rows = broker.shard_of(partition).shard.rows();
    let end = rows.partition(partition).expect("there").next_offset();
    end - rows.progress(group, partition.index).expect("there").floor()
}

#[tokio::test]
async fn transferred_records_are_visible_once_the_transfer_completes() {
    let broker = open(&SimulatedDisk::new()).await;
    let Queues { partitions, groups, session } = queues(&broker).await;
    let mut to = Vec::new();
    for shard in 1..=SHARDS {
        to.push(topic_in(&broker, shard, &format!("to-{shard}"), &[]).await);
    }
    for round in 0..20_u64 {
        if round == 4 {
            // Without a settle the shard of the first batch sends.
            assert_eq!(depth(&broker, partitions[0], groups[0]).await, 0);
        }
        let taken = take(&session, groups[0], 1).await;
        assert_eq!(taken.len(), usize::from(round < 4));
        let value = vec![format!("round {round}")];
        // One batch for each shard, and one for all.
        let mut batches: Vec<_> = to.iter().map(|to| batch(&[*to], &value)).collect();
        batches.push(batch(&[to[2], to[0], to[1]], &value));
        let rows = session.transfer(settles(&taken, Settlement::Accept), batches).await;
        let offsets: Vec<_> =
            rows.expect("done").iter().map(|it| it.map(|it| it.base_offset)).collect();
        let (first, second) = (Some(round * 2), Some(round * 2 + 1));
        assert_eq!(offsets, [first, first, first, second, second, second]);
        for to in &to {
            let bounds = broker.bounds(*to).expect("there");
            assert_eq!(bounds.end, round * 2 + 2);
            assert_eq!(values(&broker, *to).await.last(), Some(&format!("round {round}")));
        }
    }
    wait_for_quiet(&broker).await;
    broker.shutdown().await;
}

#[tokio::test]
async fn transfer_with_one_invalid_batch_is_rejected_entirely() {
    let broker = open(&SimulatedDisk::new()).await;
    let Queues { partitions, groups, session } = queues(&broker).await;
    let to = topic_in(&broker, 2, "to", &[]).await;
    let limits = [("limit.records", "1"), ("limit.overflow", "reject")];
    let small = topic_in(&broker, 1, "small", &limits).await;
    append(&broker, small, &numbered("x", 1)).await;
    let nowhere = PartitionId::new(to.topic, 7);
    let third = topic_in(&broker, 3, "third", &[]).await;
    let plain = |partition| batch(&[partition], &numbered("y", 1));
    let expecting = |partition| AppendBatch { expect: Some(0), ..plain(partition) };
    let refused = [
        (vec![plain(to), plain(nowhere)], AppendError::UnknownPartition(nowhere)),
        (vec![plain(to), plain(small)], AppendError::Full { limit: "limit.records".into() }),
        // The first batch gets the offset.
        (vec![plain(to), expecting(to)], AppendError::NotAtExpected { end: 1 }),
        (vec![expecting(to), expecting(third)], AppendError::ExpectedElsewhere(third)),
    ];
    for (batches, why) in refused {
        let taken = take(&session, groups[0], 1).await;
        assert_eq!(text(&taken[0]), "job 0", "it was given back");
        let answer = session.transfer(settles(&taken, Settlement::Accept), batches).await;
        let Err(TransferError::Append { source, .. }) = answer else { panic!("{answer:?}") };
        assert_eq!(source, why);
        assert_eq!(values(&broker, to).await, Vec::<String>::new());
        assert_eq!(depth(&broker, partitions[0], groups[0]).await, 4);
        let release = Settlement::Release { delay_ms: Some(0), count: false };
        let _ = session.settle(settles(&taken, release)).await;
    }
    assert_eq!(channel_ends(&broker), 0);
    broker.shutdown().await;
}

#[tokio::test]
async fn settles_in_several_shards_are_checked_before_any_takes_effect() {
    let broker = open(&SimulatedDisk::new()).await;
    let Queues { partitions, groups, session } = queues(&broker).await;
    let to = topic_in(&broker, 2, "to", &[]).await;
    let mut taken = Vec::new();
    for group in &groups {
        taken.extend(take(&session, *group, 1).await);
    }
    let mut accepted = settles(&taken, Settlement::Accept);
    let held = accepted[2].what;
    accepted[2].what = SettleTarget::Lease { partition: 0, token: 12_345 };
    let batches = || vec![batch(&[to], &numbered("y", 1))];
    let lost = session.transfer(accepted.clone(), batches()).await;
    assert!(matches!(lost, Err(TransferError::Settle { item: 2, .. })), "{lost:?}");
    for (partition, group) in partitions.iter().zip(&groups) {
        assert_eq!(depth(&broker, *partition, *group).await, 4);
    }
    assert!(values(&broker, to).await.is_empty());
    accepted[2].what = held;
    let rows = session.transfer(accepted, batches()).await.expect("done");
    assert_eq!(rows.len(), 1);
    assert_eq!(values(&broker, to).await, numbered("y", 1));
    for (partition, group) in partitions.iter().zip(&groups) {
        assert_eq!(depth(&broker, *partition, *group).await, 3);
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn transfer_over_shards_that_the_first_refuses_changes_nothing() {
    let broker = open(&SimulatedDisk::new()).await;
    let Queues { partitions, groups, session } = queues(&broker).await;
    let limits = [("limit.records", "1"), ("limit.overflow", "reject")];
    let full = topic_in(&broker, 1, "full", &limits).await;
    append(&broker, full, &numbered("x", 1)).await;
    let mut taken = Vec::new();
    for group in &groups {
        taken.extend(take(&session, *group, 1).await);
    }
    let accepted = settles(&taken, Settlement::Accept);
    let refused = session.transfer(accepted, vec![batch(&[full], &numbered("y", 1))]).await;
    let source = AppendError::Full { limit: "limit.records".into() };
    assert_eq!(refused, Err(TransferError::Append { batch: 0, source }));
    // The records that other shards withheld are available again.
    for (partition, group) in partitions.iter().zip(&groups) {
        assert_eq!(depth(&broker, *partition, *group).await, 4);
        assert_eq!(take(&session, *group, 4).await.len(), 4, "of {partition}");
    }
    broker.shutdown().await;
}

#[tokio::test]
async fn dead_letters_of_a_transfer_over_shards_are_part_of_it() {
    let broker = open(&SimulatedDisk::new()).await;
    let dead = topic_in(&broker, 3, "dead", &[]).await;
    let to = topic_in(&broker, 1, "to", &[]).await;
    let (mut queues, mut ends) = (Vec::new(), Vec::new());
    let session = broker.lease_session();
    for (shard, settlement) in [(1, Settlement::Accept), (2, Settlement::Reject)] {
        let queue = topic_in(&broker, shard, &format!("queue-{shard}"), &[]).await;
        let group = group(&broker, queue.topic, &[("dead.letter.topic", "dead")]).await;
        append(&broker, queue, &numbered("job ", 2)).await;
        ends.extend(settles(&take(&session, group, 1).await, settlement));
        queues.push((queue, group));
    }
    let rows = session.transfer(ends, vec![batch(&[to], &numbered("y", 1))]).await;
    assert_eq!(rows.expect("done").len(), 1, "the dead letter is not among the caller's rows");
    assert_eq!(values(&broker, to).await, numbered("y", 1));
    wait_for("the dead letter", async || values_count(&broker, dead) == 1).await;
    assert_eq!(values(&broker, dead).await, numbered("job ", 1));
    for (queue, group) in queues {
        assert_eq!(depth(&broker, queue, group).await, 1);
        let rest = take(&session, group, 2).await;
        assert_eq!(rest.len(), 1, "the settled record of {queue} does not come again");
    }
    broker.shutdown().await;
}

/// More than an outbox holds: a transfer without room waits, and no other request does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_without_outbox_room_waits() {
    let broker = open(&SimulatedDisk::new()).await;
    let Queues { partitions, session, .. } = queues(&broker).await;
    let to = topic_in(&broker, 2, "to", &[]).await;
    let large = "x".repeat(700_000);
    let from_first = || batch(&partitions[..1], &numbered("first ", 1));
    let sending = join_all((0..60).map(|number| {
        let value = format!("{number} {large}");
        session.transfer(Vec::new(), vec![from_first(), batch(&[to], &[value])])
    }));
    let watching = async {
        let (mut most, mut others) = (0, 0);
        while values_count(&broker, to) < 60 {
            let rows = broker.shard_of(partitions[0]).shard.rows();
            let outbox = rows.channels().outbox(ShardId(2)).map(|it| (it.len(), it.bytes()));
            drop(rows);
            let (messages, bytes) = outbox.unwrap_or_default();
            assert!(messages <= OUTBOX_MESSAGES_MAX && bytes <= OUTBOX_BYTES_MAX);
            most = most.max(bytes);
            append(&broker, partitions[0], &numbered("beside ", 1)).await;
            others += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(most > OUTBOX_BYTES_MAX / 2, "{most} bytes at most");
        assert!(others > 3, "{others} were appended beside it");
    };
    let (sent, ()) = tokio::join!(sending, watching);
    let mut offsets: Vec<u64> = sent
        .into_iter()
        .map(|rows| rows.expect("it waits for room")[1].expect("known").base_offset)
        .collect();
    offsets.sort_unstable();
    assert_eq!(offsets, (0..60).collect::<Vec<_>>());
    wait_for_quiet(&broker).await;
    broker.shutdown().await;
}

/// A message may be larger than an outbox: it is sent when the outbox is empty.
#[tokio::test]
async fn message_larger_than_an_outbox_is_sent_alone() {
    let broker = open(&SimulatedDisk::new()).await;
    let Queues { partitions, session, .. } = queues(&broker).await;
    let to = topic_in(&broker, 2, "to", &[]).await;
    let value = "x".repeat(900_000);
    let from_first = || batch(&partitions[..1], &numbered("first ", 1));
    let large = (0..25).map(|_| batch(&[to], std::slice::from_ref(&value)));
    let large = std::iter::once(from_first()).chain(large).collect();
    let small = vec![from_first(), batch(&[to], &numbered("small", 1))];
    let (large, small) =
        tokio::join!(session.transfer(Vec::new(), large), session.transfer(Vec::new(), small));
    assert_eq!((large.expect("done").len(), small.expect("done").len()), (26, 2));
    assert_eq!(values_count(&broker, to), 26);
    broker.shutdown().await;
}

/// The catalog has a topic a moment before its shard adopts it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_to_a_topic_waits_until_its_shard_adopted_it() {
    let broker = open(&SimulatedDisk::new()).await;
    let Queues { session, .. } = queues(&broker).await;
    for number in 0..40 {
        let name = format!("new-{number}");
        let making = topic(&broker, &name, 6, &[]);
        let sending = async {
            let id = loop {
                if let Some(id) = broker.catalog().topic_id(&name) {
                    break id;
                }
                tokio::task::yield_now().await;
            };
            let to: Vec<_> = (0..6).map(|index| PartitionId::new(id, index)).collect();
            session.transfer(Vec::new(), vec![batch(&to, &numbered("x", 1))]).await
        };
        let (id, sent) = tokio::join!(making, sending);
        match sent {
            Ok(rows) => assert!(rows.iter().all(Option::is_some), "{rows:?}"),
            // The shard of the first partition had not adopted it.
            Err(TransferError::Append { source: AppendError::UnknownPartition(_), .. }) => continue,
            Err(error) => panic!("{error}"),
        }
        for index in 0..6 {
            assert_eq!(values_count(&broker, PartitionId::new(id, index)), 1);
        }
    }
    broker.shutdown().await;
}
