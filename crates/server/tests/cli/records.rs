//! `postroad produce` and `postroad consume`.

use serde_json::{Value, json};

use crate::harness::{Broker, eventually, seq};

fn with_topic(partitions: &str) -> Broker {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t", "-p", partitions]).ok();
    broker
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON a line")).collect()
}

#[test]
fn lines_go_in_and_come_out_in_order_with_every_compression() {
    let broker = with_topic("1");
    let mut expected = String::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let lines = seq(1..=2000).replace('\n', &format!(" {codec}\n"));
        broker.feed(&["produce", "t", "-z", codec], &lines).ok();
        expected += &lines;
    }
    assert_eq!(broker.run(&["consume", "t"]).ok(), expected);
}

#[test]
fn every_level_of_acknowledgement_stores_the_records() {
    let broker = with_topic("2");
    for acks in ["0", "1", "all"] {
        broker.feed(&["produce", "t", "--acks", acks], seq(1..=100)).ok();
    }
    eventually("all are there", || broker.run(&["consume", "t"]).ok().lines().count() == 300);
}

#[test]
fn many_records_over_many_partitions_are_all_there_once() {
    let broker = with_topic("16");
    broker.feed(&["produce", "t"], seq(1..=200_000)).ok();
    let mut read: Vec<u32> =
        broker.run(&["consume", "t"]).ok().lines().map(|line| line.parse().expect("one")).collect();
    read.sort_unstable();
    assert_eq!(read, (1..=200_000).collect::<Vec<u32>>());
}

#[test]
fn keys_headers_and_separators_are_kept() {
    let broker = with_topic("1");
    broker.feed(&["produce", "t", "-s", ":", "-H", "source=test"], "k:v:w\nl:x\n").ok();
    assert_eq!(broker.run(&["consume", "t", "-s", "="]).ok(), "k=v:w\nl=x\n");
    assert_eq!(broker.run(&["consume", "t", "-H", "-n", "1"]).ok(), "source=test\tv:w\n");
    broker.feed(&["produce", "t", "-k", "fixed"], "y\n").ok();
    let last = broker.run(&["consume", "t", "--from", "-1", "-s", "\\t"]).ok();
    assert_eq!(last, "fixed\ty\n");
}

#[test]
fn one_key_stays_in_one_partition() {
    let broker = with_topic("8");
    for value in 1..=3 {
        broker.feed(&["produce", "t", "-s", ":"], format!("a:{value}\nb:{value}\n")).ok();
    }
    let records = json_lines(&broker.run(&["consume", "t", "-o", "json"]).ok());
    for key in ["a", "b"] {
        let of_key: Vec<_> = records.iter().filter(|record| record["key"] == key).collect();
        let values: Vec<_> = of_key.iter().map(|record| record["value"].as_str()).collect();
        assert_eq!(values, [Some("1"), Some("2"), Some("3")]);
        assert!(of_key.iter().all(|record| record["partition"] == of_key[0]["partition"]));
    }
}

#[test]
fn produce_accepts_the_json_output_of_consume() {
    let broker = with_topic("2");
    broker.run(&["topic", "create", "copy", "-p", "2"]).ok();
    let lines = [
        json!({"key": "k", "value": "v", "timestamp_ms": 1_700_000_000_000_u64,
               "headers": [{"name": "n", "value": "x"}, {"name": "none", "value": null}]}),
        json!({"key": {"base64": "/wA="}, "value": null}),
        json!({"value": "quote \" newline \n unicode ü"}),
    ];
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    broker.feed(&["produce", "t", "-p", "1", "--format", "json"], input).ok();
    let original = broker.run(&["consume", "t", "--format", "json"]).ok();
    broker.feed(&["produce", "copy", "--format", "json", "--keep-partitions"], &original).ok();
    let copied = broker.run(&["consume", "copy", "--format", "json"]).ok();
    assert_eq!(copied.replace("\"topic\":\"copy\"", "\"topic\":\"t\""), original);
    let records = json_lines(&original);
    assert_eq!(records[0]["timestamp_ms"], 1_700_000_000_000_u64);
    assert_eq!(records[0]["headers"], lines[0]["headers"]);
    assert_eq!(records[1]["key"], lines[1]["key"]);
    assert_eq!(records[2]["value"], lines[2]["value"]);
    assert!(records.iter().all(|record| record["partition"] == 1));
}

#[test]
fn wrong_line_is_named_and_earlier_lines_are_stored() {
    let broker = with_topic("1");
    let input = "{\"value\":\"a\"}\n{\"value\":\"b\"}\n{\"vaule\":\"c\"}\n";
    let said = broker.feed(&["produce", "t", "--format", "json"], input);
    said.fails(1, &["line 3", "vaule", "2 lines before it were sent"]);
    assert_eq!(broker.run(&["consume", "t"]).ok(), "a\nb\n");
    let said = broker.feed(&["produce", "t", "-s", ":"], "a:1\nb\n");
    said.fails(1, &["line 2", "no \":\" between key and value"]);
}

#[test]
fn oversized_record_is_rejected_with_the_remedy() {
    let broker = with_topic("1");
    let said = broker.feed(&["produce", "t"], "x".repeat(2 << 20));
    said.fails(1, &["cannot append to t/0", "max.message.bytes"]);
    broker.run(&["topic", "alter", "t", "-c", "max.message.bytes=4194304"]).ok();
    broker.feed(&["produce", "t"], "x".repeat(2 << 20)).ok();
    assert_eq!(broker.run(&["consume", "t"]).ok().len(), (2 << 20) + 1);
}

#[test]
fn reading_begins_at_the_given_position() {
    let broker = with_topic("1");
    broker.feed(&["produce", "t"], seq(1..=10)).ok();
    let from = |position: &str| broker.run(&["consume", "t", "--from", position]).ok();
    assert_eq!(from("earliest"), seq(1..=10));
    assert_eq!(from("latest"), "");
    assert_eq!(from("7"), seq(8..=10));
    assert_eq!(from("-2"), seq(9..=10));
    assert_eq!(from("1h ago"), seq(1..=10));
    assert_eq!(from("now"), "");
    assert_eq!(broker.run(&["consume", "t", "-n", "3"]).ok(), seq(1..=3));
}

#[test]
fn reading_may_be_of_one_partition() {
    let broker = with_topic("3");
    broker.feed(&["produce", "t", "-p", "0"], "zero\n").ok();
    broker.feed(&["produce", "t", "-p", "2"], "two\n").ok();
    assert_eq!(broker.run(&["consume", "t", "-p", "2"]).ok(), "two\n");
    broker.run(&["consume", "t", "-p", "3"]).fails(1, &["has no partition 3"]);
}

#[test]
fn following_prints_new_records_and_ends_cleanly_on_ctrl_c() {
    let broker = with_topic("2");
    let reader = broker.spawn(&["consume", "t", "-f"]);
    let mut writer = broker.spawn(&["produce", "t"]);
    // A slow pipe: each line arrives before the next is written.
    for line in ["one", "two", "three"] {
        writer.write(&format!("{line}\n"));
        assert_eq!(reader.line(), line);
    }
    writer.end().ok();
    assert_eq!(reader.interrupt().ok(), "");
}

#[test]
fn closed_output_ends_consume_quietly() {
    let broker = with_topic("1");
    broker.feed(&["produce", "t"], seq(1..=200_000)).ok();
    let mut child = broker
        .command(&["consume", "t"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
