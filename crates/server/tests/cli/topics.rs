//! `postroad topic`.

use crate::harness::{Broker, seq};

#[test]
fn a_topic_is_made_listed_described_altered_and_deleted() {
    let broker = Broker::start();
    assert!(broker.run(&["topic", "list"]).ok().contains("no topics yet"));
    for internal in ["_postroad.trace", "_postroad.audit"] {
        let creates = "the broker creates it with the first event";
        broker.run(&["topic", "create", internal]).fails(1, &[internal, creates]);
        broker
            .run(&["consume", internal])
            .fails(1, &[&format!("no topic {internal} yet"), creates]);
    }

    let made = broker.run(&["topic", "create", "orders", "-p", "3", "-c", "retention.ms=3600000"]);
    assert_eq!(made.ok(), "created topic orders with 3 partitions\n");
    broker.feed(&["produce", "orders", "-p", "1"], seq(1..=5)).ok();

    let listed = broker.run(&["topic", "list", "-o", "json"]).json();
    assert_eq!(listed[0]["topic"], "orders");
    assert_eq!(listed[0]["partitions"], 3);
    assert_eq!(listed[0]["records"], 5);
    assert!(listed[0]["bytes"].as_u64() > Some(0));

    let text = broker.run(&["topic", "describe", "orders"]).ok();
    assert!(text.contains("orders: 3 partitions, 5 records"), "{text}");
    assert!(text.contains("retention.ms  3600000  (1h)  topic"), "{text}");

    let altered = ["topic", "alter", "orders", "-p", "5", "-c", "cleanup.policy=compact"];
    broker.run(&altered).ok();
    broker.run(&["topic", "alter", "orders", "--unset", "retention.ms"]).ok();
    let described = broker.run(&["topic", "describe", "orders", "-o", "json"]).json();
    assert_eq!(described[0]["partitions"].as_array().map(Vec::len), Some(5));
    assert_eq!(described[0]["partitions"][1]["end"], 5);
    let configs = described[0]["configs"].as_array().expect("a list");
    assert!(configs.iter().any(|config| config["name"] == "cleanup.policy"
        && config["value"] == "compact"
        && config["source"] == "topic"));
    assert!(!configs.iter().any(|config| config["name"] == "retention.ms"));

    assert_eq!(broker.run(&["topic", "delete", "orders"]).ok(), "deleted topic orders\n");
    assert_eq!(
        broker.run(&["topic", "list", "-o", "json"]).json().as_array().map(Vec::len),
        Some(0)
    );
}

#[test]
fn creating_or_deleting_twice_is_an_error_unless_permitted() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "a", "b"]).ok();
    broker.run(&["topic", "create", "a"]).fails(1, &["cannot create topic a", "exists"]);
    let found = broker.run(&["topic", "create", "a", "--if-not-exists"]).ok();
    assert_eq!(found, "found topic a with 1 partition\n");
    broker.run(&["topic", "delete", "a", "b"]).ok();
    broker.run(&["topic", "delete", "a"]).fails(1, &["there is no such topic"]);
    broker.run(&["topic", "delete", "a", "--if-exists"]).ok();
}

#[test]
fn invalid_topic_is_rejected_with_the_reason() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "a b"]).fails(1, &["cannot create topic a b"]);
    let unknown = ["topic", "create", "a", "-c", "retention.mss=1"];
    broker.run(&unknown).fails(1, &["retention.mss"]);
    broker.run(&["topic", "create", "a", "-p", "4"]).ok();
    broker.run(&["topic", "alter", "a", "-p", "2"]).fails(1, &["cannot add partitions", "4"]);
    broker.run(&["topic", "describe", "nope"]).fails(1, &["there is no topic nope"]);
}
