//! `postroad backup` and `postroad restore`, of a single node.

use std::path::Path;

use crate::harness::{Broker, CommandOutput, postroad, run, seq, serve, serve_with_shards};

const PEER: &str = "127.77.3.1:7700";

fn restore(data: &Path, from: &Path, more: &[&str]) -> CommandOutput {
    let mut command = postroad();
    command.arg("restore").arg("--data").arg(data).arg("--from").arg(from).args(more);
    run(command, b"")
}

fn lines(text: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn restored_cluster_of_one_has_the_contents_of_the_backup() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let (data, backup, new) = (at("data"), at("backup"), at("new"));
    let broker = Broker::start_with(serve_with_shards(&data, 2), &data);
    broker.run(&["topic", "create", "orders", "-p", "3"]).ok();
    broker.run(&["topic", "create", "graves"]).ok();
    broker.feed(&["produce", "orders"], seq(1..=500)).ok();
    broker.run(&["consume", "orders", "-g", "app", "-n", "200"]).ok();
    broker.run(&["queue", "declare", "orders", "--dead-letter", "graves"]).ok();
    broker.run(&["user", "add", "clerk", "a long secret"]).ok();
    let dir = backup.to_str().expect("text");
    let taken = broker.run(&["backup", dir, "-o", "json"]).json();
    assert_eq!(taken["shards"].as_array().map(Vec::len), Some(3), "{taken}");
    broker.run(&["backup", dir]).fails(1, &["has a backup already"]);
    broker.feed(&["produce", "orders"], seq(501..=600)).ok();
    broker.kill();

    restore(&data, &backup, &[]).fails(1, &["is not empty"]);
    restore(&new, &data, &[]).fails(1, &["has no backup"]);
    let text = restore(&new, &backup, &["--dry-run"]).ok();
    assert!(text.contains("Nothing was changed"), "{text}");
    assert!(!new.exists());
    let seen = restore(&new, &backup, &["--dry-run", "-o", "json"]).json();
    assert_eq!((&seen["bytes"], &seen["restored"]), (&taken["bytes"], &serde_json::Value::Null));
    let text = restore(&new, &backup, &["--peer", PEER]).ok();
    let start = format!("postroad serve --data {} --peer {PEER}", new.display());
    assert!(text.contains(&start), "{text}");
    restore(&new, &backup, &[]).fails(1, &["is not empty"]);

    // The restored node is a member of a cluster that it founded alone.
    let mut alone = postroad();
    alone.args(["serve", "--kafka", "127.0.0.1:0", "--data"]).arg(&new);
    run(alone, b"").fails(2, &["--peer"]);
    let mut command = serve(&new);
    command.args(["--peer", PEER]);
    let broker = Broker::start_with(command, &new);
    let all = broker.run(&["consume", "orders"]).ok();
    assert_eq!(lines(&all), (1..=500).collect::<Vec<_>>());
    let rest = broker.run(&["consume", "orders", "-g", "app", "-n", "300"]).ok();
    assert_eq!(lines(&rest).len(), 300);
    assert!(broker.run(&["user", "list"]).ok().contains("clerk"));
    assert!(broker.run(&["queue", "list"]).ok().contains("orders"));
    broker.feed(&["produce", "orders"], seq(501..=510)).ok();
    assert_eq!(lines(&broker.run(&["consume", "orders"]).ok()).len(), 510);
    let status = broker.run(&["cluster", "status", "-o", "json"]).json();
    assert_eq!(status["nodes"].as_array().map(Vec::len), Some(1), "{status}");
}

#[test]
fn interrupted_backup_is_rejected_by_restore() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backup = folder.path().join("backup");
    let broker = Broker::start();
    broker.run(&["topic", "create", "orders"]).ok();
    std::fs::create_dir(&backup).expect("made");
    // The leftovers of an interrupted backup.
    std::fs::write(backup.join("incomplete"), "").expect("written");
    std::fs::write(backup.join("shard-0.state"), "half").expect("written");
    let new = folder.path().join("new");
    let dir = backup.to_str().expect("text");
    let again = format!("postroad backup {dir}");
    restore(&new, &backup, &[]).fails(1, &["interrupted", &again]);
    broker.run(&["backup", dir]).ok();
    restore(&new, &backup, &["--dry-run"]).ok();
    std::fs::write(backup.join("shard-1.state"), "other").expect("written");
    restore(&new, &backup, &["--dry-run"]).fails(1, &["shard-1.state", "damaged"]);
    let mut nobody = postroad();
    nobody.args(["backup", folder.path().join("b").to_str().expect("text"), "-b", "127.0.0.1:1"]);
    run(nobody, b"").fails(2, &[]);
}
