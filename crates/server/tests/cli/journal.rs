//! `postroad journal inspect`: reads a journal without its broker.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::harness::{Broker, CommandOutput, postroad, run, seq, serve_with_shards};

fn inspect(data: &Path, more: &[&str]) -> CommandOutput {
    let mut command = postroad();
    command.args(["journal", "inspect"]).arg(data).args(more);
    run(command, b"")
}

/// A journal with two topics, whose broker was killed.
fn journal() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_with(serve_with_shards(&data, 1), &data);
    broker.run(&["topic", "create", "orders", "-p", "2"]).ok();
    broker.run(&["topic", "create", "gone"]).ok();
    for partition in ["0", "1"] {
        broker.feed(&["produce", "orders", "-p", partition], seq(1..=100)).ok();
    }
    broker.run(&["consume", "orders", "-g", "app"]).ok();
    broker.run(&["topic", "delete", "gone"]).ok();
    broker.kill();
    (folder, data)
}

/// A group commit during the read does not look like damage.
#[test]
fn journal_of_a_running_broker_is_not_damaged() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    let broker = Broker::start_with(serve_with_shards(&data, 1), &data);
    broker.run(&["topic", "create", "orders"]).ok();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                broker.feed(&["produce", "orders"], seq(1..=20_000)).ok();
            }
        });
        for _ in 0..8 {
            inspect(&data, &[]).ok();
        }
        inspect(&data, &["--frames"]).ok();
        ends.store(true, Ordering::Relaxed);
        writing.join().expect("records are produced");
    });
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON a line")).collect()
}

#[test]
fn segments_are_counted_and_found_sound() {
    let (_folder, data) = journal();
    let text = inspect(&data, &[]).ok();
    assert!(text.contains("200 records in the log"), "{text}");
    let report = inspect(&data, &["-o", "json"]).json();
    let first = &report[1]["segments"][0];
    assert_eq!((&first["records"], &first["verdict"]), (&200.into(), &"sound".into()));
    assert!(first["frames"].as_u64() > Some(3), "{first}");
    // A shard's directory and its data directory give the same report.
    let alone = inspect(&data.join("shard-1"), &["-o", "json"]).json();
    assert_eq!(alone[0], report[1]);
}

#[test]
fn frames_and_entries_are_listed_with_the_names_of_topics() {
    let (_folder, data) = journal();
    let frames = lines(&inspect(&data, &["--frames", "-o", "json"]).ok());
    assert!(frames.iter().filter(|frame| frame["verdict"] == "complete").count() > 3);
    let text = inspect(&data, &["--entries"]).ok();
    for says in [
        "create topic orders with 2 partitions",
        "orders/0 0 to 99",
        "orders/1 0 to 99",
        "delete topic gone",
        "group app commits",
    ] {
        assert!(text.contains(says), "no {says:?} in:\n{text}");
    }
    let entries = lines(&inspect(&data, &["--entries", "-o", "json"]).ok());
    for shard in ["shard-0", "shard-1"] {
        assert!(entries.iter().any(|entry| entry["shard"] == shard), "no entry of {shard}");
        assert!(text.contains(&format!("{shard}:")), "{text}");
    }
    let batch = entries
        .iter()
        .flat_map(|entry| entry["batches"].as_array().expect("a list"))
        .find(|batch| batch["partition"] == 1)
        .expect("a batch of partition 1");
    assert_eq!((&batch["topic"], &batch["records"]), (&"orders".into(), &100.into()));
}

#[test]
fn damage_in_the_middle_is_reported_with_its_place() {
    let (_folder, data) = journal();
    let rows = data.join("shard-1");
    let frames = lines(&inspect(&rows, &["--frames", "-o", "json"]).ok());
    let position = frames[1]["position"].as_u64().expect("a number");
    let segment = rows.join("00000001.seg");
    let file = File::options().write(true).open(&segment).expect("a segment");
    file.write_all_at(b"damage", position + 100).expect("written");
    let said = inspect(&data, &[]);
    let place = format!("at byte {position} of {}", segment.display());
    assert!(said.out.contains(&format!("damaged at {position}")), "{}", said.out);
    said.fails(2, &["1 place is damaged", &place]);
}

#[test]
fn directory_without_a_journal_is_rejected() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    inspect(folder.path(), &[]).fails(1, &["holds no journal", "--data"]);
    inspect(&folder.path().join("nowhere"), &[]).fails(1, &["cannot read"]);
}
