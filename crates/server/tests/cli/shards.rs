//! `postroad serve --shards`: several journals in one node.

use crate::harness::{Broker, run, seq, serve_with_shards};

/// Contents and number of partitions of each shard.
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

/// The shard of each partition, from the last line of a move.
fn moved(broker: &Broker, arguments: &[&str]) -> String {
    let mut command = vec!["topic", "move"];
    command.extend_from_slice(arguments);
    broker.run(&command).ok()
}

#[test]
fn partitions_move_to_another_shard_and_keep_their_records() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_with(serve_with_shards(&data, 3), &data);
    broker.run(&["topic", "create", "orders", "--partitions", "6"]).ok();
    broker.feed(&["produce", "orders"], seq(1..=500)).ok();
    let said = moved(&broker, &["orders", "--partitions", "3-5", "--to-shard", "3"]);
    let expected: String =
        (3..=5).map(|it| format!("partition {it} of topic orders is in shard 3\n")).collect();
    assert_eq!(said, expected);
    let of_shards: Vec<u64> = shards(&broker)[1..].iter().map(|(_, count)| *count).collect();
    assert_eq!(of_shards, [1, 1, 4]);
    broker.feed(&["produce", "orders"], seq(501..=1_000)).ok();
    let again = moved(&broker, &["orders", "-p", "3", "--to-shard", "1", "-o", "json"]);
    let again: serde_json::Value = serde_json::from_str(&again).expect("a document");
    assert_eq!(again["partitions"], serde_json::json!([{ "partition": 3, "shard": 1 }]));

    let to = |shard| ["topic", "move", "orders", "--partitions", "0-9", "--to-shard", shard];
    broker.run(&to("3")).fails(1, &["no partition 6", "postroad topic describe orders"]);
    broker.run(&to("4")).fails(1, &["no shard 4 with records", "postroad shard list"]);
    let unknown = ["topic", "move", "nope", "--partitions", "0", "--to-shard", "1"];
    broker.run(&unknown).fails(1, &["there is no topic nope"]);
    broker.run(&["topic", "move", "orders", "--partitions", "0"]).fails(1, &["--to-shard"]);
    broker.run(&["topic", "move", "orders", "--partitions", "3", "--cancel"]).ok();
    broker.run(&["queue", "declare", "jobs"]).ok();
    let queue = ["topic", "move", "jobs", "--partitions", "0", "--to-shard", "2"];
    broker.run(&queue).fails(1, &["topic jobs is a queue"]);
    broker.kill();

    let broker = Broker::start_on(&data);
    let lines = broker.run(&["consume", "orders"]).ok();
    let mut read: Vec<u32> = lines.lines().map(|it| it.parse().expect("a number")).collect();
    read.sort_unstable();
    assert_eq!(read, (1..=1_000).collect::<Vec<_>>());
}
