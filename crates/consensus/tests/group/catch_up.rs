//! Members that lack more than the kept log, and empty members, receive a snapshot.

use std::time::Duration;

use bytes::Bytes;
use consensus::Payload;
use journal::Body;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, simulate, voters};
use crate::random::Random;

pub(crate) const STREAM: u64 = 7;

/// A group of three that keeps next to nothing of its log.
async fn founded(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.snapshot_log_bytes_min = 40 << 10;
    cluster.kept_log_bytes_max = 1;
    cluster.segment_bytes = 64 << 10;
    for node in 1..=3 {
        cluster.start(node).await;
    }
    cluster.consensus(1).found(voters(1..=3)).await.unwrap();
    cluster
}

/// The content of a batch.
pub(crate) fn batch(offset: u64) -> Bytes {
    let mut random = Random(offset);
    let len = random.between(100, 9_000);
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// Writes one batch after the other, from this offset on. Returns the next offset.
pub(crate) async fn write(cluster: &Cluster, from: u64, count: u64) -> u64 {
    let mut offset = from;
    while offset < from + count {
        let (_, leadership) = cluster.leader().await;
        let body = Body {
            stream: STREAM,
            base_offset: offset,
            span: 1,
            max_timestamp: offset as i64,
            bytes: batch(offset),
        };
        let payload = Payload { head: offset.to_string().into(), bodies: vec![body], ticket: 0 };
        let proposed =
            timeout(Duration::from_secs(20), async { leadership.propose(payload).await?.await });
        // A batch with an unknown outcome may be there: the next one has another offset.
        match proposed.await {
            Ok(Ok(_)) | Err(_) => offset += 1,
            Ok(Err(_)) => {
                sleep(Duration::from_millis(50)).await;
                offset += 1;
            }
        }
    }
    offset
}

/// Each member has the same entries, up to the batch at this offset, and serves them.
pub(crate) async fn all_serve(cluster: &Cluster, last: u64) {
    cluster.all_have(&last.to_string().into()).await;
    for (node, running) in &cluster.nodes {
        let mut offset = 0;
        for head in running.ledger.heads() {
            let expected: u64 = std::str::from_utf8(&head).unwrap().parse().unwrap();
            let read = running.journal.read(STREAM, offset, 1).await.unwrap();
            let read: Vec<Bytes> = read.into_iter().map(|stored| stored.into_bytes()).collect();
            assert!(read.concat() == batch(expected), "node {node} at {expected}");
            offset = expected + 1;
        }
        assert_eq!(running.failure.reason(), None, "node {node}");
    }
}

/// Waits until the log up to here is purged on all running nodes.
async fn log_is_purged(cluster: &Cluster, index: u64) {
    let gone = async {
        while cluster
            .nodes
            .values()
            .any(|node| node.journal.purged_id().map(|id| id.index) < Some(index))
        {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(30), gone).await.expect("the log is let go of");
}

#[test]
fn member_away_for_long_receives_only_missing_batches() {
    for seed in 0..6 {
        simulate(|| async {
            let mut cluster = founded(seed).await;
            let next = write(&cluster, 0, 40).await;
            sleep(Duration::from_secs(3)).await;
            let (leader, _) = cluster.leader().await;
            let away = (1..=3).find(|node| *node != leader).unwrap();
            cluster.kill(away);
            let mut next = write(&cluster, next, 60).await;
            log_is_purged(&cluster, 60).await;
            cluster.start(away).await;
            let caught_up = async {
                while cluster.nodes[&away].ledger.len() < 90 {
                    sleep(Duration::from_millis(20)).await;
                }
            };
            timeout(Duration::from_secs(60), caught_up).await.expect("it catches up");
            assert!(cluster.nodes[&away].journal.purged_id().map(|id| id.index) >= Some(60));
            let all: u64 = (0..100).map(|offset| batch(offset).len() as u64).sum();
            assert!(cluster.network.fetched_bytes() < all, "what it had is sent again");
            next = write(&cluster, next, 10).await;
            all_serve(&cluster, next - 1).await;
            assert!(cluster.nodes.values().all(|node| node.consensus.catching_up().is_empty()));
        });
    }
}

#[test]
fn empty_member_receives_a_snapshot_and_becomes_a_voter() {
    for seed in 0..4 {
        simulate(|| async {
            let mut cluster = founded(seed).await;
            let next = write(&cluster, 0, 80).await;
            log_is_purged(&cluster, 40).await;
            cluster.start(4).await;
            let (leader, _) = cluster.leader().await;
            let adding = cluster.consensus(leader);
            let added = timeout(Duration::from_secs(60), adding.change_members(voters(1..=4)));
            added.await.expect("it is added").unwrap();
            let next = write(&cluster, next, 10).await;
            all_serve(&cluster, next - 1).await;
            // It has stored the received snapshot by now.
            cluster.kill(4);
            cluster.start(4).await;
            let next = write(&cluster, next, 5).await;
            all_serve(&cluster, next - 1).await;
        });
    }
}

#[test]
fn pieces_damaged_in_transit_are_requested_again() {
    simulate(|| async {
        let mut cluster = founded(5).await;
        let next = write(&cluster, 0, 80).await;
        log_is_purged(&cluster, 40).await;
        cluster.network.damage_pieces(4);
        cluster.start(4).await;
        let (leader, _) = cluster.leader().await;
        let adding = cluster.consensus(leader);
        let added = timeout(Duration::from_secs(900), adding.change_members(voters(1..=4)));
        added.await.expect("it is added").unwrap();
        let next = write(&cluster, next, 5).await;
        all_serve(&cluster, next - 1).await;
    });
}

#[test]
fn snapshot_transfer_survives_power_losses_leader_changes_and_writes() {
    let mut sent = 0;
    for seed in 0..24 {
        let bytes = simulate(|| async {
            let mut random = Random(seed ^ 0xCA7C);
            let mut cluster = founded(seed).await;
            let mut next = write(&cluster, 0, 40).await;
            for _ in 0..random.between(1, 3) {
                let away = random.between(1, 3);
                cluster.kill(away);
                next = write(&cluster, next, random.between(20, 80)).await;
                sleep(Duration::from_secs(2)).await;
                cluster.start(away).await;
                for _ in 0..random.below(6) {
                    sleep(Duration::from_millis(random.below(1_500))).await;
                    match random.below(5) {
                        0 | 1 => {
                            cluster.kill(away);
                            cluster.start(away).await;
                        }
                        2 => {
                            let other = away % 3 + 1;
                            cluster.kill(other);
                            cluster.start(other).await;
                        }
                        3 => cluster.network.break_connections(),
                        _ => {
                            let (leader, _) = cluster.leader().await;
                            let consensus = cluster.consensus(leader);
                            let other = leader % 3 + 1;
                            tokio::spawn(async move { consensus.transfer_leadership(other).await });
                        }
                    }
                    next = write(&cluster, next, random.below(6)).await;
                }
                next = write(&cluster, next, 1).await;
                all_serve(&cluster, next - 1).await;
            }
            cluster.network.fetched_bytes()
        });
        sent += u64::from(bytes > 0);
    }
    assert!(sent >= 12, "only {sent} of 24 sent a snapshot");
}
