//! `postroad serve --shards`: several journals in one node.

use crate::harness::{Broker, run, seq, serve_with_shards};

/// What each shard holds, and how many partitions.
fn shards(broker: &Broker) -> Vec<(String, u64)> {
    let listed = broker.run(&["shard", "list", "--output", "json"]).json();
    let shards = listed.as_array().expect("a list").iter().map(|shard| {
        let holds = shard["holds"].as_str().expect("a word").to_owned();
        (holds, shard["partitions"].as_u64().expect("a number"))
    });
    shards.collect()
}

#[test]
fn a_node_gets_more_shards_and_never_fewer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_with(serve_with_shards(&data, 1), &data);
    broker.run(&["topic", "create", "old", "--partitions", "3"]).ok();
    broker.feed(&["produce", "old"], seq(1..=100)).ok();
    assert_eq!(shards(&broker), [("catalog".into(), 0), ("records".into(), 3)]);
    broker.terminate();

    let broker = Broker::start_with(serve_with_shards(&data, 3), &data);
    broker.run(&["topic", "create", "new", "--partitions", "6"]).ok();
    let listed = shards(&broker);
    let of_new: Vec<u64> = listed[1..].iter().map(|(_, partitions)| *partitions).collect();
    assert_eq!(of_new, [3 + 2, 2, 2]);
    let table = broker.run(&["shard", "list"]).ok();
    assert!(table.starts_with("SHARD") && table.contains("catalog"), "{table}");
    for topic in ["old", "new"] {
        broker.feed(&["produce", topic], seq(101..=200)).ok();
    }
    broker.kill();

    let said = run(serve_with_shards(&data, 2), b"");
    said.fails(2, &["has 3 shards", "cannot have fewer"]);
    let said = run(serve_with_shards(&data, 0), b"");
    said.fails(1, &["--shards", "is not between 1 and 256"]);

    let broker = Broker::start_on(&data);
    assert_eq!(shards(&broker).len(), 4);
    let mut read: Vec<u32> = Vec::new();
    for topic in ["old", "new"] {
        let lines = broker.run(&["consume", topic]).ok();
        read.extend(lines.lines().map(|line| line.parse::<u32>().expect("a number")));
    }
    read.sort_unstable();
    let expected: Vec<u32> = (1..=100).chain((101..=200).flat_map(|number| [number; 2])).collect();
    assert_eq!(read, expected);
}
