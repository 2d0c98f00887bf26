//! Queues at a node without a replica of their shard: consume, take, settle and inspect as at any other.

use std::time::Duration;

use base::headers;
use broker::delivery::{PeekOptions, RedriveSelection, RedriveTo, SeekTo};
use broker::{ConsumeOptions, NewTopic, Settlement};

use crate::harness::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_is_consumed_and_settled() {
    let cluster = Cluster::start_of(4, 1, &[]).await;
    let outsider = cluster.outsider(0);
    cluster.append(0, &values(0..10)).await;
    let mut consumer = cluster.consume(outsider, ConsumeOptions::default()).await;
    let mut seen = Vec::new();
    while seen.len() < 10 {
        let some = consumer.some(SOON).await;
        consumer.accept(&some).await;
        seen.extend(texts(&some));
    }
    assert_eq!(seen, values(0..10));
    let settled = async || {
        let broker = cluster.broker(outsider);
        let progress = broker.shards().lease_progress(cluster.group, &[0]).await.expect("known");
        progress[0].is_some_and(|it| it.floor == 10)
    };
    wait_for(settled, || "all is settled".to_owned()).await;
    let counters = cluster.broker(outsider).counters(cluster.group).await.expect("it is there");
    assert_eq!((counters.depth, counters.consumers), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_inspected_purged_and_sought() {
    let cluster = Cluster::start_of(4, 1, &[]).await;
    let (outsider, group) = (cluster.outsider(0), cluster.group);
    cluster.append(0, &values(0..6)).await;
    let broker = cluster.broker(outsider);
    let peeked = broker.peek(group, PeekOptions::default()).await.expect("it may look");
    let text = |at: usize| {
        let value = peeked[at].record.view().value.expect("a value").to_vec();
        String::from_utf8(value).expect("text")
    };
    assert_eq!((peeked.len(), text(0), text(5)), (6, "v0".to_owned(), "v5".to_owned()));
    broker.delete_record(group, 0, 2).await.expect("it is there");
    assert_eq!(broker.purge(group).await, Ok(5));
    broker.seek(group, SeekTo::Start).await.expect("it may go back");
    let sought = async || {
        let progress = broker.shards().lease_progress(group, &[0]).await.expect("known");
        progress[0].is_some_and(|it| it.floor == 0)
    };
    wait_for(sought, || "it goes back".to_owned()).await;
    broker.seek(group, SeekTo::Offsets(vec![(0, 4)])).await.expect("it may go on");
    let session = broker.lease_session();
    let taken = take(&session, group, 9, SOON).await;
    assert_eq!(texts(&taken), values(4..6));
    let history = broker.record_history(cluster.partition(0), 4, vec![group]).await;
    assert!(history.standings.is_some(), "the leader says where it stands");
    assert_eq!(history.silent, [0; 0]);
    assert!(!history.events.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_redriven() {
    let cluster = Cluster::start_of(4, 1, &[("dead.letter.topic", "letters")]).await;
    let outsider = cluster.outsider(0);
    let broker = cluster.broker(outsider);
    let letters = NewTopic {
        name: "letters".to_owned(),
        uuid: broker.entropy().uuid(),
        partitions: 3,
        config: Default::default(),
    };
    let letters = broker.create_topic(letters).await.expect("it is new");
    let made = broker.create_lease_group(letters, "main".into(), Vec::new(), Default::default());
    let of_letters = made.await.expect("it is new");
    cluster.append(0, &values(0..3)).await;
    let mut consumer = cluster.consume(outsider, ConsumeOptions::default()).await;
    let some = consumer.next(3).await;
    for result in consumer.settle(&some, Settlement::Reject).await {
        result.expect("it is rejected");
    }
    let waiting = async || {
        let counters = broker.counters(of_letters).await;
        counters.is_some_and(|it| it.ready == 3)
    };
    wait_for(waiting, || "three dead letters".to_owned()).await;
    let peeked = broker.peek(of_letters, PeekOptions::default()).await.expect("it may look");
    let record = peeked[0].record.view();
    let topic = record.headers.last(headers::DEATH_TOPIC.as_bytes()).flatten();
    assert_eq!(topic.map(<[u8]>::to_vec), Some(b"work".to_vec()));
    let redriven = broker.redrive(of_letters, RedriveSelection::All, RedriveTo::Source).await;
    assert_eq!(redriven.expect("they go back").moved, 3);
    let again = consumer.next(3).await;
    let mut again = texts(&again);
    again.sort_unstable();
    assert_eq!(again, values(0..3));
    let _ = consumer.some(Duration::from_millis(1)).await;
}
