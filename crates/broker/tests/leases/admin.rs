//! Inspecting groups, and changing them from outside.

use broker::delivery::{PeekOptions, RecordState, RemoveError, SeekTo};
use broker::{ConsumeOptions, Credit, Event, Settle, SettleTarget, Settlement};
use record::Compression;
use world::SimulatedDisk;

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peek_shows_record_states_and_leases_nothing() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(4)).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 2).await;
    settle(&session, &taken[..1], Settlement::Accept).await;
    let peeked = node.broker.peek(group, PeekOptions::default()).await.expect("peeked");
    let offsets: Vec<u64> = peeked.iter().map(|it| it.offset).collect();
    assert_eq!(offsets, [1, 2, 3]);
    assert!(matches!(peeked[0].state, RecordState::Leased { .. }));
    assert_eq!(peeked[1].state, RecordState::Ready);
    assert_eq!(peeked[1].record.value().as_deref(), Some(&b"v2"[..]));
    let options = PeekOptions { from: 2, records_max: 1, ..PeekOptions::default() };
    assert_eq!(node.broker.peek(group, options).await.expect("peeked")[0].offset, 2);
    assert_eq!(node.broker.leases(group, None, 10).await.len(), 1);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purge_settles_all_records_except_leased_ones() {
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(10)).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 2).await;
    assert_eq!(node.broker.purge(group).await, Ok(8));
    assert_eq!(node.depth(group).await, 2);
    let node = {
        drop((session, taken));
        node.broker.shutdown().await;
        open(&disk).await
    };
    assert_eq!(node.depth(group).await, 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_settles_one_record_unless_leased() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(3)).await;
    assert_eq!(node.broker.delete_record(group, 0, 1).await, Ok(()));
    let again = node.broker.delete_record(group, 0, 1).await;
    assert_eq!(again, Err(RemoveError::NotThere { partition: 0, offset: 1 }));
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let held = consumer.next(2).await;
    assert_eq!(texts(&held), ["v0", "v2"]);
    let leased = node.broker.delete_record(group, 0, 2).await;
    assert_eq!(leased, Err(RemoveError::Leased { partition: 0, offset: 2 }));
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn group_sought_back_delivers_again() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(4)).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let held = consumer.next(4).await;
    consumer.accept(&held[..3]).await;
    node.broker.seek(group, SeekTo::Offsets(vec![(0, 1)])).await.expect("sought");
    let again = consumer.next(3).await;
    assert_eq!(texts(&again), ["v1", "v2", "v3"]);
    // A lease from before the seek is void.
    let late = try_settle(&consumer.session, &held[3..], Settlement::Accept).await;
    assert!(late[0].is_err());
    node.broker.seek(group, SeekTo::End).await.expect("sought");
    assert_eq!(node.depth(group).await, 0);
    node.append(topic, &[new("next")]).await;
    assert_eq!(texts(&consumer.next(1).await), ["next"]);
    node.broker.seek(group, SeekTo::Time(START_MS)).await.expect("sought");
    assert_eq!(consumer.next(5).await.len(), 5);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_group_delivers_nothing_until_resumed() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    let pause = |paused| node.broker.pause_lease_group(group, paused);
    pause(true).await.expect("paused");
    node.append(topic, &values(1)).await;
    consumer.nothing().await;
    pause(false).await.expect("goes on");
    consumer.next(1).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_are_notified_of_the_deletion_of_their_group_or_topic() {
    let node = open(&SimulatedDisk::new()).await;
    for whole_topic in [false, true] {
        let topic = node.topic("gone", 1, &[]).await;
        let group = node.group(topic, &[]).await;
        let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
        let deleted = match whole_topic {
            true => node.broker.delete_topic(topic).await,
            false => node.broker.delete_lease_group(group).await,
        };
        deleted.expect("it is there");
        let event = tokio::time::timeout(SOON, consumer.events.recv()).await.expect("soon");
        assert!(matches!(event, Some(Event::Gone { .. })), "{event:?}");
        assert!(consumer.session.consume(group, ConsumeOptions::default()).await.is_err());
        if !whole_topic {
            node.broker.delete_topic(topic).await.expect("deleted");
        }
    }
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_partitions_are_delivered() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("grows", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let mut consumer = consume(&node, group, ConsumeOptions::default()).await;
    node.broker.create_partitions(topic, 3).await.expect("grown");
    let batch = batch(base::PartitionId::new(topic, 2), Compression::None, &values(1));
    node.broker.append(vec![batch]).await.remove(0).expect("taken");
    let deliveries = consumer.next(1).await;
    assert_eq!(deliveries[0].partition, 2);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_deleted_from_the_log_are_not_delivered() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("jobs", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &values(10)).await;
    let options = ConsumeOptions { credit: Credit::records(2), ..ConsumeOptions::default() };
    let mut consumer = consume(&node, group, options).await;
    let held = consumer.next(2).await;
    let starts = vec![(base::PartitionId::new(topic, 0), 5)];
    node.broker.shards().advance_starts(starts).await.expect("deleted");
    assert_eq!(node.depth(group).await, 5);
    let next = consumer.next(2).await;
    assert_eq!(texts(&next), ["v5", "v6"]);
    assert!(try_settle(&consumer.session, &held, Settlement::Accept).await[0].is_err());
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfer_settles_and_appends_or_does_neither() {
    let node = open(&SimulatedDisk::new()).await;
    let from = node.topic("from", 1, &[]).await;
    let to = node.topic("to", 1, &[]).await;
    let group = node.group(from, &[]).await;
    node.append(from, &values(2)).await;
    let session = node.broker.lease_session();
    let taken = take(&session, group, 2).await;
    let accept = |token| Settle {
        group,
        what: SettleTarget::Lease { partition: 0, token },
        settlement: Settlement::Accept,
    };
    let moved = |topic| batch(base::PartitionId::new(topic, 0), Compression::None, &[new("moved")]);
    let bad =
        session.transfer(vec![accept(taken[0].token), accept(999_999)], vec![moved(to)]).await;
    assert!(bad.is_err());
    let nowhere = base::TopicId(999);
    let bad = session.transfer(vec![accept(taken[0].token)], vec![moved(nowhere)]).await;
    assert!(bad.is_err());
    assert_eq!(node.depth(group).await, 2);
    let good = session.transfer(vec![accept(taken[0].token)], vec![moved(to)]).await;
    assert_eq!(good.expect("done")[0].map(|it| it.base_offset), Some(0));
    assert_eq!(node.depth(group).await, 1);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rates_cover_the_last_ten_seconds() {
    let node = open(&SimulatedDisk::new()).await;
    let topic = node.topic("busy", 1, &[]).await;
    let group = node.group(topic, &[]).await;
    let rates = async || {
        let rates = node.broker.counters(group).await.expect("there").rates;
        [rates.published, rates.delivered, rates.settled].map(|rate| rate.round())
    };
    assert_eq!(rates().await, [0.0; 3]);
    // Also for a group that is not in use.
    node.append(topic, &values(40)).await;
    assert_eq!(rates().await, [40.0, 0.0, 0.0]);
    node.clock.advance_ms(2_000);
    let session = node.broker.lease_session();
    let taken = take(&session, group, 30).await;
    settle(&session, &taken[..20], Settlement::Accept).await;
    assert_eq!(rates().await, [20.0, 30.0, 20.0]);
    node.clock.advance_ms(2_000);
    assert_eq!(rates().await, [10.0, 15.0, 10.0]);
    node.clock.advance_ms(7_000);
    assert_eq!(rates().await, [0.0, 3.0, 2.0]);
    node.clock.advance_ms(5_000);
    assert_eq!(rates().await, [0.0; 3]);
    node.broker.shutdown().await;
}
