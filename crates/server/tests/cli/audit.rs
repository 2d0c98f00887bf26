//! The audit log, as read by operators.

use crate::harness::{Broker, eventually, serve};

const TOPIC: &str = "_postroad.audit";

/// The first `count` events of the audit topic.
fn events(broker: &Broker, count: &str) -> Vec<serde_json::Value> {
    eventually("the topic is there", || broker.run(&["topic", "list"]).ok().contains(TOPIC));
    let lines = broker.run(&["consume", TOPIC, "--from", "earliest", "-n", count]).ok();
    lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn audit_events_are_durable_though_the_node_stops_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let start = || {
        let mut command = serve(&data);
        command.args(["--audit", "on"]);
        Broker::start_with(command, &data)
    };
    let broker = start();
    broker.run(&["user", "add", "app", "canary-password"]).ok();
    broker.run(&["topic", "create", "orders"]).ok();
    broker.run(&["topic", "delete", "orders"]).ok();
    broker.run(&["topic", "create", "others"]).ok();
    assert_eq!(broker.terminate().0.code(), Some(0));
    let broker = start();
    let events = events(&broker, "4");
    let of = |place: usize, field: &str| events[place][field].as_str().unwrap_or_default();
    assert_eq!(
        (of(0, "protocol"), of(0, "action"), of(0, "resource")),
        ("command", "administer", "cluster")
    );
    assert!(of(0, "request").contains("add-user"), "{events:?}");
    assert_eq!(of(0, "subject"), r#"user "app" is added"#);
    assert_eq!((of(1, "protocol"), of(1, "action"), of(1, "name")), ("kafka", "create", "orders"));
    assert_eq!((of(1, "request"), of(1, "outcome")), ("CreateTopics", "allowed"));
    // Each change once.
    assert_eq!((of(2, "action"), of(2, "name")), ("delete", "orders"));
    assert_eq!((of(3, "action"), of(3, "name")), ("create", "others"));
    assert!(!format!("{events:?}").contains("canary"));
    broker.run(&["topic", "describe", "others"]).ok();
}

#[test]
fn audit_is_off_by_default() {
    let broker = Broker::start();
    broker.run(&["topic", "create", "orders"]).ok();
    assert!(!broker.run(&["topic", "list"]).ok().contains(TOPIC));
}
