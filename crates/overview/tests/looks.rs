//! Looks at a running node.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{PartitionId, TopicId};
use broker::{AppendBatch, AppendError, Broker, BrokerOptions, CommitOffset, NewTopic};
use bytes::BytesMut;
use operations::family::{Effect, OperationError, OperationFamily};
use operations::overview::{
    GroupRow, Order, Overview, QueueRow, Rows, Table, TableQuery, TopicRow,
};
use overview::{COUNTED_AGAIN_AFTER, FORGOTTEN_AFTER, Host, Overviews, Process};
use record::{BatchBuilder, BatchHeader, BatchOptions};
use test_cluster::start_three;
use world::{Instant, ManualClock, SimulatedDisk, World};

const START_MS: i64 = 1_700_000_000_000;

async fn open() -> (Broker, Overviews) {
    let clock = Arc::new(ManualClock::new(START_MS + 60_000));
    let world = World::on(Arc::new(SimulatedDisk::new())).with_clock(clock);
    let options = BrokerOptions { shards: Some(2), ..BrokerOptions::default() };
    let broker = Broker::open(world, Path::new("/data"), options).await.expect("opens");
    let overviews = of(&broker);
    (broker, overviews)
}

fn of(broker: &Broker) -> Overviews {
    let host = Host {
        version: "0.0.0-test",
        started: Instant::now(),
        connections: gateway::Connections::default(),
        process: || Process { cpu_seconds: 1.0, resident_bytes: None },
    };
    Overviews::new(broker.clone(), host)
}

async fn topic(broker: &Broker, name: &str, partitions: u32) -> TopicId {
    let uuid = broker.entropy().uuid();
    let new = NewTopic { name: name.to_owned(), uuid, partitions, config: Default::default() };
    broker.create_topic(new).await.expect("it is new")
}

async fn append(broker: &Broker, topic: TopicId, partition: u32, records: usize) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for _ in 0..records {
        builder.push(START_MS, None, Some(b"value"), &[]).expect("a small record fits");
    }
    let built = builder.finish();
    loop {
        let bytes = BytesMut::from(&built[..]);
        let header = BatchHeader::parse(&bytes).expect("what was built can be read");
        let batch = AppendBatch::new(PartitionId::new(topic, partition), header, bytes);
        match broker.append_at_leaders(vec![batch]).await.remove(0) {
            Ok(_) => return,
            // Leadership may move to another node meanwhile.
            Err(AppendError::Unavailable(_)) => tokio::time::sleep(COUNTED_AGAIN_AFTER).await,
            Err(error) => panic!("it is not taken: {error}"),
        }
    }
}

fn look(table: Table, order: Order, filter: &str, rows_max: u32) -> TableQuery {
    TableQuery { table, order, filter: filter.to_owned(), rows_max }
}

fn topics(overview: &Overview) -> &[TopicRow] {
    match &overview.rows {
        Rows::Topics(rows) => rows,
        other => panic!("topics, not {other:?}"),
    }
}

fn queues(overview: &Overview) -> &[QueueRow] {
    match &overview.rows {
        Rows::Queues(rows) => rows,
        other => panic!("queues, not {other:?}"),
    }
}

fn groups(overview: &Overview) -> &[GroupRow] {
    match &overview.rows {
        Rows::Groups(rows) => rows,
        other => panic!("groups, not {other:?}"),
    }
}

/// There are more partitions than fit between two yields.
#[tokio::test]
async fn each_order_selects_the_first_of_many_topics() {
    let (broker, overviews) = open().await;
    let mut ids = Vec::new();
    for number in 0..130 {
        ids.push(topic(&broker, &format!("t-{number:03}"), 8).await);
    }
    for (number, records) in [(7, 5), (100, 9), (129, 2)] {
        append(&broker, ids[number], 3, records).await;
    }
    let group = broker.create_lease_group(ids[129], "main".into(), vec![], Default::default());
    group.await.expect("it is new");
    let ask = async |order, filter: &str, rows| {
        overviews.overview(look(Table::Topics, order, filter, rows)).await.expect("answers")
    };
    let names = |overview: &Overview| {
        topics(overview).iter().map(|row| row.topic.clone()).collect::<Vec<_>>()
    };
    let seen = ask(Order::Name, "", 2).await;
    assert_eq!(names(&seen), ["t-000", "t-001"]);
    assert_eq!((seen.matching, seen.totals.partitions), (130, 1_040));
    assert_eq!(seen.rates, None, "nobody looked before");
    assert_eq!(names(&ask(Order::Rate, "", 3).await), ["t-100", "t-007", "t-129"]);
    let seen = ask(Order::Backlog, "", 1).await;
    assert_eq!(names(&seen), ["t-129"]);
    let row = &topics(&seen)[0];
    assert_eq!((row.records, row.backlog, row.groups, row.partitions), (2, 2, 1, 8));
    assert!(row.bytes > 0);
    let seen = ask(Order::Name, "T-12", 5).await;
    assert_eq!((names(&seen).len(), seen.matching), (5, 10));
    assert_eq!(ask(Order::Name, "none", 5).await.matching, 0);
    broker.shutdown().await;
}

#[tokio::test]
async fn rates_cover_two_looks_and_expire() {
    let (broker, overviews) = open().await;
    let (one, other) = (topic(&broker, "one", 1).await, topic(&broker, "other", 1).await);
    append(&broker, other, 0, 100).await;
    let ask = async || {
        let look = look(Table::Topics, Order::Rate, "", 10);
        overviews.overview(look).await.expect("answers")
    };
    assert_eq!(ask().await.over_ms, None);
    append(&broker, one, 0, 10).await;
    // From here on nothing waits for the disk, and the test controls time.
    tokio::time::pause();
    tokio::time::advance(COUNTED_AGAIN_AFTER).await;
    let later = ask().await;
    assert_eq!(ask().await.over_ms, later.over_ms, "it is not counted again at once");
    let seconds = later.over_ms.expect("there was a look before") as f64 / 1_000.0;
    assert!(seconds >= COUNTED_AGAIN_AFTER.as_secs_f64());
    let row = &topics(&later)[0];
    assert_eq!((row.topic.as_str(), row.records), ("one", 10));
    let rate = row.records_in.expect("a rate");
    assert!((rate * seconds - 10.0).abs() < 0.5, "{rate} in {seconds}");
    let all = later.rates.expect("rates").records_in;
    assert!((all - rate).abs() < 1e-6, "{all}");
    assert_eq!(topics(&later)[1].records_in, Some(0.0));
    tokio::time::advance(FORGOTTEN_AFTER).await;
    assert_eq!(ask().await.over_ms, None, "that was long ago");
    tokio::time::resume();
    broker.shutdown().await;
}

#[tokio::test]
async fn queues_and_groups_report_backlog_and_age() {
    let (broker, overviews) = open().await;
    let (work, jobs) = (topic(&broker, "work", 2).await, topic(&broker, "jobs", 1).await);
    let mut made = Vec::new();
    for (topic, name) in [(work, "main"), (work, "idle"), (jobs, "main")] {
        let group = broker.create_lease_group(topic, name.into(), vec![], Default::default());
        made.push(group.await.expect("it is new"));
    }
    append(&broker, work, 0, 3).await;
    append(&broker, work, 1, 6).await;
    append(&broker, jobs, 0, 4).await;
    broker.purge(made[1]).await.expect("purged");
    broker.pause_lease_group(made[2], true).await.expect("paused");
    for (partition, offset) in [(0, 3), (1, 1)] {
        let id = PartitionId::new(work, partition);
        let commit = CommitOffset {
            partition: id,
            offset,
            leader_epoch: -1,
            metadata: String::new(),
            expire_ms: None,
        };
        let refused = broker.shards().commit_offsets("readers", vec![commit]).await;
        assert_eq!(refused, Ok(Vec::new()));
    }
    let ask = async |table, order, filter: &str| {
        overviews.overview(look(table, order, filter, 10)).await.expect("answers")
    };
    let seen = ask(Table::Queues, Order::Backlog, "").await;
    let shown: Vec<_> = queues(&seen)
        .iter()
        .map(|row| (&*row.topic, &*row.group, row.backlog, row.ready, row.paused))
        .collect();
    let expected = [
        ("work", "main", 9, Some(9), false),
        ("jobs", "main", 4, Some(4), true),
        ("work", "idle", 0, Some(0), false),
    ];
    assert_eq!(shown, expected);
    assert_eq!((seen.totals.waiting, seen.totals.ready), (13, Some(13)));
    let ages = |overview: &Overview| {
        queues(overview).iter().map(|row| row.age_seconds).collect::<Vec<_>>()
    };
    assert_eq!(ages(&seen), [Some(60.0), Some(60.0), Some(0.0)]);
    let seen = ask(Table::Queues, Order::Age, "JOB").await;
    assert_eq!((queues(&seen).len(), seen.matching), (1, 1));

    let seen = ask(Table::Groups, Order::Backlog, "read").await;
    let [row] = groups(&seen) else { panic!("one group, not {seen:?}") };
    assert_eq!((&*row.group, &*row.topic, row.partitions, row.backlog), ("readers", "work", 2, 5));
    assert_eq!(row.age_seconds, Some(60.0));
    let seen = ask(Table::Topics, Order::Backlog, "work").await;
    assert_eq!((topics(&seen)[0].backlog, topics(&seen)[0].groups), (9, 3));
    broker.shutdown().await;
}

#[tokio::test]
async fn inconsistent_looks_are_rejected() {
    let (broker, overviews) = open().await;
    for wrong in [
        look(Table::Topics, Order::Age, "", 1),
        look(Table::Topics, Order::Name, "", 0),
        look(Table::Queues, Order::Name, "", 501),
    ] {
        let refused = overviews.overview(wrong).await;
        assert!(matches!(refused, Err(OperationError::Invalid(_))), "{refused:?}");
    }
    let asked = br#"{"look":{"table":"groups","order":"age","filter":"","rows_max":3}}"#;
    assert_eq!(overviews.effect(asked), Effect::Look);
    let answer = overviews.carry_out(asked.to_vec()).await.expect("answers");
    serde_json::from_slice::<Overview>(&answer).expect("a document");
    let more = br#"{"look":{"table":"groups","order":"age","filter":"","rows_max":3,"x":1}}"#;
    assert_ne!(overviews.effect(more), Effect::Look);
    assert!(overviews.carry_out(more.to_vec()).await.is_err());
    broker.shutdown().await;
}

const SOON: Duration = Duration::from_secs(60);

/// Looks until the condition holds.
async fn eventually(overviews: &Overviews, is_so: impl Fn(&Overview) -> bool) -> Overview {
    let looking = async {
        loop {
            let look = look(Table::Topics, Order::Name, "", 10);
            let seen = overviews.overview(look).await.expect("answers");
            if is_so(&seen) {
                return seen;
            }
            // A new look within this time would return the same counts.
            tokio::time::sleep(COUNTED_AGAIN_AFTER).await;
        }
    };
    tokio::time::timeout(SOON, looking).await.expect("soon")
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_node_reports_totals_leaders_and_lost_nodes() {
    let mut nodes = tokio::time::timeout(SOON, start_three()).await.expect("they start");
    for node in &nodes {
        tokio::time::timeout(SOON, node.broker.ready()).await.expect("soon").expect("ready");
    }
    let topic = topic(&nodes[0].broker, "t", 3).await;
    for partition in 0..3 {
        append(&nodes[0].broker, topic, partition, 2).await;
    }
    let overviews = of(&nodes[2].broker);
    let led = |seen: &Overview| {
        let mut led: Vec<u32> = seen.nodes.iter().flat_map(|node| node.leads.clone()).collect();
        led.sort_unstable();
        led == [0, 1, 2, 3]
    };
    let seen =
        eventually(&overviews, |seen| led(seen) && topics(seen).iter().any(|row| row.records >= 6))
            .await;
    assert_eq!(seen.nodes.iter().map(|node| node.node).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(seen.nodes.iter().all(|node| node.live), "{seen:?}");
    assert_eq!((seen.node.node, seen.alarms.len()), (3, 0), "{seen:?}");
    nodes.remove(1).end().await;
    let seen = eventually(&overviews, |seen| !seen.nodes[1].live && led(seen)).await;
    assert!(seen.alarms.contains(&"node 2 is not connected".to_owned()), "{seen:?}");
    drop(overviews);
    for node in nodes {
        node.end().await;
    }
}
