//! Bits flip on the disks of a minority: damaged batches are never served, and are replaced by the others' copies.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use journal::BatchCheck;
use tokio::time::{sleep, timeout};
use world::Disk;

use crate::catch_up::{STREAM, all_serve, batch, write};
use crate::cluster::{Cluster, DIR, simulate, voters};
use crate::random::Random;

/// Whether these bytes are the batch at this offset.
fn check(bytes: &[u8], offset: Option<u64>) -> bool {
    offset.is_some_and(|offset| bytes == batch(offset))
}

async fn founded(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.snapshot_log_bytes_min = 40 << 10;
    cluster.segment_bytes = 64 << 10;
    cluster.tail_cache_bytes = 0;
    cluster.check = BatchCheck(check);
    for node in 1..=3 {
        cluster.start(node).await;
    }
    cluster.consensus(1).found(voters(1..=3)).await.unwrap();
    cluster
}

fn files(cluster: &Cluster, node: u64, ending: &str) -> Vec<PathBuf> {
    let names = cluster.disk(node).list(Path::new(DIR)).unwrap();
    let files = names.into_iter().filter(|name| name.ends_with(ending));
    files.map(|name| Path::new(DIR).join(name)).collect()
}

/// Flips some bits in each of these files.
fn flip(cluster: &Cluster, node: u64, files: &[PathBuf], random: &mut Random) {
    for file in files {
        let len = cluster.disk(node).content(file).unwrap().len() as u64;
        for _ in 0..random.between(1, 12) {
            cluster.disk(node).flip_bit(file, random.below(len), random.below(8) as u8);
        }
    }
}

/// Checks that the batches that the node serves are right; returns whether it serves all.
async fn serves(cluster: &Cluster, node: u64, offsets: &BTreeSet<u64>) -> bool {
    let mut all = true;
    for &offset in offsets {
        match cluster.nodes[&node].journal.read(STREAM, offset, 1).await {
            Ok(read) => {
                let read: Vec<_> = read.into_iter().map(|stored| stored.into_bytes()).collect();
                assert!(read.concat() == batch(offset), "node {node} at {offset}");
            }
            Err(_) => all = false,
        }
    }
    all
}

/// Offsets of the applied batches.
fn written(cluster: &Cluster) -> BTreeSet<u64> {
    let heads = cluster.nodes.values().next().unwrap().ledger.heads();
    heads.iter().map(|head| std::str::from_utf8(head).unwrap().parse().unwrap()).collect()
}

async fn is_repaired(cluster: &Cluster, node: u64) {
    let offsets = written(cluster);
    cluster.all_have(&offsets.last().unwrap().to_string().into()).await;
    let repaired = async {
        while !serves(cluster, node, &offsets).await {
            sleep(Duration::from_millis(200)).await;
        }
    };
    if timeout(Duration::from_secs(200), repaired).await.is_err() {
        panic!("node {node} is not repaired: {:#?}", cluster.nodes[&node].journal.damaged());
    }
    assert_eq!(cluster.nodes[&node].journal.damaged(), []);
    assert_eq!(cluster.nodes[&node].failure.reason(), None, "node {node}");
}

/// Rolls the log on each node, so that the earlier segments are sealed.
async fn sealed(cluster: &Cluster, next: u64) -> u64 {
    sleep(Duration::from_secs(3)).await;
    cluster.nodes.values().for_each(|node| node.journal.roll());
    let next = write(cluster, next, 2).await;
    cluster.all_have(&(next - 1).to_string().into()).await;
    sleep(Duration::from_secs(3)).await;
    next
}

#[test]
fn bit_flips_in_sealed_segments_of_one_node_are_never_served_and_repaired() {
    for seed in 0..8 {
        simulate(|| async {
            let mut random = Random(seed ^ 0xF11D);
            let mut cluster = founded(seed).await;
            let next = write(&cluster, 0, 80).await;
            let next = sealed(&cluster, next).await;
            let (leader, _) = cluster.leader().await;
            let node = if seed % 2 == 0 { leader } else { leader % 3 + 1 };
            let journal = &cluster.nodes[&node].journal;
            let left = journal.segments().into_iter().filter(|it| it.sealed && it.live_bytes > 0);
            let left: BTreeSet<String> = left.map(|it| format!("{:08}.", it.id)).collect();
            let is_left = |file: &PathBuf| {
                let name = file.file_name().unwrap().to_str().unwrap();
                left.iter().any(|id| name.starts_with(id))
            };
            let segments = files(&cluster, node, ".seg").into_iter().filter(is_left);
            let segments: Vec<_> = segments.collect();
            assert!(segments.len() > 2);
            flip(&cluster, node, &segments, &mut random);
            let sidecars = files(&cluster, node, ".idx").into_iter().filter(is_left);
            flip(&cluster, node, &sidecars.collect::<Vec<_>>(), &mut random);
            is_repaired(&cluster, node).await;
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
            // Also after a restart.
            cluster.kill(node);
            cluster.start(node).await;
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
        });
    }
}

#[test]
fn damaged_active_segment_is_released_and_rewritten() {
    for seed in 0..4 {
        simulate(|| async {
            let mut random = Random(seed);
            let cluster = founded(seed).await;
            let next = write(&cluster, 0, 30).await;
            let next = sealed(&cluster, next).await;
            let next = write(&cluster, next, 8).await;
            cluster.all_have(&(next - 1).to_string().into()).await;
            let (leader, _) = cluster.leader().await;
            let node = if seed % 2 == 0 { leader } else { leader % 3 + 1 };
            let all = cluster.nodes[&node].journal.segments();
            let written_to = all.iter().find(|it| !it.sealed).expect("one is written to").id;
            let file = Path::new(DIR).join(format!("{written_to:08}.seg"));
            for place in 0..10 {
                cluster.disk(node).flip_bit(&file, 3_000 + place * 800, random.below(8) as u8);
            }
            assert!(!serves(&cluster, node, &written(&cluster)).await, "seed {seed}");
            // No more writes.
            is_repaired(&cluster, node).await;
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
        });
    }
}

#[test]
fn damage_in_different_places_of_two_nodes_is_repaired_from_the_third() {
    for seed in 0..4 {
        simulate(|| async {
            let cluster = founded(seed).await;
            let next = write(&cluster, 0, 80).await;
            let next = sealed(&cluster, next).await;
            for node in [1, 2] {
                let all = cluster.nodes[&node].journal.segments();
                let left: Vec<u32> = all
                    .iter()
                    .filter(|it| it.sealed && it.live_bytes > 0)
                    .map(|it| it.id)
                    .collect();
                let id = left[(node as usize - 1) * (left.len() - 1)];
                let all = files(&cluster, node, ".seg");
                let start = format!("{id:08}.");
                let file = all.iter().find(|it| it.to_str().unwrap().contains(&start)).unwrap();
                flip(&cluster, node, &vec![file.clone(); 3], &mut Random(seed + node));
            }
            for node in [1, 2, 3] {
                is_repaired(&cluster, node).await;
            }
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
        });
    }
}

#[test]
fn node_with_a_damaged_kept_log_leads_and_is_repaired() {
    for seed in 0..4 {
        simulate(|| async {
            let mut random = Random(seed);
            let mut cluster = founded(seed).await;
            let next = write(&cluster, 0, 60).await;
            sleep(Duration::from_secs(3)).await;
            let (leader, _) = cluster.leader().await;
            let (node, away) = (leader % 3 + 1, (leader + 1) % 3 + 1);
            // The log is kept for this one.
            cluster.kill(away);
            let next = write(&cluster, next, 60).await;
            cluster.all_have(&(next - 1).to_string().into()).await;
            let all = cluster.nodes[&node].journal.segments();
            let last = all.iter().map(|it| it.id).max().unwrap();
            let mut segments = files(&cluster, node, ".seg");
            segments.retain(|file| {
                let name = file.file_name().unwrap().to_str().unwrap();
                name[..8].parse::<u32>().unwrap() < last
            });
            for _ in 0..5 {
                flip(&cluster, node, &segments, &mut random);
            }
            cluster.start(away).await;
            let _ = cluster.consensus(leader).transfer_leadership(node).await;
            let next = write(&cluster, next, 5).await;
            is_repaired(&cluster, node).await;
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
            cluster.kill(node);
            cluster.start(node).await;
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
        });
    }
}

#[test]
fn cut_off_node_reports_its_damage_and_is_repaired_once_others_return() {
    simulate(|| async {
        let cluster = founded(3).await;
        let next = write(&cluster, 0, 80).await;
        let next = sealed(&cluster, next).await;
        let (leader, _) = cluster.leader().await;
        let node = leader % 3 + 1;
        let damaged = files(&cluster, node, ".seg");
        flip(&cluster, node, &damaged[..1], &mut Random(3));
        cluster.network.cut_off(node, 1..=3);
        let offsets = written(&cluster);
        for _ in 0..20 {
            serves(&cluster, node, &offsets).await;
            sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(cluster.nodes[&node].journal.damaged().len(), 1);
        cluster.network.heal();
        is_repaired(&cluster, node).await;
        let next = write(&cluster, next, 5).await;
        all_serve(&cluster, next - 1).await;
    });
}

/// The leader resumes sending at the end of this member's log, which is before the damage.
#[test]
fn member_receives_a_snapshot_for_entries_that_are_damaged_at_the_leader() {
    for seed in 0..8 {
        simulate(|| async {
            let mut random = Random(seed);
            let cluster = founded(seed).await;
            let next = write(&cluster, 0, 30).await;
            cluster.all_have(&(next - 1).to_string().into()).await;
            let (leader, _) = cluster.leader().await;
            let away = leader % 3 + 1;
            cluster.network.cut_off(away, 1..=3);
            let next = write(&cluster, next, 60).await;
            flip(&cluster, leader, &files(&cluster, leader, ".seg"), &mut random);
            flip(&cluster, leader, &files(&cluster, leader, ".seg"), &mut random);
            cluster.network.heal();
            let next = write(&cluster, next, 5).await;
            is_repaired(&cluster, leader).await;
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
        });
    }
}

/// The next leader cannot read entries that are in the log and not known to be committed.
#[test]
fn leader_with_unreadable_unapplied_entries_steps_down() {
    for seed in 0..8 {
        simulate(|| async {
            let mut cluster = founded(seed).await;
            let next = write(&cluster, 0, 3).await;
            cluster.all_have(&(next - 1).to_string().into()).await;
            cluster.snapshot_log_bytes_min = u64::MAX;
            for node in 1..=3 {
                cluster.kill(node);
                cluster.start(node).await;
            }
            let next = write(&cluster, next, 3).await;
            cluster.all_have(&(next - 1).to_string().into()).await;
            let (node, behind) = (seed % 3 + 1, (seed + 1) % 3 + 1);
            // Either one lacks entries, so that the leader needs the damaged ones, or none does.
            let one_lacks_some = seed % 2 == 0;
            if one_lacks_some {
                cluster.kill(behind);
            }
            let next = write(&cluster, next, 20).await;
            (1..=3).for_each(|node| cluster.kill(node));
            let segments = files(&cluster, node, ".seg");
            for started in [node, behind] {
                cluster.start(started).await;
                cluster.consensus(started).set_may_campaign(started == node);
            }
            for file in &segments {
                // A prepared segment without entries may have been deleted at the start.
                let len =
                    cluster.disk(node).content(file).map_or(0, |content| content.len() as u64);
                (1..len / 600).for_each(|at| cluster.disk(node).flip_bit(file, at * 600, 1));
            }
            sleep(Duration::from_secs(4)).await;
            cluster.start(6 - node - behind).await;
            cluster.consensus(behind).set_may_campaign(true);
            let others = async {
                while cluster.now_leads().is_none_or(|(leads, _)| leads == node) {
                    sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(Duration::from_secs(10), others).await.expect("another one leads");
            // It has no other source for these entries.
            let ended = async {
                while cluster.nodes[&node].failure.reason().is_none() {
                    sleep(Duration::from_millis(50)).await;
                }
            };
            timeout(Duration::from_secs(10), ended).await.expect("it ends");
            cluster.kill(node);
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
            assert_eq!(written(&cluster), (0..next).collect(), "seed {seed}");
        });
    }
}
