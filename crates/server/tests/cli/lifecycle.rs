//! `postroad serve` from start to end, and the survival of its data.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{Broker, eventually, postroad, run, seq, serve, serve_at};

#[test]
fn start_up_line_has_data_directory_ports_and_durability() {
    let broker = Broker::start();
    let line = &broker.announcement;
    assert!(line.starts_with(concat!("postroad ", env!("CARGO_PKG_VERSION"), ": data ")), "{line}");
    assert!(line.contains("kafka 127.0.0.1:") && line.contains("durability fsync"), "{line}");
    assert!(line.contains(", log-in required: "), "{line}");
    assert!(!broker.address.ends_with(":0"), "{line}");
}

#[test]
fn sigterm_drains_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_on(&data);
    broker.run(&["topic", "create", "t"]).ok();
    broker.feed(&["produce", "t"], seq(1..=1000)).ok();
    let follower = broker.spawn(&["consume", "t", "-f"]);
    assert_eq!(follower.line(), "1");
    let began = Instant::now();
    let (status, log) = broker.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("stopped"), "{log}");
    assert!(began.elapsed() < Duration::from_secs(15), "a follower must not hold it up");
    follower.interrupt();
    let broker = Broker::start_on(&data);
    assert_eq!(broker.run(&["consume", "t"]).ok(), seq(1..=1000));
}

#[test]
fn clients_survive_a_leader_election() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t"]).ok();
    broker.feed(&["produce", "t"], seq(1..=10)).ok();
    let follower = broker.spawn(&["consume", "t", "-f"]);
    assert_eq!(follower.line(), "1");
    let said = broker.run(&["shard", "elect"]).ok();
    assert!(said.starts_with("term ") && said.contains(" began after "), "{said}");
    let said = broker.run(&["shard", "elect", "--output", "json"]).ok();
    let election: serde_json::Value = serde_json::from_str(&said).expect("a document");
    assert!(election["term"].as_u64() > Some(2) && election["took_ms"].is_number(), "{said}");
    broker.feed(&["produce", "t"], seq(11..=20)).ok();
    for number in 2..=20 {
        assert_eq!(follower.line(), number.to_string());
    }
    follower.interrupt();
}

#[test]
fn kill_nine_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let mut expected = String::new();
    for round in 0..3_u32 {
        let broker = Broker::start_on(&data);
        broker.run(&["topic", "create", "t", "--if-not-exists"]).ok();
        let lines = seq(round * 1000 + 1..=round * 1000 + 1000);
        broker.feed(&["produce", "t"], &lines).ok();
        expected += &lines;
        broker.run(&["consume", "t", "-g", "app"]).ok();
        broker.kill();
    }
    let broker = Broker::start_on(&data);
    assert_eq!(broker.run(&["consume", "t"]).ok(), expected);
    assert_eq!(broker.run(&["consume", "t", "-g", "app"]).ok(), "", "commits survive as well");
}

#[test]
fn a_producer_waits_out_a_restart_and_stores_each_record_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_on(&data);
    broker.run(&["topic", "create", "t"]).ok();
    let address = broker.address.clone();
    let mut producer = broker.spawn(&["produce", "t"]);
    producer.write("before\n");
    while broker.run(&["consume", "t"]).ok().is_empty() {}
    broker.kill();
    producer.write("after\n");
    let mut again = serve_at(&data, &address);
    let mut child = again.stdout(Stdio::null()).spawn().expect("the binary starts");
    producer.end().ok();
    let mut consume = postroad();
    consume.args(["consume", "t", "-b", &address]);
    let read = run(consume, b"").ok();
    let _ = child.kill();
    let _ = child.wait();
    assert_eq!(read, "before\nafter\n");
}

#[test]
fn a_member_of_a_group_waits_out_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_on(&data);
    broker.run(&["topic", "create", "t"]).ok();
    let address = broker.address.clone();
    broker.feed(&["produce", "t"], "before\n").ok();
    let member = broker.spawn(&["consume", "t", "-f", "-g", "app"]);
    assert_eq!(member.line(), "before");
    broker.kill();
    let broker = Broker::start_with(serve_at(&data, &address), &data);
    broker.feed(&["produce", "t"], "after\n").ok();
    // At least once: the last printed records may not have been committed before the crash.
    let mut line = member.line();
    while line == "before" {
        line = member.line();
    }
    assert_eq!(line, "after");
    // The new process does not know the member, which continues until a heartbeat is rejected. Its commits are rejected
    // until it has rejoined.
    eventually("the member has joined again and committed", || {
        let said = broker.run(&["group", "describe", "app", "-o", "json"]);
        said.code == Some(0) && said.json()[0]["lag_records"] == 0
    });
    member.interrupt().ok();
    let report = broker.run(&["group", "describe", "app", "-o", "json"]).json();
    assert_eq!((&report[0]["lag_records"], &report[0]["state"]), (&0.into(), &"Empty".into()));
}

#[test]
fn a_second_instance_on_the_same_data_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let _first = Broker::start_on(&data);
    let mut second = postroad();
    second.args(["serve", "--kafka", "127.0.0.1:0", "--data"]).arg(&data);
    run(second, b"").fails(2, &["is in use by process", "--data"]);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let first = Broker::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut second = postroad();
    second.args(["serve", "--kafka", &first.address, "--data"]).arg(folder.path());
    run(second, b"").fails(2, &[&format!("cannot listen on {}", first.address), "--kafka"]);
    let mut third = postroad();
    third.args(["serve", "--kafka", "127.0.0.1:0", "--amqp", &first.address, "--data"]);
    third.arg(folder.path());
    run(third, b"").fails(2, &[&format!("cannot listen on {}", first.address), "--amqp"]);
}

#[test]
fn all_ports_that_are_taken_are_named_at_once() {
    let first = Broker::start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut second = postroad();
    second.args(["serve", "--kafka", &first.address, "--http", &first.address, "--data"]);
    second.args(["data", "--amqp", "off"]).current_dir(folder.path());
    let taken = [format!("{} (--kafka)", first.address), format!("{} (--http)", first.address)];
    let kept = "postroad serve --data data --amqp off --kafka 127.0.0.1:";
    run(second, b"").fails(2, &[&taken[0], &taken[1], kept]);
}

#[test]
fn suggested_ports_are_free_and_unlike() {
    let bind = |port| TcpListener::bind(("127.0.0.1", port));
    // A port whose obvious substitute is busy, too.
    let (low, _high) = (10_000..20_000)
        .find_map(|port| {
            let low = bind(port).ok()?;
            Some((low, bind(port + 10_000).ok()?))
        })
        .expect("two free ports");
    let taken = low.local_addr().expect("is bound");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut second = postroad();
    second.args(["serve", "--kafka", "127.0.0.1:0", "--amqp"]).arg(taken.to_string());
    second.arg("--http").arg(taken.to_string()).current_dir(folder.path());
    let refused = run(second, b"").err;
    let (_, command) = refused.split_once("postroad serve ").expect("a command");
    let ports: Vec<u16> = command
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("127.0.0.1:")?.parse().ok())
        .collect();
    assert_eq!(ports.len(), 3, "{command}");
    assert_eq!(ports[0], 0, "the given address that is not taken stays: {command}");
    assert_ne!(ports[1], ports[2], "{command}");
    assert!(ports[1..].iter().all(|port| *port > taken.port() + 10_000), "{command}");
    assert!(ports[1..].iter().all(|port| bind(*port).is_ok()), "{command}");
}

#[test]
fn settings_come_from_flags_environment_and_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = folder.path().join("postroad.toml");
    let data = folder.path().join("data");
    std::fs::write(&config, "default-partitions = 7\n").expect("written");
    let mut command = serve(&data);
    command.env("POSTROAD_CONFIG", &config);
    let broker = Broker::start_with(command, &data);
    assert_eq!(broker.run(&["topic", "create", "t"]).ok(), "created topic t with 7 partitions\n");
}
