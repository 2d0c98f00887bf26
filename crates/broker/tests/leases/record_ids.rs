//! Duplicates of records with an id, in topics with `dedup.window.ms`: a record that is sent twice is delivered
//! once, whatever happened to the first copy.

use std::path::Path;
use std::sync::Arc;

use base::{Level, Levels, PartitionId, headers};
use broker::level::{LevelDocument, NAME, SPACE};
use broker::{Broker, BrokerOptions, Settlement};
use futures_util::FutureExt;
use record::Compression;
use world::{ManualClock, SimulatedDisk, World};

use crate::harness::*;

const WINDOW: [(&str, &str); 2] = [("dedup.window.ms", "60000"), ("retention.settled", "true")];

fn id(id: &str) -> TestRecord {
    new(id).header(headers::ID, id)
}

impl Node {
    async fn is_copy(&self, topic: base::TopicId, record: TestRecord) -> bool {
        self.try_append(topic, &[record]).await.expect("taken or recognised").duplicate
    }
}

/// Takes and settles all ready records, and waits until they are deleted.
async fn work_off(node: &Node, topic: base::TopicId, group: base::LeaseGroupId) -> Vec<String> {
    let session = node.broker.lease_session();
    let taken = take_all(&session, group).await;
    settle(&session, &taken, Settlement::Accept).await;
    node.wait_for_depth(group, 0).await;
    let partition = PartitionId::new(topic, 0);
    let is_gone = async || node.live_bytes(partition).await == 0;
    wait_for(is_gone, || "deletion of what is settled".to_owned()).await;
    texts(&taken)
}

async fn restarted(node: Node, disk: &SimulatedDisk) -> Node {
    let now_ms = node.broker.clock().now_ms();
    node.broker.shutdown().await;
    drop(node);
    open_at(Arc::new(disk.clone()), Path::new("/data"), now_ms).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settled_job_sent_again_is_not_delivered_after_restarts_and_elections() {
    let disk = SimulatedDisk::new();
    let mut node = open(&disk).await;
    let topic = node.topic("jobs", 1, &WINDOW).await;
    let group = node.group(topic, &[]).await;
    for round in 0..6 {
        let job = format!("job {round}");
        assert!(!node.is_copy(topic, id(&job)).await);
        assert_eq!(work_off(&node, topic, group).await, [job]);
        if round % 2 == 0 {
            node = restarted(node, &disk).await;
        } else {
            node.broker.reelect().await.expect("it is elected");
        }
        for former in 0..=round {
            assert!(node.is_copy(topic, id(&format!("job {former}"))).await, "job {former}");
        }
    }
    assert!(work_off(&node, topic, group).await.is_empty());
    node.clock.advance_ms(60_001);
    assert!(!node.is_copy(topic, id("job 0")).await, "its window is over");
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn window_counts_the_arrival_and_not_the_timestamp_of_the_producer() {
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let topic = node.topic("old", 1, &WINDOW[..1]).await;
    // Stamped long before the window, as by a replay.
    let replayed = || id("a").at(START_MS - 3_600_000);
    let ahead = || id("b").at(START_MS + 3_600_000);
    assert!(!node.is_copy(topic, replayed()).await && !node.is_copy(topic, ahead()).await);
    let node = restarted(node, &disk).await;
    assert!(node.is_copy(topic, replayed()).await && node.is_copy(topic, ahead()).await);
    node.clock.advance_ms(60_001);
    let node = restarted(node, &disk).await;
    assert!(!node.is_copy(topic, replayed()).await && !node.is_copy(topic, ahead()).await);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topic_with_too_many_ids_forgets_the_oldest_arrivals_and_counts_them() {
    let disk = SimulatedDisk::new();
    let node = open(&disk).await;
    let config = [("dedup.window.ms", "60000"), ("dedup.ids.max", "3")];
    let topic = node.topic("few", 1, &config).await;
    for number in 0..5 {
        node.clock.advance_ms(1);
        assert!(!node.is_copy(topic, id(&number.to_string())).await);
    }
    let node = restarted(node, &disk).await;
    let vitals = |node: &Node| {
        let vitals = node.broker.vitals();
        let of_shards = vitals.shards.iter().map(|shard| shard.record_ids);
        of_shards.fold((0, 0, 0), |sum, it| {
            (sum.0 + it.ids, sum.1 + it.forgotten_early, sum.2 + it.windows_cut)
        })
    };
    assert_eq!(vitals(&node), (3, 2, 1));
    for kept in ["2", "3", "4"] {
        assert!(node.is_copy(topic, id(kept)).await);
    }
    assert!(!node.is_copy(topic, id("0")).await);
    // An idle topic forgets its ids, too.
    node.clock.advance_ms(70_000);
    wait_for(async || vitals(&node) == (0, 3, 0), || "an empty window".to_owned()).await;
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_too_many_ids_forgets_the_oldest_arrivals_of_all_topics() {
    let node = open(&SimulatedDisk::new()).await;
    let budget = ("dedup.memory.max.bytes".to_owned(), (100 * 40).to_string());
    node.broker.set_node_config([budget].into()).await.expect("set");
    let first = node.topic("first", 1, &WINDOW[..1]).await;
    let second = node.topic_beside(first, "second", 1, &WINDOW[..1]).await;
    for (topic, from) in [(first, 0), (second, 100), (first, 200)] {
        for number in from..from + 100 {
            node.clock.advance_ms(1);
            node.append(topic, &[id(&number.to_string())]).await;
        }
    }
    let held = async || {
        let ids: u64 = node.broker.vitals().shards.iter().map(|it| it.record_ids.ids).sum();
        ids <= 100
    };
    wait_for(held, || "a budget that is kept".to_owned()).await;
    assert!(node.is_copy(first, id("299")).await);
    assert!(!node.is_copy(second, id("100")).await && !node.is_copy(first, id("0")).await);
    node.broker.shutdown().await;
}

/// Decompressing such a batch takes a tenth of a second and more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append_does_not_wait_for_the_ids_of_a_large_batch() {
    let node = open(&SimulatedDisk::new()).await;
    let once = node.topic("once", 1, &WINDOW[..1]).await;
    let other = node.topic_beside(once, "other", 1, &[]).await;
    let record = |number: u32| new("v".repeat(2_000)).header(headers::ID, number);
    let records: Vec<_> = (0..20_000).map(record).collect();
    // As sent by another node, without the ids.
    let large = batch(PartitionId::new(once, 0), Compression::Zstd, &records);
    let mut large = node.broker.append(vec![large]);
    node.append(other, &values(1)).await;
    assert!((&mut large).now_or_never().is_none(), "the other append waited for it");
    assert!(!large.await.remove(0).expect("taken").duplicate);
    assert!(node.is_copy(once, record(19_999)).await);
    node.broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_learned_below_the_level_are_stored_once_it_is_raised() {
    let disk = SimulatedDisk::new();
    let at = |now_ms: i64, levels: Levels| {
        let disk = disk.clone();
        async move {
            let clock = Arc::new(ManualClock::new(now_ms));
            let options = BrokerOptions {
                housekeeping_interval: std::time::Duration::from_millis(10),
                shards: Some(crate::SHARDS),
                levels,
                ..BrokerOptions::default()
            };
            let world = World::on(Arc::new(disk)).with_clock(Arc::clone(&clock) as _);
            let broker = Broker::open(world, Path::new("/data"), options).await.expect("opens");
            Node { broker, clock }
        }
    };
    let former = Levels { max: Level(6), ..Levels::OURS };
    let node = at(START_MS, former).await;
    let topic = node.topic("jobs", 1, &WINDOW).await;
    let group = node.group(topic, &[]).await;
    node.append(topic, &[id("a"), id("b")]).await;
    node.broker.shutdown().await;
    drop(node);

    // The next version learns them from the log.
    let node = at(START_MS + 1_000, Levels::OURS).await;
    assert!(node.is_copy(topic, id("a")).await);
    assert!(!node.is_copy(topic, id("c")).await);
    assert_eq!(work_off(&node, topic, group).await, ["a", "b", "c"]);
    raise(&node.broker, Level::RECORD_IDS).await;
    let stored =
        async || node.broker.vitals().shards.iter().map(|it| it.record_ids.ids).sum::<u64>() == 3;
    wait_for(stored, || "ids in the state".to_owned()).await;
    assert!(!node.is_copy(topic, id("d")).await);
    node.broker.shutdown().await;
    drop(node);

    let node = at(START_MS + 2_000, Levels::OURS).await;
    for known in ["a", "b", "c", "d"] {
        assert!(node.is_copy(topic, id(known)).await, "{known}");
    }
    assert_eq!(work_off(&node, topic, group).await, ["d"]);
    node.broker.shutdown().await;
}

/// Raises the cluster's level, as an operator does.
async fn raise(broker: &Broker, level: Level) {
    let body = serde_json::to_vec(&LevelDocument::of(level)).expect("written");
    broker.put_document(SPACE, NAME.to_owned(), body, None).await.expect("raised");
    wait_for(async || broker.level().now() >= level, || "the level".to_owned()).await;
}
