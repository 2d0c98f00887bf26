//! `postroad group`, and `postroad consume --group`.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Broker, eventually, seq};

fn with_records(partitions: &str) -> Broker {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t", "-p", partitions]).ok();
    broker.feed(&["produce", "t", "-p", "0"], seq(1..=100)).ok();
    broker
}

#[test]
fn group_resumes_at_its_committed_offset() {
    let broker = with_records("1");
    let read = |count: &str| broker.run(&["consume", "t", "-g", "app", "-n", count]).ok();
    assert_eq!(read("30"), seq(1..=30));
    assert_eq!(read("30"), seq(31..=60));
    assert_eq!(broker.run(&["consume", "t", "-g", "app"]).ok(), seq(61..=100));
    assert_eq!(broker.run(&["consume", "t", "-g", "app"]).ok(), "");
}

#[test]
fn lag_is_reported_in_records_and_in_seconds() {
    let broker = with_records("2");
    broker.run(&["consume", "t", "-g", "app", "-n", "40"]).ok();
    let report = broker.run(&["group", "describe", "app", "-o", "json"]).json();
    assert_eq!(report[0]["state"], "Empty");
    assert_eq!(report[0]["lag_records"], 60);
    let seconds = report[0]["lag_seconds"].as_f64().expect("a number");
    assert!(seconds > 0.0 && seconds < 600.0, "{seconds}");
    // The other partition counts too, although the group has read nothing of it.
    broker.feed(&["produce", "t", "-p", "1"], "old\n").ok();
    let listed = broker.run(&["group", "list", "-o", "json"]).json();
    assert_eq!(listed[0]["group"], "app");
    assert_eq!(listed[0]["lag_records"], 61);

    broker.run(&["consume", "t", "-g", "app"]).ok();
    let report = broker.run(&["group", "describe", "app", "-o", "json"]).json();
    assert_eq!((&report[0]["lag_records"], &report[0]["lag_seconds"]), (&0.into(), &0.0.into()));
    let text = broker.run(&["group", "describe", "app"]).ok();
    assert!(text.starts_with("app: Empty (classic), 0 members, 0 records behind\n"), "{text}");
}

#[test]
fn lag_in_seconds_is_the_age_of_the_oldest_record() {
    let broker = with_records("1");
    broker.run(&["consume", "t", "-g", "app"]).ok();
    let an_hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let ms = an_hour_ago.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_millis();
    let line = format!("{{\"value\":\"old\",\"timestamp_ms\":{ms}}}\n");
    broker.feed(&["produce", "t", "--format", "json"], line).ok();
    let text = broker.run(&["group", "describe", "app"]).ok();
    assert!(text.contains("1 record behind (the oldest is 1h old)"), "{text}");
}

#[test]
fn reset_previews_with_dry_run_and_then_moves_the_group() {
    let broker = with_records("1");
    broker.run(&["consume", "t", "-g", "app"]).ok();
    let reset = |to: &str, more: &[&str]| {
        let arguments = [&["group", "reset", "app", "--to", to, "-o", "json"], more].concat();
        broker.run(&arguments).json()["partitions"][0]["to"].clone()
    };
    assert_eq!(reset("earliest", &["--dry-run"]), 0);
    assert_eq!(broker.run(&["consume", "t", "-g", "app"]).ok(), "", "a dry run changes nothing");
    assert_eq!(reset("-5", &[]), 95);
    assert_eq!(broker.run(&["consume", "t", "-g", "app"]).ok(), seq(96..=100));
    assert_eq!(reset("42", &[]), 42);
    assert_eq!(reset("100000", &[]), 100, "never beyond the end");
    assert_eq!(reset("15m ago", &[]), 0);
    assert_eq!(reset("latest", &[]), 100);
    assert_eq!(reset("earliest", &["--topic", "t:0"]), 0);
    assert_eq!(broker.run(&["consume", "t", "-g", "app"]).ok(), seq(1..=100));
}

#[test]
fn a_group_with_members_is_neither_reset_nor_deleted() {
    let broker = with_records("1");
    let member = broker.spawn(&["consume", "t", "-f", "-g", "app"]);
    for number in 1..=100 {
        assert_eq!(member.line(), number.to_string());
    }
    let reset = broker.run(&["group", "reset", "app", "--to", "earliest"]);
    reset.fails(1, &["group app has 1 member", "stop its consumers"]);
    broker.run(&["group", "delete", "app"]).fails(1, &["stop its consumers"]);
    let text = broker.run(&["group", "describe", "app"]).ok();
    assert!(text.contains("Stable (classic, range), 1 member"), "{text}");

    // Ctrl-C commits and leaves: no session timeout is needed.
    member.interrupt().ok();
    let report = broker.run(&["group", "describe", "app", "-o", "json"]).json();
    assert_eq!(report[0]["state"], "Empty");
    assert_eq!(report[0]["partitions"][0]["committed"], 100);
    assert_eq!(broker.run(&["group", "delete", "app"]).ok(), "deleted group app\n");
    broker.run(&["group", "describe", "app"]).fails(1, &["there is no group app"]);
}

#[test]
fn members_share_the_partitions_and_lose_nothing_when_one_leaves() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "t", "-p", "4"]).ok();
    let first = broker.spawn(&["consume", "t", "-f", "-g", "team"]);
    let second = broker.spawn(&["consume", "t", "-f", "-g", "team"]);
    eventually("each has half of the partitions", || {
        let report = broker.run(&["group", "describe", "team", "-o", "json"]);
        let members = match report.code {
            Some(0) => report.json()[0]["members"].clone(),
            _ => return false,
        };
        let members = members.as_array().cloned().unwrap_or_default();
        members.len() == 2 && members.iter().all(|member| member["partitions"] == 2)
    });
    for partition in ["0", "1", "2", "3"] {
        broker.feed(&["produce", "t", "-p", partition], format!("early {partition}\n")).ok();
    }
    let mut read: Vec<String> = Vec::new();
    read.extend([first.line(), first.line(), second.line(), second.line()]);
    read.extend(second.interrupt().ok().lines().map(str::to_owned));
    for partition in ["0", "1", "2", "3"] {
        broker.feed(&["produce", "t", "-p", partition], format!("late {partition}\n")).ok();
    }
    for _ in 0..4 {
        read.push(first.line());
    }
    assert_eq!(first.interrupt().ok(), "");
    read.sort();
    let of = |time: &str| (0..4).map(|p| format!("{time} {p}")).collect::<Vec<_>>();
    assert_eq!(read, [of("early"), of("late")].concat());
}

/// Makes a member of a share group, by a ShareGroupHeartbeat of version 1 (KIP-932). It leaves with its session.
fn join_share_group(broker: &Broker, group: &str, topic: &str) {
    fn text(out: &mut Vec<u8>, text: &str) {
        // Compact: the length and 1, below 128.
        out.push(text.len() as u8 + 1);
        out.extend_from_slice(text.as_bytes());
    }
    // API key, version, correlation id, no client id, no tagged fields.
    let mut request = vec![0, 76, 0, 1, 0, 0, 0, 7, 0xff, 0xff, 0];
    text(&mut request, group);
    text(&mut request, "bXktc2hhcmUtbWVtYmVyLTE");
    // Epoch 0 joins; no rack; one topic.
    request.extend_from_slice(&[0, 0, 0, 0, 0, 2]);
    text(&mut request, topic);
    request.push(0);
    let mut stream = TcpStream::connect(&broker.address).expect("connects");
    stream.write_all(&(request.len() as u32).to_be_bytes()).expect("is sent");
    stream.write_all(&request).expect("is sent");
    let mut size = [0; 4];
    stream.read_exact(&mut size).expect("is answered");
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    stream.read_exact(&mut answer).expect("is answered");
    // Correlation id, tagged fields, throttle time, error code.
    assert_eq!((&answer[..5], &answer[9..11]), (&[0, 0, 0, 7, 0][..], &[0, 0][..]), "{answer:?}");
}

#[test]
fn share_group_with_a_member_is_listed_and_its_queue_is_named() {
    let broker = with_records("1");
    broker.run(&["consume", "t", "-g", "app", "-n", "40"]).ok();
    join_share_group(&broker, "billing", "t");
    let listed = broker.run(&["group", "list", "-o", "json"]).json();
    assert_eq!((&listed[0]["group"], &listed[0]["lag_records"]), (&"app".into(), &60.into()));
    assert_eq!((&listed[1]["group"], &listed[1]["kind"]), (&"billing".into(), &"share".into()));
    assert!(listed[1]["lag_records"].is_null(), "{listed}");
    let text = broker.run(&["group", "list"]).ok();
    assert!(text.contains("billing"), "{text}");
    for command in
        [&["group", "describe", "billing"][..], &["group", "reset", "billing", "--to", "earliest"]]
    {
        let refused = broker.run(command);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.err.contains("'postroad queue describe TOPIC --group billing'"),
            "{}",
            refused.err
        );
    }
}
