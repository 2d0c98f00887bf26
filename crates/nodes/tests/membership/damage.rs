//! Disk corruption at rest, on one node of three.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use journal::inspect::inspect;
use operations::cluster::{Operation, ScrubStatus};
use test_cluster::{JournalOptions, NodeSetup, SHARDS, refusal};
use tokio::time::timeout;
use world::{Disk, SimulatedDisk};

use crate::all_of;
use crate::harness::{Cluster, Load, SOON, operate, wait_for};

/// Small segments, and none of them cached in memory.
fn small() -> JournalOptions {
    JournalOptions { segment_bytes: 64 << 10, tail_cache_bytes: 0, ..JournalOptions::default() }
}

/// The files of a shard with this ending, by number, without those of the last segment.
fn files(disk: &SimulatedDisk, shard: u32, ending: &str) -> Vec<PathBuf> {
    let dir = NodeSetup::shard_dir(shard);
    let mut names = disk.list(&dir).expect("it is there");
    names.sort();
    let mut last = names.iter().filter(|name| name.ends_with(".seg")).filter(|name| {
        // A preallocated segment is empty.
        let content = disk.content(&dir.join(name)).expect("it is there");
        content[512..].iter().any(|byte| *byte != 0)
    });
    let last = last.next_back().expect("there is one")[..8].to_owned();
    names.retain(|name| name.ends_with(ending) && name[..8] < last[..]);
    names.iter().map(|name| dir.join(name)).collect()
}

/// Flips bits all over the file.
fn flip(disk: &SimulatedDisk, file: &Path) {
    let len = disk.content(file).expect("it is there").len() as u64;
    (1..30).for_each(|place| disk.flip_bit(file, place * len / 30, (place % 8) as u8));
}

/// A cluster in which each shard with records has several segments, and the acknowledged records.
async fn filled() -> (Cluster, BTreeSet<String>) {
    let are_several = |disk: &SimulatedDisk, shard| files(disk, shard, ".seg").len() >= 6;
    filled_until(1, are_several).await
}

/// The same, once the disk of a node is in this state for each shard with records.
async fn filled_until(
    node: u64,
    is_full: impl Fn(&SimulatedDisk, u32) -> bool,
) -> (Cluster, BTreeSet<String>) {
    let cluster = Cluster::start_with(small()).await;
    // Few appends fill the segments.
    let load = Load::with_values(&cluster, 1_000);
    let disk = || cluster.members[&node].node.place().disk().clone();
    let full = async || (1..=SHARDS).all(|shard| is_full(&disk(), shard));
    wait_for(full, || "several segments".to_owned()).await;
    let acknowledged = load.stop().await;
    (cluster, acknowledged)
}

/// Whether a restart needs no log entries of the shard's first segment, which has records all the same.
fn log_begins_later(disk: &SimulatedDisk, shard: u32) -> bool {
    // The running node may replace a file meanwhile.
    let Ok(found) = inspect(disk, &NodeSetup::shard_dir(shard)) else { return false };
    let newest = found.snapshots.first().and_then(|snapshot| snapshot.content);
    let first = found.segments.first().map(|segment| segment.id);
    newest.zip(first).is_some_and(|(newest, first)| newest.scan_segment > first)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_are_never_served_and_are_repaired_from_other_nodes() {
    let (mut cluster, acknowledged) = filled().await;
    let disk = cluster.members[&2].node.place().disk().clone();
    let mut damaged = 0;
    for shard in 0..=SHARDS {
        for file in files(&disk, shard, ".seg").iter().chain(&files(&disk, shard, ".idx")) {
            flip(&disk, file);
            damaged += 1;
        }
    }
    assert!(damaged >= 12, "{damaged} files");
    // Reads everything there. A value that was never written, or an unreadable batch, fails the test.
    let read = timeout(SOON, all_of(&cluster, 2)).await.expect("it is repaired");
    assert!(read.is_superset(&acknowledged));
    assert!(read.iter().all(|value| value.starts_with('v')));
    // The repaired files are on its disk.
    let place = cluster.end(2).await;
    cluster.start_again(place).await;
    let read = timeout(SOON, all_of(&cluster, 2)).await.expect("soon");
    assert!(read.is_superset(&acknowledged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrub_finds_damage_in_unread_records_and_reports_it_in_the_status() {
    let (cluster, acknowledged) = filled().await;
    let disk = cluster.members[&2].node.place().disk().clone();
    for shard in 1..=SHARDS {
        flip(&disk, &files(&disk, shard, ".seg")[0]);
    }
    let asked = |begin| Operation::Scrub { begin };
    let stored = async |begin| -> ScrubStatus {
        let asked = operate(&cluster.administration(2), asked(begin)).await;
        asked.expect("it says what it knows")
    };
    assert_eq!(stored(false).await.damaged, Vec::<String>::new(), "nobody has read it");
    stored(true).await;
    let found = async || {
        let status = cluster.status(1).await;
        let of = status.stored.iter().find(|it| it.node == 2).expect("it says what it has");
        let said = status.at_risk.iter().any(|word| word.starts_with("node 2: /data/shard-"));
        said || of.ended_ms.is_some()
    };
    wait_for(found, || "that it is found".to_owned()).await;
    let repaired = async || {
        let stored = stored(false).await;
        stored.ended_ms.is_some() && stored.damaged.is_empty() && stored.looked_at_bytes.is_none()
    };
    wait_for(repaired, || "that it is repaired".to_owned()).await;
    let rewritten = |shard| {
        let names = disk.list(&NodeSetup::shard_dir(shard)).expect("it is there");
        names.iter().any(|name| name.ends_with(".g2.seg"))
    };
    assert!((1..=SHARDS).all(rewritten), "each was written anew");
    let read = timeout(SOON, all_of(&cluster, 2)).await.expect("soon");
    assert!(read.is_superset(&acknowledged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segment_lost_while_its_node_is_down_is_repaired_from_other_nodes() {
    let (mut cluster, acknowledged) = filled_until(3, log_begins_later).await;
    let place = cluster.end(3).await;
    let disk = place.disk();
    for shard in 1..=SHARDS {
        disk.cut_file(&files(disk, shard, ".seg")[0], 1_000);
    }
    cluster.start_again(place).await;
    let read = timeout(SOON, all_of(&cluster, 3)).await.expect("it is repaired");
    assert!(read.is_superset(&acknowledged));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_a_damaged_log_refuses_to_start_and_names_the_replacement_steps() {
    let (mut cluster, acknowledged) = filled().await;
    let place = cluster.end(3).await;
    let dir = NodeSetup::shard_dir(1);
    let mut segments = place.disk().list(&dir).expect("it is there");
    segments.retain(|name| name.ends_with(".seg"));
    segments.sort();
    for name in &segments {
        // Within the used part of the segment.
        let content = place.disk().content(&dir.join(name)).expect("it is there");
        let used = content.iter().rposition(|byte| *byte != 0).expect("it has a header");
        (1..40_u64).for_each(|at| {
            place.disk().flip_bit(&dir.join(name), 600 + at * used as u64 / 50, 3);
        });
    }
    let refused = refusal(&place).await.to_string();
    assert!(refused.contains("is damaged at byte"), "{refused}");
    assert!(refused.contains("`postroad node replace 3 --with NEW`"), "{refused}");
    let fourth = cluster.join_in_place_of(&place).await;
    cluster.ask(1, Operation::ReplaceNode { node: 3, with: fourth }).await.expect("it is replaced");
    cluster.becomes(&[1, 2, fourth]).await;
    assert!(all_of(&cluster, fourth).await.is_superset(&acknowledged));
}
