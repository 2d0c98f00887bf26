//! How long entries that a member lacks are kept.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use crate::cluster::{Cluster, propose, simulate, voters};

/// Writes more log than a snapshot covers.
async fn write(cluster: &Cluster, round: u64) -> Bytes {
    let (_, leadership) = cluster.leader().await;
    let mut last = Bytes::new();
    for number in 0..100 {
        last = format!("{round} {number} {}", "x".repeat(300)).into();
        propose(&leadership, last.clone()).await.unwrap();
    }
    last
}

async fn founded(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed);
    cluster.snapshot_log_bytes_min = 8 << 10;
    for node in 1..=3 {
        cluster.start(node).await;
    }
    cluster.consensus(1).found(voters(1..=3)).await.unwrap();
    cluster
}

#[test]
fn log_is_kept_for_a_lagging_member_across_power_losses() {
    for seed in 0..10 {
        simulate(|| async {
            let mut cluster = founded(seed).await;
            write(&cluster, 0).await;
            let (leader, _) = cluster.leader().await;
            let away = (1..=3).find(|node| *node != leader).unwrap();
            cluster.kill(away);
            for round in 1..5 {
                write(&cluster, round).await;
                sleep(Duration::from_secs(2)).await;
            }
            for node in (1..=3).filter(|node| *node != away) {
                cluster.kill(node);
                cluster.start(node).await;
            }
            let last = write(&cluster, 5).await;
            cluster.start(away).await;
            cluster.all_have(&last).await;
            assert_eq!(cluster.nodes[&away].ledger.len(), 600);
            // Not longer, on any of them.
            let last = write(&cluster, 6).await;
            cluster.all_have(&last).await;
            sleep(Duration::from_secs(3)).await;
            for (node, running) in &cluster.nodes {
                let purged = running.journal.purged_id().map(|id| id.index);
                assert!(purged > Some(500), "node {node}: {purged:?}");
                assert!(running.consensus.catching_up().is_empty());
            }
        });
    }
}
